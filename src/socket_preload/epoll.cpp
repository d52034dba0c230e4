// SPDX-License-Identifier: BSD-3-Clause
// socket_preload/epoll: each epoll set of the program is a repoll, because an rsocket may become a member of
// it.
#include <rpma/rsocket.h>
#include <sys/epoll.h>

#include <cerrno>

#include "socket_preload/configuration.hpp"
#include "socket_preload/descriptor_kinds.hpp"
#include "socket_preload/libc.hpp"
#include "socket_preload/program_use.hpp"
#include "socket_preload/reuse.hpp"
#include "socket_preload/timeout.hpp"

using socket_preload::CancelledInSleep;
using socket_preload::ForProgram;
using socket_preload::is_repoll;
using socket_preload::SleepMask;
using socket_preload::uncancelled;

namespace {

int wait(int epoll, epoll_event *events, int most, int timeout, const sigset_t *mask) {
    const CancelledInSleep cancelled;
    const SleepMask sleeps{mask};
    return repoll_wait(epoll, events, most, timeout);
}

}  // namespace

INTERPOSED(1, epoll_create1)(int flags) noexcept {
    if (!socket_preload::carries_anything() || (flags & ~EPOLL_CLOEXEC) != 0) {
        return socket_preload::fresh(LIBC(epoll_create1)(flags));
    }
    const ForProgram next{ForProgram::Descriptor::Set};
    return socket_preload::descriptors.set_if_made(uncancelled([&] { return repoll_create(flags); }),
                                                   socket_preload::Kind::Repoll);
}

INTERPOSED(1, epoll_create)(int size) noexcept {
    if (size > 0) {
        return epoll_create1(0);
    }
    errno = EINVAL;
    return -1;
}

INTERPOSED(4, epoll_ctl)(int epoll, int operation, int fd, epoll_event *event) noexcept {
    (void)socket_preload::is_rsocket(fd);
    return is_repoll(epoll) ? uncancelled([&] { return repoll_ctl(epoll, operation, fd, event); })
                            : LIBC(epoll_ctl)(epoll, operation, fd, event);
}

INTERPOSED(4, epoll_wait)(int epoll, epoll_event *events, int most, int timeout) {
    return is_repoll(epoll) ? wait(epoll, events, most, timeout, nullptr)
                            : LIBC(epoll_wait)(epoll, events, most, timeout);
}

INTERPOSED(5, epoll_pwait)(int epoll, epoll_event *events, int most, int timeout, const sigset_t *mask) {
    return is_repoll(epoll) ? wait(epoll, events, most, timeout, mask)
                            : LIBC(epoll_pwait)(epoll, events, most, timeout, mask);
}

INTERPOSED(5, epoll_pwait2)(int epoll, epoll_event *events, int most, const timespec *timeout,
                            const sigset_t *mask) {
    if (!is_repoll(epoll)) {
        return LIBC(epoll_pwait2)(epoll, events, most, timeout, mask);
    }
    if (!socket_preload::is_valid(timeout)) {
        errno = EINVAL;
        return -1;
    }
    return wait(epoll, events, most, socket_preload::milliseconds_of(timeout), mask);
}
