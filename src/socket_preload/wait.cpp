// SPDX-License-Identifier: BSD-3-Clause
// socket_preload/wait: poll and select.
#include <poll.h>
#include <rpma/rsocket.h>
#include <sys/select.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <ctime>
#include <span>

#include "socket_preload/descriptors.hpp"
#include "socket_preload/libc.hpp"

using socket_preload::is_rsocket;
using socket_preload::SleepMask;

// _FORTIFY_SOURCE
extern "C" {
int __poll_chk(pollfd *entries, nfds_t count, int timeout, size_t room);
int __ppoll_chk(pollfd *entries, nfds_t count, const timespec *timeout, const sigset_t *mask, size_t room);
}

namespace {

// Not of const entries: libc declares that poll only writes to them, and g++ believes that.
bool has_rsocket(pollfd *entries, nfds_t count) {
    return std::ranges::any_of(std::span{entries, entries != nullptr ? count : 0},
                               [](const pollfd &entry) { return is_rsocket(entry.fd); });
}

bool has_rsocket(int count, std::initializer_list<const fd_set *> sets) {
    for (int fd = 0; fd < std::min(count, FD_SETSIZE); ++fd) {
        if (is_rsocket(fd) && std::ranges::any_of(sets, [&](const fd_set *set) {
                return set != nullptr && FD_ISSET(fd, set);
            })) {
            return true;
        }
    }
    return false;
}

bool is_valid(const timespec *timeout) {
    return timeout == nullptr ||
           (timeout->tv_sec >= 0 && timeout->tv_nsec >= 0 && timeout->tv_nsec < 1000000000);
}

// In milliseconds, rounded up; -1 stands for no end.
int milliseconds_of(const timespec *timeout) {
    if (timeout == nullptr) {
        return -1;
    }
    constexpr time_t most = INT_MAX / 1000 - 1;
    return static_cast<int>(std::min(timeout->tv_sec, most) * 1000 + (timeout->tv_nsec + 999999) / 1000000);
}

bool is_zero(const timespec *timeout) {
    return timeout != nullptr && timeout->tv_sec == 0 && timeout->tv_nsec == 0;
}

}  // namespace

INTERPOSED int poll(pollfd *entries, nfds_t count, int timeout) {
    return has_rsocket(entries, count) ? rpoll(entries, count, timeout) : LIBC(poll)(entries, count, timeout);
}

INTERPOSED int __poll_chk(pollfd *entries, nfds_t count, int timeout, size_t room) {
    return room / sizeof(pollfd) >= count ? poll(entries, count, timeout)
                                          : LIBC(__poll_chk)(entries, count, timeout, room);
}

INTERPOSED int ppoll(pollfd *entries, nfds_t count, const timespec *timeout, const sigset_t *mask) {
    if (!has_rsocket(entries, count)) {
        return LIBC(ppoll)(entries, count, timeout, mask);
    }
    if (!is_valid(timeout)) {
        errno = EINVAL;
        return -1;
    }
    const SleepMask sleeps{mask};
    const int ready = rpoll(entries, count, milliseconds_of(timeout));
    return ready == 0 && is_zero(timeout) ? sleeps.nothing_found() : ready;
}

INTERPOSED int __ppoll_chk(pollfd *entries, nfds_t count, const timespec *timeout, const sigset_t *mask,
                           size_t room) {
    return room / sizeof(pollfd) >= count ? ppoll(entries, count, timeout, mask)
                                          : LIBC(__ppoll_chk)(entries, count, timeout, mask, room);
}

INTERPOSED int select(int count, fd_set *readable, fd_set *writable, fd_set *exceptional, timeval *timeout) {
    return has_rsocket(count, {readable, writable, exceptional})
               ? rselect(count, readable, writable, exceptional, timeout)
               : LIBC(select)(count, readable, writable, exceptional, timeout);
}

INTERPOSED int pselect(int count, fd_set *readable, fd_set *writable, fd_set *exceptional,
                       const timespec *timeout, const sigset_t *mask) {
    if (!has_rsocket(count, {readable, writable, exceptional})) {
        return LIBC(pselect)(count, readable, writable, exceptional, timeout, mask);
    }
    if (!is_valid(timeout)) {
        errno = EINVAL;
        return -1;
    }
    timeval time{};
    if (timeout != nullptr) {
        time = {.tv_sec = timeout->tv_sec, .tv_usec = (timeout->tv_nsec + 999) / 1000};
    }
    const SleepMask sleeps{mask};
    const int ready = rselect(count, readable, writable, exceptional, timeout != nullptr ? &time : nullptr);
    return ready == 0 && is_zero(timeout) ? sleeps.nothing_found() : ready;
}
