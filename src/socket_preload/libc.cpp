// SPDX-License-Identifier: BSD-3-Clause
// socket_preload/libc: the functions of libc as the rooms below reach them, past the functions that the
// program's calls reach.
#include "socket_preload/libc.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <optional>
#include <utility>

#include "rsocket/call.hpp"
#include "socket_preload/descriptor_kinds.hpp"
#include "socket_preload/reuse.hpp"

namespace socket_preload {

namespace {

constexpr rlim_t kept_numbers = 256;  // at the end of those that the process may have

// These are copies, because a handler may leave a wait, and what lives in it, by siglongjmp(3).
thread_local constinit ForProgram::Next next_for_program;
// Says what reaches this thread in a sleep of the wait that it is in.
struct Lets {
    std::optional<sigset_t> mask;
    int cancelling = PTHREAD_CANCEL_DISABLE;
};
thread_local constinit Lets sleep_lets;

// Looked for now: a handler of a signal that an instruction raises calls it.
[[maybe_unused]] auto *const system_call = LIBC(syscall);

// Returns whether the next descriptor of this kind is the program's.
bool is_for_program(ForProgram::Descriptor descriptor) {
    return next_for_program.descriptor == descriptor;
}

// Returns whether an accepted socket, made with these flags, is the program's.
bool is_accepted_for_program(int flags) {
    return is_for_program(ForProgram::Descriptor::Accepted) && (flags & SOCK_CLOEXEC) == 0;
}

int close_on_exec_of_program() {
    return next_for_program.closes_on_exec ? SOCK_CLOEXEC : 0;
}

// Makes the call in which the thread sleeps, with the mask of the wait or nullptr. What the wait lets through
// is not there meanwhile: neither a handler, nor its child, nor the program after siglongjmp(3) is in this
// wait.
template <typename Call>
int asleep(Call call) {
    const Lets lets = std::exchange(sleep_lets, {});
    const int result = [&] {
        const base::Cancelling as_the_program_wants{lets.cancelling};
        return call(lets.mask ? &*lets.mask : nullptr);
    }();
    sleep_lets = lets;
    return result;
}

// Takes the descriptor that a room has made. A call that made none may be repeated.
int taken(int fd, bool is_programs) {
    if (!is_programs) {
        return kept(fd);
    }
    if (fd >= 0) {
        next_for_program = {};
    }
    return fresh(fd);
}

}  // namespace

int kept(int fd) {
    if (fd < 0) {
        return fd;
    }
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return descriptors.set_if_made(fd, Kind::Own);
    }
    const auto most = std::min<rlim_t>(limit.rlim_cur, DescriptorKinds::most);
    const int error = errno;
    const int high = most > 2 * kept_numbers
                         ? LIBC(fcntl)(fd, F_DUPFD_CLOEXEC, static_cast<int>(most - kept_numbers))
                         : -1;
    if (high < 0) {
        errno = error;
        return descriptors.set_if_made(fd, Kind::Own);
    }
    uncancelled([fd] { return LIBC(close)(fd); });
    return descriptors.set_if_made(high, Kind::Own);
}

int option_of(int fd, int name) {
    int value = -1;
    socklen_t length = sizeof(value);
    return LIBC(getsockopt)(fd, SOL_SOCKET, name, &value, &length) == 0 ? value : -1;
}

CancelledInSleep::CancelledInSleep() : not_now_{(pthread_testcancel(), PTHREAD_CANCEL_DISABLE)} {
    sleep_lets.cancelling = not_now_.before();
}

CancelledInSleep::~CancelledInSleep() {
    sleep_lets.cancelling = PTHREAD_CANCEL_DISABLE;
}

SleepMask::SleepMask(const sigset_t *mask) : is_given_{mask != nullptr} {
    sleep_lets.mask = mask != nullptr ? *mask : held_.before();
}

SleepMask::~SleepMask() {
    sleep_lets.mask.reset();
}

int SleepMask::nothing_found() const {
    constexpr timespec at_once{};
    return is_given_ ? asleep([&](const sigset_t *mask) { return LIBC(ppoll)(nullptr, 0, &at_once, mask); })
                     : 0;
}

ForProgram::ForProgram(Descriptor descriptor, bool closes_on_exec)
    : outer_{std::exchange(next_for_program, Next{descriptor, closes_on_exec})} {}

ForProgram::~ForProgram() {
    next_for_program = outer_;
}

}  // namespace socket_preload

using base::mode_of;
using socket_preload::asleep;
using socket_preload::close_on_exec_of_program;
using socket_preload::descriptors;
using socket_preload::ForProgram;
using socket_preload::is_accepted_for_program;
using socket_preload::is_for_program;
using socket_preload::kept;
using socket_preload::Kind;
using socket_preload::taken;

extern "C" {

// ---- that make a descriptor ----

int __wrap_socket(int domain, int type, int protocol) {
    const bool is_internet = domain == AF_INET || domain == AF_INET6;
    const bool is_stream = (type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)) == SOCK_STREAM;
    const bool is_accepted = is_stream && is_accepted_for_program(type);
    const int more = is_accepted ? close_on_exec_of_program() : 0;
    return taken(LIBC(socket)(domain, type | more, protocol),
                 is_internet && (is_accepted || is_for_program(ForProgram::Descriptor::Socket)));
}

int __wrap_accept4(int fd, sockaddr *address, socklen_t *length, int flags) {
    const bool is_programs = is_accepted_for_program(flags);
    const int more = is_programs ? close_on_exec_of_program() : 0;
    return taken(LIBC(accept4)(fd, address, length, flags | more), is_programs);
}

int __wrap_epoll_create1(int flags) {
    return taken(LIBC(epoll_create1)(flags), is_for_program(ForProgram::Descriptor::Set));
}

