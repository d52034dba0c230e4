// SPDX-License-Identifier: BSD-3-Clause
// carry_preload/files: sendfile, splice, and libc's streams on a socket.
#include <fcntl.h>
#include <poll.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <span>

#include "base/interpose.hpp"
#include "carry/sockets.hpp"
#include "carry_preload/fresh.hpp"
#include "carry_preload/hand_over.hpp"

using carry::Socket;
using carry::sockets;

extern "C" {
// Behind _FORTIFY_SOURCE.
int __dprintf_chk(int fd, int flag, const char *format, ...);
int __vdprintf_chk(int fd, int flag, const char *format, va_list arguments);
}

namespace {

// Returns nothing when the caller has to look again: there is no link any more, or another thread was faster.
// The bytes leave the socket before they are in the pipe, because a thread whose call of the kernel's began
// before there was a link may take those that a look has found.
std::optional<ssize_t> splice_from_ring(Socket &socket, int fd, int pipe, std::size_t bytes, unsigned flags) {
    std::array<char, PIPE_BUF> copies;
    pollfd room{.fd = pipe, .events = POLLOUT, .revents = 0};
    const bool waits = (flags & SPLICE_F_NONBLOCK) == 0 && (LIBC(fcntl)(pipe, F_GETFL) & O_NONBLOCK) == 0;
    if (const int ready = LIBC(poll)(&room, 1, waits ? -1 : 0); ready <= 0) {
        errno = ready == 0 ? EAGAIN : errno;
        return -1;
    }
    if ((room.revents & POLLERR) != 0) {  // it has no reader
        (void)raise(SIGPIPE);
        errno = EPIPE;
        return -1;
    }
    bool is_kernels = false;
    const auto receive = [&](std::size_t size, int how) {
        const iovec part{.iov_base = copies.data(), .iov_len = size};
        return socket.receive(fd, carry::Parts{&part, 1}, how, [&is_kernels] {
            is_kernels = true;
            return ssize_t{0};
        });
    };
    if (const ssize_t first = receive(1, MSG_PEEK); first <= 0) {  // waits as long as the socket does
        return is_kernels ? std::nullopt : std::optional{first};
    }
    return socket.alone([&]() -> std::optional<ssize_t> {
        if (LIBC(poll)(&room, 1, 0) <= 0 || (room.revents & POLLERR) != 0) {
            return std::nullopt;
        }
        const ssize_t taken = receive(std::min(bytes, copies.size()), MSG_DONTWAIT);
        if (taken <= 0) {
            return taken == 0 || errno == EAGAIN ? std::nullopt : std::optional{taken};
        }
        // Another writer may have filled the pipe since; the call waits then. If the pipe's reader closes it
        // now, the bytes are lost, as they are when it closes it a moment later.
        ssize_t gone = -1;
        while ((gone = LIBC(write)(pipe, copies.data(), static_cast<std::size_t>(taken))) < 0 &&
               (errno == EAGAIN || errno == EINTR)) {
            (void)LIBC(poll)(&room, 1, -1);
        }
        return gone >= 0 || errno == EPIPE ? taken : gone;
    });
}

// A copy of so many bytes in the ring takes less time than a turn to TCP and back.
constexpr std::size_t copied_bytes = std::size_t{16} << 10;

// Sends bytes of a file as send(2) does. Returns nullopt where the kernel has to say what sendfile(2) does.
std::optional<ssize_t> send_copy(Socket &socket, int fd, int file, off_t &offset, std::size_t bytes) {
    std::array<std::byte, copied_bytes> copy;
    const int error = errno;
    struct stat status{};
    const bool has_bytes =
        fstat(file, &status) == 0 && S_ISREG(status.st_mode) && offset >= 0 && offset < status.st_size;
    const ssize_t found = has_bytes ? pread(file, copy.data(), bytes, offset) : -1;
    errno = error;
    if (found <= 0) {
        return std::nullopt;
    }
    const iovec part{.iov_base = copy.data(), .iov_len = static_cast<std::size_t>(found)};
    const ssize_t sent = socket.send(fd, carry::Parts{&part, 1}, 0,
                                     [&] { return LIBC(send)(fd, part.iov_base, part.iov_len, 0); });
    offset += std::max<ssize_t>(sent, 0);
    return sent;
}

// Copies the bytes of a file that sendfile(2) is about to send, and returns how many.
std::size_t look_at_file(int file, const off_t *offset, std::size_t bytes, std::span<std::byte> room) {
    const int error = errno;
    const off_t from = offset != nullptr ? *offset : lseek(file, 0, SEEK_CUR);
    const ssize_t found = from >= 0 ? pread(file, room.data(), std::min(bytes, room.size()), from) : -1;
    errno = error;
    return static_cast<std::size_t>(std::max<ssize_t>(found, 0));
}

// The same of a pipe that splice(2) is about to empty.
std::size_t look_at_pipe(int pipe, std::size_t bytes, std::span<std::byte> room) {
    const int error = errno;
    std::array<int, 2> copy{-1, -1};
    ssize_t found = -1;
    if (LIBC(pipe2)(copy.data(), O_CLOEXEC | O_NONBLOCK) == 0) {
        found = tee(pipe, copy[1], std::min(bytes, room.size()), SPLICE_F_NONBLOCK);
        found = found > 0 ? LIBC(read)(copy[0], room.data(), room.size()) : found;
        (void)LIBC(close)(copy[0]);
        (void)LIBC(close)(copy[1]);
    }
    errno = error;
    return static_cast<std::size_t>(std::max<ssize_t>(found, 0));
}

int print(int fd, const char *format, va_list arguments) {
    char *text = nullptr;
    const int size = vasprintf(&text, format, arguments);
    const std::unique_ptr<char, decltype(&std::free)> owned{size >= 0 ? text : nullptr, &std::free};
    for (int done = 0; done < size;) {
        const ssize_t more = write(fd, text + done, static_cast<std::size_t>(size - done));
        if (more < 0) {
            return -1;
        }
        done += static_cast<int>(more);
    }
    return size;
}

}  // namespace

