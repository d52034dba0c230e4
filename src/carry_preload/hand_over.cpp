// SPDX-License-Identifier: BSD-3-Clause
// carry_preload/hand_over: which sockets go to others.
#include "carry_preload/hand_over.hpp"

#include <aio.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/interpose.hpp"
#include "base/log.hpp"

using carry::Socket;
using carry::sockets;

namespace carry_preload {

bool hand_over(Socket &socket, int fd) {
    const int error = errno;
    const bool is_kernels = socket.is_kernels(fd);
    if (!is_kernels) {
        BASE_LOG(Error,
                 "descriptor %d: %zu bytes that came through memory are not read, and cannot be handed over",
                 fd, socket.unread());
    }
    errno = error;
    return is_kernels;
}

void hand_over_rights(const msghdr &message) {
    auto *const whole = const_cast<msghdr *>(&message);  // not written to
    for (cmsghdr *part = CMSG_FIRSTHDR(whole); part != nullptr; part = CMSG_NXTHDR(whole, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        for (std::size_t place = 0; place + sizeof(int) <= part->cmsg_len - CMSG_LEN(0);
             place += sizeof(int)) {
            int fd = -1;
            std::memcpy(&fd, CMSG_DATA(part) + place, sizeof(fd));
            if (Socket *const socket = sockets.at(fd); socket != nullptr) {
                (void)hand_over(*socket, fd);
                socket->before_shutdown();
                socket->pass_on();
            }
        }
    }
}

bool is_pipe(int fd) {
    struct stat status{};
    return fstat(fd, &status) == 0 && S_ISFIFO(status.st_mode);
}

// The program may be one that this library does not see, so its sockets are the kernel's. A child of this
// process shares them with it, and reads what is in a ring itself.
void hand_over_to_program() {
    sockets.for_all([](int fd, Socket &socket) {
        const int flags = LIBC(fcntl)(fd, F_GETFD);
        if (flags < 0 || (flags & FD_CLOEXEC) != 0) {
            return;
        }
        if (fd <= STDERR_FILENO || socket.is_of_one_process()) {
            (void)hand_over(socket, fd);
        } else {
            (void)socket.is_kernels(fd);
        }
        // A program does not shut down what it has got without being told.
        if (fd <= STDERR_FILENO) {
            socket.before_shutdown();
        }
    });
}

}  // namespace carry_preload

using carry_preload::hand_over_to_program;

namespace {

// The process executes another program while one lives. A call that returns has failed.
class Executing {
public:
    Executing() {
        hand_over_to_program();
        sockets.leave();
    }
    ~Executing() {
        const int error = errno;
        sockets.stay();
        errno = error;
    }
    Executing(const Executing &) = delete;
    Executing &operator=(const Executing &) = delete;
};

}  // namespace

INTERPOSED(3, execve)(const char *path, char *const *arguments, char *const *environment) noexcept {
    const Executing executing;
    return LIBC(execve)(path, arguments, environment);
}

INTERPOSED(2, execv)(const char *path, char *const *arguments) noexcept {
    const Executing executing;
    return LIBC(execv)(path, arguments);
}

INTERPOSED(2, execvp)(const char *file, char *const *arguments) noexcept {
    const Executing executing;
    return LIBC(execvp)(file, arguments);
}

INTERPOSED(3, execvpe)(const char *file, char *const *arguments, char *const *environment) noexcept {
    const Executing executing;
    return LIBC(execvpe)(file, arguments, environment);
}

INTERPOSED(3, fexecve)(int fd, char *const *arguments, char *const *environment) noexcept {
    const Executing executing;
    return LIBC(fexecve)(fd, arguments, environment);
}

INTERPOSED(6, posix_spawn)(pid_t *child, const char *path, const posix_spawn_file_actions_t *actions,
                           const posix_spawnattr_t *attributes, char *const *arguments,
                           char *const *environment) {
    hand_over_to_program();
    return LIBC(posix_spawn)(child, path, actions, attributes, arguments, environment);
}

INTERPOSED(6, posix_spawnp)(pid_t *child, const char *file, const posix_spawn_file_actions_t *actions,
                            const posix_spawnattr_t *attributes, char *const *arguments,
                            char *const *environment) {
    hand_over_to_program();
    return LIBC(posix_spawnp)(child, file, actions, attributes, arguments, environment);
}

INTERPOSED(1, system)(const char *command) {
    hand_over_to_program();
    return LIBC(system)(command);
}

INTERPOSED(2, popen)(const char *command, const char *type) {
    hand_over_to_program();
    return LIBC(popen)(command, type);
}

namespace {

constexpr std::size_t most_words = 1024;
using Words = std::array<char *, most_words>;

// The words of execl(3) and its like: up to a null pointer. Returns false when there are too many.
bool take_words(const char *first, va_list rest, Words &words) {
    words[0] = const_cast<char *>(first);
    std::size_t count = 0;
    while (words[count] != nullptr) {
        if (++count == most_words) {
            break;
        }
        words[count] = va_arg(rest, char *);
    }
    if (count == most_words) {
        errno = E2BIG;
    }
    return count != most_words;
}

}  // namespace

NAMED(int, execl, const char *path, const char *first, ...) {
    Words words;
    va_list rest;
    va_start(rest, first);
    const bool fits = take_words(first, rest, words);
    va_end(rest);
    return fits ? execv(path, words.data()) : -1;
}

NAMED(int, execlp, const char *file, const char *first, ...) {
    Words words;
    va_list rest;
    va_start(rest, first);
    const bool fits = take_words(first, rest, words);
    va_end(rest);
    return fits ? execvp(file, words.data()) : -1;
}

NAMED(int, execle, const char *path, const char *first, ...) {
    Words words;
    va_list rest;
    va_start(rest, first);
    const bool fits = take_words(first, rest, words);
    char *const *const environment = fits ? va_arg(rest, char *const *) : nullptr;
    va_end(rest);
    return fits ? execve(path, words.data(), environment) : -1;
}

// ---- libc's own threads read and write for these ----

namespace {

int used_by_libc(const aiocb *request) {
    if (request != nullptr) {
        if (Socket *const socket = sockets.at(request->aio_fildes); socket != nullptr) {
            (void)carry_preload::hand_over(*socket, request->aio_fildes);
        }
    }
    return 0;
}

}  // namespace

INTERPOSED(1, aio_read)(aiocb *request) noexcept {
    used_by_libc(request);
    return LIBC(aio_read)(request);
}

INTERPOSED(1, aio_write)(aiocb *request) noexcept {
    used_by_libc(request);
    return LIBC(aio_write)(request);
}

INTERPOSED(4, lio_listio)(int mode, aiocb *const *requests, int count, sigevent *told) noexcept {
    for (int i = 0; i < count; ++i) {
        used_by_libc(requests[i]);
    }
    return LIBC(lio_listio)(mode, requests, count, told);
}

static_assert(sizeof(aiocb64) == sizeof(aiocb));
EXPORTED [[gnu::alias("aio_read")]] int aio_read64(aiocb64 *request) noexcept;
EXPORTED [[gnu::alias("aio_write")]] int aio_write64(aiocb64 *request) noexcept;
EXPORTED [[gnu::alias("lio_listio")]] int lio_listio64(int mode, aiocb64 *const *requests, int count,
                                                       sigevent *told) noexcept;