// The program sees no file that a room opens: it is closed soon.
int __wrap_open(const char *path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    const mode_t mode = mode_of(flags, arguments);
    va_end(arguments);
    return LIBC(open)(path, flags, mode);
}

int __wrap_openat(int folder, const char *path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    const mode_t mode = mode_of(flags, arguments);
    va_end(arguments);
    return LIBC(openat)(folder, path, flags, mode);
}

int __wrap_eventfd(unsigned count, int flags) {
    return kept(LIBC(eventfd)(count, flags));
}

int __wrap_memfd_create(const char *name, unsigned flags) {
    return kept(LIBC(memfd_create)(name, flags));
}

int __wrap_timerfd_create(clockid_t clock, int flags) {
    return kept(LIBC(timerfd_create)(clock, flags));
}

// ---- that end one ----

int __wrap_close(int fd) {
    descriptors.set(fd, Kind::Other);  // first: then the number may be another's
    return LIBC(close)(fd);
}

// ---- that use one ----

int __wrap_bind(int fd, const sockaddr *address, socklen_t length) {
    return LIBC(bind)(fd, address, length);
}

int __wrap_listen(int fd, int backlog) {
    return LIBC(listen)(fd, backlog);
}

int __wrap_connect(int fd, const sockaddr *address, socklen_t length) {
    const auto reach = [&](const sigset_t *) { return LIBC(connect)(fd, address, length); };
    return rsockets::Call::is_interrupted() ? reach(nullptr) : asleep(reach);
}

int __wrap_shutdown(int fd, int how) {
    return LIBC(shutdown)(fd, how);
}

int __wrap_getsockname(int fd, sockaddr *address, socklen_t *length) {
    return LIBC(getsockname)(fd, address, length);
}

int __wrap_getpeername(int fd, sockaddr *address, socklen_t *length) {
    return LIBC(getpeername)(fd, address, length);
}

int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *length) {
    return LIBC(getsockopt)(fd, level, name, value, length);
}

int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t length) {
    return LIBC(setsockopt)(fd, level, name, value, length);
}

ssize_t __wrap_read(int fd, void *bytes, size_t size) {
    return LIBC(read)(fd, bytes, size);
}

ssize_t __wrap_readv(int fd, const iovec *parts, int count) {
    return LIBC(readv)(fd, parts, count);
}

ssize_t __wrap_recv(int fd, void *bytes, size_t size, int flags) {
    return LIBC(recv)(fd, bytes, size, flags);
}

ssize_t __wrap_recvmsg(int fd, msghdr *message, int flags) {
    return LIBC(recvmsg)(fd, message, flags);
}

ssize_t __wrap_write(int fd, const void *bytes, size_t size) {
    return LIBC(write)(fd, bytes, size);
}

ssize_t __wrap_writev(int fd, const iovec *parts, int count) {
    return LIBC(writev)(fd, parts, count);
}

ssize_t __wrap_send(int fd, const void *bytes, size_t size, int flags) {
    return LIBC(send)(fd, bytes, size, flags);
}

ssize_t __wrap_sendto(int fd, const void *bytes, size_t size, int flags, const sockaddr *address,
                      socklen_t length) {
    return LIBC(sendto)(fd, bytes, size, flags, address, length);
}

ssize_t __wrap_sendmsg(int fd, const msghdr *message, int flags) {
    return LIBC(sendmsg)(fd, message, flags);
}

// A wait of the rooms below sleeps here, and in a connect(2) that waits.
int __wrap_poll(pollfd *entries, nfds_t count, int timeout) {
    if (timeout == 0) {
        return LIBC(poll)(entries, count, timeout);
    }
    const timespec time{.tv_sec = timeout / 1000, .tv_nsec = timeout % 1000 * 1000000L};
    return asleep([&](const sigset_t *mask) {
        return mask != nullptr ? LIBC(ppoll)(entries, count, timeout < 0 ? nullptr : &time, mask)
                               : LIBC(poll)(entries, count, timeout);
    });
}

// The device's own threads call it, and no wait of the program's.
int __wrap_ppoll(pollfd *entries, nfds_t count, const timespec *time, const sigset_t *mask) {
    return LIBC(ppoll)(entries, count, time, mask);
}

int __wrap_epoll_ctl(int epoll, int operation, int fd, epoll_event *event) {
    return LIBC(epoll_ctl)(epoll, operation, fd, event);
}

int __wrap_epoll_wait(int epoll, epoll_event *events, int most, int timeout) {
    return LIBC(epoll_wait)(epoll, events, most, timeout);
}

int __wrap_dup(int fd) {
    return kept(LIBC(dup)(fd));
}

int __wrap_dup2(int fd, int number) {
    return LIBC(dup2)(fd, number);
}

int __wrap_dup3(int fd, int number, int flags) {
    return LIBC(dup3)(fd, number, flags);
}

int __wrap_fcntl(int fd, int command, ...) {
    va_list arguments;
    va_start(arguments, command);
    void *const argument = va_arg(arguments, void *);
    va_end(arguments);
    const int result = LIBC(fcntl)(fd, command, argument);
    return command == F_DUPFD || command == F_DUPFD_CLOEXEC ? kept(result) : result;
}

int __wrap_ioctl(int fd, unsigned long request, ...) {
    va_list arguments;
    va_start(arguments, request);
    void *const argument = va_arg(arguments, void *);
    va_end(arguments);
    return LIBC(ioctl)(fd, request, argument);
}

long __wrap_syscall(long number, ...) {
    va_list arguments;
    va_start(arguments, number);
    const base::SystemCall call{number, arguments};
    va_end(arguments);
    return call.pass_on();
}

}  // extern "C"