INTERPOSED(4, sendfile)(int to, int file, off_t *offset, size_t bytes) noexcept {
    const auto by_kernel = [&] { return LIBC(sendfile)(to, file, offset, bytes); };
    Socket *const socket = sockets.at(to);
    if (socket != nullptr && socket->is_linked() && bytes <= copied_bytes && offset != nullptr) {
        if (const std::optional<ssize_t> sent = send_copy(*socket, to, file, *offset, bytes)) {
            return *sent;
        }
    }
    const auto look = [&](std::span<std::byte> room) { return look_at_file(file, offset, bytes, room); };
    return socket != nullptr ? socket->send_by_kernel(to, by_kernel, look) : by_kernel();
}

static_assert(sizeof(off64_t) == sizeof(off_t));
EXPORTED [[gnu::alias("sendfile")]] ssize_t sendfile64(int to, int file, off64_t *offset,
                                                       size_t bytes) noexcept;

INTERPOSED(6, splice)(int from, off64_t *from_offset, int to, off64_t *to_offset, size_t bytes,
                      unsigned flags) {
    const auto by_kernel = [&] { return LIBC(splice)(from, from_offset, to, to_offset, bytes, flags); };
    if (Socket *const socket = sockets.at(to); socket != nullptr) {
        return socket->send_by_kernel(
            to, by_kernel, [&](std::span<std::byte> room) { return look_at_pipe(from, bytes, room); });
    }
    if (sockets.at(from) == nullptr) {
        return by_kernel();
    }
    constexpr unsigned known = SPLICE_F_MOVE | SPLICE_F_NONBLOCK | SPLICE_F_MORE | SPLICE_F_GIFT;
    const bool is_written = (LIBC(fcntl)(to, F_GETFL) & O_ACCMODE) != O_RDONLY;
    const bool is_refused = bytes == 0 || from_offset != nullptr || to_offset != nullptr ||
                            (flags & ~known) != 0 || !is_written || !carry_preload::is_pipe(to);
    while (Socket *const socket = sockets.at(from)) {
        ssize_t moved = 0;
        if (socket->receive_by_kernel(from, moved, by_kernel)) {
            return moved;
        }
        if (is_refused) {
            return by_kernel();  // which says why not
        }
        if (const auto gone = splice_from_ring(*socket, from, to, bytes, flags)) {
            return *gone;
        }
    }
    return by_kernel();  // another thread has closed the number
}

// libc's streams read and write by calls that cannot be interposed.
INTERPOSED(2, fdopen)(int fd, const char *mode) noexcept {
    if (Socket *const socket = sockets.at(fd); socket != nullptr) {
        if (std::strpbrk(mode, "r+") != nullptr) {
            carry_preload::hand_over(*socket, fd);
        } else {
            (void)carry_preload::keep_in_tcp(*socket, fd);
        }
    }
    return LIBC(fdopen)(fd, mode);
}

// The library sends what the stream still has before it takes the number away.
INTERPOSED(1, fclose)(FILE *stream) {
    const auto by_libc = [stream] { return LIBC(fclose)(stream); };
    const int fd = fileno(stream);
    if (sockets.at(fd) == nullptr) {
        return by_libc();
    }
    (void)std::fflush(stream);
    return carry_preload::close_any(fd, by_libc);
}

INTERPOSED(3, vdprintf)(int fd, const char *format, va_list arguments) {
    return sockets.at(fd) != nullptr ? print(fd, format, arguments) : LIBC(vdprintf)(fd, format, arguments);
}

NAMED(int, dprintf, int fd, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const int printed = vdprintf(fd, format, arguments);
    va_end(arguments);
    return printed;
}

INTERPOSED(4, __vdprintf_chk)(int fd, int flag, const char *format, va_list arguments) {
    return sockets.at(fd) != nullptr ? print(fd, format, arguments)
                                     : LIBC(__vdprintf_chk)(fd, flag, format, arguments);
}

NAMED(int, __dprintf_chk, int fd, int flag, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const int printed = __vdprintf_chk(fd, flag, format, arguments);
    va_end(arguments);
    return printed;
}
