// SPDX-License-Identifier: BSD-3-Clause
// carry_preload/hand_over: which sockets go to others.
#include "carry_preload/hand_over.hpp"

#include <aio.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <spawn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/fork.hpp"
#include "base/interpose.hpp"
#include "carry/waits.hpp"

using carry::Socket;
using carry::sockets;

namespace carry_preload {

void hand_over(Socket &socket, int fd) {
    const int error = errno;
    socket.give_away(fd);
    errno = error;
}

bool keep_in_tcp(Socket &socket, int fd) {
    const int error = errno;
    const bool is_kernels = socket.is_kernels(fd);
    errno = error;
    return is_kernels;
}

void hand_over_as(Socket &socket, int fd, int number) {
    if (number == STDIN_FILENO) {
        hand_over(socket, fd);
    } else if (!keep_in_tcp(socket, fd)) {
        socket.pass_on();
    }
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
                hand_over(*socket, fd);
                socket->before_shutdown();
                socket->pass_on();
            }
        }
    }
}

namespace {
std::atomic<bool> keeps_all{false};
}  // namespace

void keep_all_in_tcp() {
    keeps_all = true;
    sockets.make_no_own_calls();
}

void hand_over_to_others() {
    sockets.for_all([](int fd, Socket &socket) {
        if (!keep_in_tcp(socket, fd) && !socket.is_of_one_process()) {
            socket.pass_on();
        }
    });
}

bool keeps_all_in_tcp() {
    return keeps_all.load(std::memory_order_relaxed);
}

bool is_pipe(int fd) {
    struct stat status{};
    return fstat(fd, &status) == 0 && S_ISFIFO(status.st_mode);
}

// The program may be one that this library does not see, so its sockets are the kernel's. What is in a ring
// is read by a process that keeps the socket; most programs get a socket only because nobody has closed it.
// When the last of these processes closes the socket, and has not read all, the connection is reset.
void hand_over_to_program(bool keeps) {
    if (!keeps) {
        sockets.reap();
    }
    sockets.for_all([keeps](int fd, Socket &socket) {
        const int flags = LIBC(fcntl)(fd, F_GETFD);
        if (flags < 0 || (flags & FD_CLOEXEC) != 0) {
            return;
        }
        if (!keeps && socket.is_read_here()) {
            hand_over(socket, fd);
        } else {
            hand_over_as(socket, fd, fd);
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
        hand_over_to_program(is_in_parents_memory_);
        if (!is_in_parents_memory_) {
            carry::epolls::before_exec();
        }
        sockets.leave();
    }
    ~Executing() {
        const int error = errno;
        sockets.stay();
        if (!is_in_parents_memory_) {
            carry::epolls::after_failed_exec();
        }
        errno = error;
    }
    Executing(const Executing &) = delete;
    Executing &operator=(const Executing &) = delete;

private:
    const bool is_in_parents_memory_ = base::is_in_parents_memory();
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

INTERPOSED(5, execveat)(int folder, const char *path, char *const *arguments, char *const *environment,
                        int flags) noexcept {
    const Executing executing;
    return LIBC(execveat)(folder, path, arguments, environment, flags);
}

INTERPOSED(6, posix_spawn)(pid_t *child, const char *path, const posix_spawn_file_actions_t *actions,
                           const posix_spawnattr_t *attributes, char *const *arguments,
                           char *const *environment) {
    hand_over_to_program(true);
    return LIBC(posix_spawn)(child, path, actions, attributes, arguments, environment);
}

INTERPOSED(6, posix_spawnp)(pid_t *child, const char *file, const posix_spawn_file_actions_t *actions,
                            const posix_spawnattr_t *attributes, char *const *arguments,
                            char *const *environment) {
    hand_over_to_program(true);
    return LIBC(posix_spawnp)(child, file, actions, attributes, arguments, environment);
}

namespace {

// The headers of a glibc before 2.39 do not have these. A program may look for them at run time.
template <base::Name name>
int spawn_with_descriptor(int *child, const char *program, const posix_spawn_file_actions_t *actions,
                          const posix_spawnattr_t *attributes, char *const *arguments,
                          char *const *environment) {
    static auto *const spawn =
        reinterpret_cast<decltype(&spawn_with_descriptor<name>)>(dlsym(RTLD_NEXT, name.characters));
    if (spawn == nullptr) {
        return ENOSYS;
    }
    hand_over_to_program(true);
    return base::called_by_program(
        [&] { return spawn(child, program, actions, attributes, arguments, environment); });
}

}  // namespace

NAMED(int, pidfd_spawn, int *child, const char *path, const posix_spawn_file_actions_t *actions,
      const posix_spawnattr_t *attributes, char *const *arguments, char *const *environment) {
    return spawn_with_descriptor<"pidfd_spawn">(child, path, actions, attributes, arguments, environment);
}

NAMED(int, pidfd_spawnp, int *child, const char *file, const posix_spawn_file_actions_t *actions,
      const posix_spawnattr_t *attributes, char *const *arguments, char *const *environment) {
    return spawn_with_descriptor<"pidfd_spawnp">(child, file, actions, attributes, arguments, environment);
}

// The program gets the socket under the number, also where this process's descriptor is closed for it.
INTERPOSED(3, posix_spawn_file_actions_adddup2)(posix_spawn_file_actions_t *actions, int fd,
                                                int number) noexcept {
    if (Socket *const socket = sockets.at(fd); socket != nullptr) {
        carry_preload::hand_over_as(*socket, fd, number);
        socket->before_shutdown();
    }
    return LIBC(posix_spawn_file_actions_adddup2)(actions, fd, number);
}

INTERPOSED(1, system)(const char *command) {
    hand_over_to_program(true);
    return LIBC(system)(command);
}

INTERPOSED(2, popen)(const char *command, const char *type) {
    hand_over_to_program(true);
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

void used_by_libc(const aiocb *request, bool reads) {
    Socket *const socket = request != nullptr ? sockets.at(request->aio_fildes) : nullptr;
    if (socket != nullptr && reads) {
        carry_preload::hand_over(*socket, request->aio_fildes);
    } else if (socket != nullptr) {
        (void)carry_preload::keep_in_tcp(*socket, request->aio_fildes);
    }
}

}  // namespace

INTERPOSED(1, aio_read)(aiocb *request) noexcept {
    used_by_libc(request, true);
    return LIBC(aio_read)(request);
}

INTERPOSED(1, aio_write)(aiocb *request) noexcept {
    used_by_libc(request, false);
    return LIBC(aio_write)(request);
}

INTERPOSED(4, lio_listio)(int mode, aiocb *const *requests, int count, sigevent *told) noexcept {
    for (int i = 0; i < count; ++i) {
        used_by_libc(requests[i], requests[i] != nullptr && requests[i]->aio_lio_opcode == LIO_READ);
    }
    return LIBC(lio_listio)(mode, requests, count, told);
}

static_assert(sizeof(aiocb64) == sizeof(aiocb));
EXPORTED [[gnu::alias("aio_read")]] int aio_read64(aiocb64 *request) noexcept;
EXPORTED [[gnu::alias("aio_write")]] int aio_write64(aiocb64 *request) noexcept;
EXPORTED [[gnu::alias("lio_listio")]] int lio_listio64(int mode, aiocb64 *const *requests, int count,
                                                       sigevent *told) noexcept;
