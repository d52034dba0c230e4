// SPDX-License-Identifier: BSD-3-Clause
// socket_preload/stdio: streams of stdio on rsockets. libc's own read and write by calls that cannot be
// interposed.
#include <rpma/rsocket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "socket_preload/bytes.hpp"
#include "socket_preload/descriptors.hpp"
#include "socket_preload/libc.hpp"

extern "C" {
// Behind _FORTIFY_SOURCE.
int __dprintf_chk(int fd, int flag, const char *format, ...);
int __vdprintf_chk(int fd, int flag, const char *format, va_list arguments);
}

using socket_preload::is_rsocket;
using socket_preload::received;
using socket_preload::sent;

namespace {

int fd_of(void *cookie) {
    return static_cast<int>(reinterpret_cast<std::intptr_t>(cookie));
}

// The program has closed the descriptor under the stream.
ssize_t closed() {
    errno = EBADF;
    return -1;
}

ssize_t read_cookie(void *cookie, char *bytes, std::size_t size) {
    int fd = fd_of(cookie);
    return is_rsocket(fd) ? received(fd, [&] { return rread(fd, bytes, size); }) : closed();
}

ssize_t write_to(int fd, const char *bytes, std::size_t size) {
    return is_rsocket(fd) ? sent(fd, [&] { return rwrite(fd, bytes, size); }) : closed();
}

// As fopencookie(3) wants it: 0 is a failure.
ssize_t write_cookie(void *cookie, const char *bytes, std::size_t size) {
    const ssize_t written = write_to(fd_of(cookie), bytes, size);
    return written < 0 ? 0 : written;
}

int close_cookie(void *cookie) {
    return socket_preload::close_any(fd_of(cookie));
}

int print(int fd, const char *format, va_list arguments) {
    char *text = nullptr;
    const int size = vasprintf(&text, format, arguments);
    const std::unique_ptr<char, decltype(&std::free)> owned{size >= 0 ? text : nullptr, &std::free};
    for (int done = 0; done < size;) {
        const ssize_t more = write_to(fd, text + done, static_cast<std::size_t>(size - done));
        if (more < 0) {
            return -1;
        }
        done += static_cast<int>(more);
    }
    return size;
}

bool is_any_rsocket(int fd) {
    return is_rsocket(fd);
}

}  // namespace

INTERPOSED FILE *fdopen(int fd, const char *mode) noexcept {
    if (!is_any_rsocket(fd)) {
        return LIBC(fdopen)(fd, mode);
    }
    constexpr cookie_io_functions_t calls{
        .read = read_cookie, .write = write_cookie, .seek = nullptr, .close = close_cookie};
    FILE *const file = fopencookie(reinterpret_cast<void *>(std::intptr_t{fd}), mode, calls);
    if (file != nullptr) {
        file->_fileno = fd;  // for fileno(3); the functions above are called all the same
    }
    return file;
}

INTERPOSED int vdprintf(int fd, const char *format, va_list arguments) {
    return is_any_rsocket(fd) ? print(fd, format, arguments) : LIBC(vdprintf)(fd, format, arguments);
}

INTERPOSED int dprintf(int fd, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const int printed = vdprintf(fd, format, arguments);
    va_end(arguments);
    return printed;
}

INTERPOSED int __vdprintf_chk(int fd, int flag, const char *format, va_list arguments) {
    return is_any_rsocket(fd) ? print(fd, format, arguments)
                              : LIBC(__vdprintf_chk)(fd, flag, format, arguments);
}

INTERPOSED int __dprintf_chk(int fd, int flag, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const int printed = __vdprintf_chk(fd, flag, format, arguments);
    va_end(arguments);
    return printed;
}
