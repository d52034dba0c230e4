// SPDX-License-Identifier: BSD-3-Clause
// socket_preload/stdio: streams of stdio on rsockets. libc's own read and write by calls that cannot be
// interposed.
#include "socket_preload/stdio.hpp"

#include <rpma/rsocket.h>
#include <stdio_ext.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <list>
#include <memory>
#include <new>

#include "base/at_exit.hpp"
#include "base/fork.hpp"
#include "base/mutex.hpp"
#include "socket_preload/bytes.hpp"
#include "socket_preload/descriptor_calls.hpp"
#include "socket_preload/libc.hpp"
#include "socket_preload/program_use.hpp"

extern "C" {
// Behind _FORTIFY_SOURCE.
int __dprintf_chk(int fd, int flag, const char *format, ...);
int __vdprintf_chk(int fd, int flag, const char *format, va_list arguments);
}

using socket_preload::is_rsocket;
using socket_preload::received;
using socket_preload::sent;

namespace {

struct Stream {
    int fd;
    FILE *file;
};

constinit base::LastingMutex opening;
const base::HeldWhileForking<opening> whole_after_forks{base::ForkLevel::SocketPreloadStreams};

// Never destroyed: other threads may use streams when main() returns.
std::list<Stream> &streams() REQUIRES(opening) {
    static auto &open = *new std::list<Stream>;
    return open;
}

// Returns a stream of the descriptor, or nullptr with errno set.
FILE *opened(int fd, const char *mode, const cookie_io_functions_t &calls) {
    const base::Lock lock{opening};
    try {
        Stream &stream = streams().emplace_front(Stream{.fd = fd, .file = nullptr});
        stream.file = fopencookie(&stream, mode, calls);
        if (stream.file == nullptr) {
            streams().pop_front();
            return nullptr;
        }
        stream.file->_fileno = fd;  // for fileno(3); the functions are called all the same
        return stream.file;
    } catch (const std::bad_alloc &) {
        errno = ENOMEM;
        return nullptr;
    }
}

// Flushes the streams while there are still rsockets, because libc flushes later. A stream that another
// thread uses is left to that thread.
void flush_streams() {
    if (!opening.try_lock()) {
        return;
    }
    const base::Lock lock{opening, base::adopt};
    for (const Stream &stream : streams()) {
        if (ftrylockfile(stream.file) == 0) {
            (void)fflush_unlocked(stream.file);
            funlockfile(stream.file);
        }
    }
}
const base::AtExit<flush_streams> at_exit;

int fd_of(void *cookie) {
    return static_cast<const Stream *>(cookie)->fd;
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

// Returns 0 for a failure, as fopencookie(3) wants it.
ssize_t write_cookie(void *cookie, const char *bytes, std::size_t size) {
    const ssize_t written = write_to(fd_of(cookie), bytes, size);
    return written < 0 ? 0 : written;
}

int close_cookie(void *cookie) {
    const int fd = fd_of(cookie);
    {
        const base::Lock lock{opening};
        std::erase_if(streams(), [&](const Stream &stream) { return &stream == cookie; });
    }
    return socket_preload::close_any(fd);
}

bool is_any_rsocket(int fd) {
    return is_rsocket(fd);
}

// The streams that stand for stdin, stdout and stderr. The program may use their numbers for other
// descriptors.
ssize_t read_standard(void *cookie, char *bytes, std::size_t size) {
    int fd = fd_of(cookie);
    return is_rsocket(fd) ? received(fd, [&] { return rread(fd, bytes, size); })
                          : LIBC(read)(fd, bytes, size);
}

ssize_t write_standard(void *cookie, const char *bytes, std::size_t size) {
    const int fd = fd_of(cookie);
    const ssize_t written = is_any_rsocket(fd) ? write_to(fd, bytes, size) : LIBC(write)(fd, bytes, size);
    return written < 0 ? 0 : written;
}

// Gives `to` the way in which `from` keeps bytes, and the bytes.
void hand_over(FILE *from, FILE *to) {
    const bool keeps_nothing = __fbufsize(from) == 1 || from == stderr;
    (void)setvbuf(to, nullptr, keeps_nothing ? _IONBF : __flbf(from) != 0 ? _IOLBF : _IOFBF, BUFSIZ);
    if (const std::size_t unwritten = __fpending(from); unwritten != 0) {
        (void)fwrite(from->_IO_write_base, 1, unwritten, to);
        __fpurge(from);
    }
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

}  // namespace

void socket_preload::begin_standard_stream(int number) {
    static constinit std::array<std::atomic<bool>, 3> began{};
    if (number < 0 || number >= static_cast<int>(began.size()) ||
        began[static_cast<std::size_t>(number)].exchange(true)) {
        return;
    }
    constexpr cookie_io_functions_t calls{
        .read = read_standard, .write = write_standard, .seek = nullptr, .close = close_cookie};
    FILE *&standard = number == STDIN_FILENO ? stdin : number == STDOUT_FILENO ? stdout : stderr;
    if (FILE *const file = opened(number, number == STDIN_FILENO ? "r" : "w", calls); file != nullptr) {
        hand_over(standard, file);
        standard = file;
    }
}

INTERPOSED(2, fdopen)(int fd, const char *mode) noexcept {
    if (!is_any_rsocket(fd)) {
        return LIBC(fdopen)(fd, mode);
    }
    constexpr cookie_io_functions_t calls{
        .read = read_cookie, .write = write_cookie, .seek = nullptr, .close = close_cookie};
    return socket_preload::uncancelled([&] { return opened(fd, mode, calls); });
}

INTERPOSED(3, vdprintf)(int fd, const char *format, va_list arguments) {
    return is_any_rsocket(fd) ? print(fd, format, arguments) : LIBC(vdprintf)(fd, format, arguments);
}

EXPORTED int dprintf(int fd, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const int printed = vdprintf(fd, format, arguments);
    va_end(arguments);
    return printed;
}

INTERPOSED(4, __vdprintf_chk)(int fd, int flag, const char *format, va_list arguments) {
    return is_any_rsocket(fd) ? print(fd, format, arguments)
                              : LIBC(__vdprintf_chk)(fd, flag, format, arguments);
}

EXPORTED int __dprintf_chk(int fd, int flag, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const int printed = __vdprintf_chk(fd, flag, format, arguments);
    va_end(arguments);
    return printed;
}
