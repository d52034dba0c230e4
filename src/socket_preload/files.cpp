// SPDX-License-Identifier: BSD-3-Clause
// socket_preload/files: sendfile and splice, by copying.
#include <fcntl.h>
#include <poll.h>
#include <rpma/rsocket.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <memory>
#include <new>

#include "base/fd.hpp"
#include "socket_preload/bytes.hpp"
#include "socket_preload/descriptor_kinds.hpp"
#include "socket_preload/libc.hpp"
#include "socket_preload/program_use.hpp"

namespace socket_preload {

namespace {

// Whole messages of a stream, which have 60 KiB.
using Block = std::array<std::byte, std::size_t{120} << 10>;

// Returns this thread's buffer, which is made at its first copy; nullptr when there is no memory.
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
        errno = errno == ESPIPE ? EINVAL : errno;  // sendfile(2) has it for what is no file
        return -1;
    }
    const ssize_t done = send_file(socket, file, position, bytes);
    if (done > 0) {
        (void)lseek(file, position, SEEK_SET);
    }
    return done;
}

// Returns whether the pipe is ready for `events`. Where the call may wait, this does.
bool await_pipe(int pipe, short events, unsigned flags) {
    pollfd one{.fd = pipe, .events = events, .revents = 0};
    const bool waits = (flags & SPLICE_F_NONBLOCK) == 0 && (LIBC(fcntl)(pipe, F_GETFL) & O_NONBLOCK) == 0;
    const int ready = LIBC(poll)(&one, 1, waits ? -1 : 0);
    if (ready == 0) {
        errno = EAGAIN;
    }
    return ready > 0;
}

// The bytes are taken from the socket only when they are in the pipe, so that none are lost. A pipe that can
// be written to takes PIPE_BUF bytes at once.
ssize_t splice_from_socket(int socket, int pipe, std::size_t bytes, unsigned flags) {
    Block *const copies = block();
    if (copies == nullptr || !await_pipe(pipe, POLLOUT, flags)) {
        return -1;
    }
    const std::size_t most = std::min<std::size_t>(bytes, PIPE_BUF);
    const ssize_t here = received(socket, [&] { return rrecv(socket, copies->data(), most, MSG_PEEK); });
    const ssize_t gone = here > 0 ? LIBC(write)(pipe, copies->data(), static_cast<std::size_t>(here)) : here;
    if (gone > 0) {
        (void)rrecv(socket, nullptr, static_cast<std::size_t>(gone), MSG_TRUNC | MSG_DONTWAIT);
    }
    return gone;
}

// A pipe of this thread's, into which tee(2) copies what another pipe has, or none.
struct Copy {
    Copy() {
        int ends[2];
        if (LIBC(pipe2)(ends, O_CLOEXEC | O_NONBLOCK) == 0) {
            out = base::Fd{kept(ends[0])};
            in = base::Fd{kept(ends[1])};
        }
    }
    base::Fd out;
    base::Fd in;
};

// The bytes are taken from the pipe only when they are sent.
ssize_t splice_to_socket(int pipe, int socket, std::size_t bytes, unsigned flags) {
    static thread_local const Copy copy;
    Block *const copies = block();
    if (copies == nullptr || !copy.in) {
        errno = ENOMEM;
        return -1;
    }
    if (!await_pipe(pipe, POLLIN, flags)) {
        return -1;
    }
    const ssize_t teed = tee(pipe, copy.in.get(), std::min(bytes, copies->size()), SPLICE_F_NONBLOCK);
    const ssize_t here =
        teed > 0 ? LIBC(read)(copy.out.get(), copies->data(), static_cast<std::size_t>(teed)) : teed;
    if (here <= 0) {
        return here;
    }
    const ssize_t gone =
        sent(socket, [&] { return rwrite(socket, copies->data(), static_cast<std::size_t>(here)); });
    return gone > 0 ? LIBC(read)(pipe, copies->data(), static_cast<std::size_t>(gone)) : gone;
}

// A call of splice(2) asks for this.
struct Splice {
    bool is_from_socket;
    bool is_to_socket;
    int pipe;
    bool has_pipe_offset;
    bool has_socket_offset;
    unsigned flags;

    // Returns why the call of splice(2) is not possible, as an errno value, or 0.
    [[nodiscard]] int error() const {
        constexpr unsigned known = SPLICE_F_MOVE | SPLICE_F_NONBLOCK | SPLICE_F_MORE | SPLICE_F_GIFT;
        const bool has_pipe = !is_from_socket || !is_to_socket;
        const int access = LIBC(fcntl)(pipe, F_GETFL) & O_ACCMODE;
        if ((flags & ~known) != 0) {
            return EINVAL;
        }
        if (has_pipe && access == (is_from_socket ? O_RDONLY : O_WRONLY)) {
            return EBADF;
        }
        return has_pipe_offset ? ESPIPE : has_pipe && !has_socket_offset ? 0 : EINVAL;
    }
};

}  // namespace

}  // namespace socket_preload

INTERPOSED(4, sendfile)(int socket, int file, off_t *offset, size_t bytes) noexcept {
    if (!socket_preload::is_rsocket(socket)) {
        return LIBC(sendfile)(socket, file, offset, bytes);
    }
    return socket_preload::uncancelled(
        [&] { return socket_preload::send_file_at(socket, file, offset, bytes); });
}

// The same on machines whose file offsets have 64 bits.
static_assert(sizeof(off64_t) == sizeof(off_t));
EXPORTED [[gnu::alias("sendfile")]] ssize_t sendfile64(int socket, int file, off64_t *offset,
                                                       size_t bytes) noexcept;

INTERPOSED(6, splice)(int from, off64_t *from_offset, int to, off64_t *to_offset, size_t bytes,
                      unsigned flags) {
    const bool is_from = socket_preload::is_rsocket(from);
    const bool is_to = socket_preload::is_rsocket(to);
    if (!is_from && !is_to) {
        return LIBC(splice)(from, from_offset, to, to_offset, bytes, flags);
    }
    if (bytes == 0) {
        return 0;
    }
    const socket_preload::Splice asked{.is_from_socket = is_from,
                                       .is_to_socket = is_to,
                                       .pipe = is_from ? to : from,
                                       .has_pipe_offset = (is_from ? to_offset : from_offset) != nullptr,
                                       .has_socket_offset = (is_from ? from_offset : to_offset) != nullptr,
                                       .flags = flags};
    if (const int error = asked.error(); error != 0) {
        errno = error;
        return -1;
    }
    return is_from ? socket_preload::splice_from_socket(from, to, bytes, flags)
                   : socket_preload::splice_to_socket(from, to, bytes, flags);
}
