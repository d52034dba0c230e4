// SPDX-License-Identifier: BSD-3-Clause
// socket_preload/files: sendfile, by copying.
#include <rpma/rsocket.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <new>

#include "socket_preload/bytes.hpp"
#include "socket_preload/descriptors.hpp"
#include "socket_preload/libc.hpp"

namespace socket_preload {

namespace {

using Block = std::array<std::byte, std::size_t{64} << 10>;

// This thread's, made when it copies first; nullptr when there is no memory.
Block *block() {
    static thread_local const std::unique_ptr<Block> own{new (std::nothrow) Block};
    return own.get();
}

// Sends bytes of a file from `position` on, and moves that. Returns how many, or -1.
ssize_t send_file(int socket, int file, off_t &position, std::size_t bytes) {
    Block *const copies = block();
    if (copies == nullptr) {
        errno = ENOMEM;
        return -1;
    }
    ssize_t done = 0;
    while (bytes != 0) {
        const ssize_t here = pread(file, copies->data(), std::min(bytes, copies->size()), position);
        const auto size = static_cast<std::size_t>(here);
        const ssize_t gone =
            here > 0 ? sent(socket, [&] { return rwrite(socket, copies->data(), size); }) : here;
        if (gone <= 0) {
            return done != 0 ? done : gone;
        }
        done += gone;
        position += gone;
        bytes -= static_cast<std::size_t>(gone);
        if (gone < here) {
            break;
        }
    }
    return done;
}

ssize_t send_file_at(int socket, int file, off_t *offset, std::size_t bytes) {
    if (offset != nullptr) {
        return send_file(socket, file, *offset, bytes);
    }
    off_t position = lseek(file, 0, SEEK_CUR);
    if (position < 0) {
        return -1;
    }
    const ssize_t done = send_file(socket, file, position, bytes);
    if (done > 0) {
        (void)lseek(file, position, SEEK_SET);
    }
    return done;
}

}  // namespace

}  // namespace socket_preload

INTERPOSED ssize_t sendfile(int socket, int file, off_t *offset, size_t bytes) noexcept {
    return socket_preload::is_rsocket(socket) ? socket_preload::send_file_at(socket, file, offset, bytes)
                                              : LIBC(sendfile)(socket, file, offset, bytes);
}

INTERPOSED ssize_t sendfile64(int socket, int file, off64_t *offset, size_t bytes) noexcept {
    static_assert(sizeof(off64_t) == sizeof(off_t));
    return sendfile(socket, file, offset, bytes);
}
