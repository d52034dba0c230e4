// SPDX-License-Identifier: BSD-3-Clause
// socket_preload/wait: poll and select.
#include <poll.h>
#include <rpma/rsocket.h>
#include <sys/select.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>
#include <span>
#include <vector>

#include "base/signals.hpp"
#include "rsocket/descriptor_set.hpp"
#include "socket_preload/descriptor_kinds.hpp"
#include "socket_preload/libc.hpp"
#include "socket_preload/program_use.hpp"
#include "socket_preload/timeout.hpp"

using rsockets::DescriptorSet;
using socket_preload::CancelledInSleep;
using socket_preload::descriptors;
using socket_preload::is_rsocket;
using socket_preload::is_valid;
using socket_preload::Kind;
using socket_preload::milliseconds_of;
using socket_preload::SleepMask;

// _FORTIFY_SOURCE
extern "C" {
int __poll_chk(pollfd *entries, nfds_t count, int timeout, size_t room);
int __ppoll_chk(pollfd *entries, nfds_t count, const timespec *timeout, const sigset_t *mask, size_t room);
}

namespace {

// The entries are not const, because libc declares that poll only writes to them, and g++ relies on that.
bool has_rsocket(pollfd *entries, nfds_t count) {
    return std::ranges::any_of(std::span{entries, entries != nullptr ? count : 0}, [](pollfd entry) {
        const int number = entry.fd;
        return is_rsocket(entry.fd) || entry.fd != number;
    });
}

bool has_other_number(std::span<const pollfd> entries) {
    return std::ranges::any_of(entries, [](pollfd entry) {
        const int number = entry.fd;
        (void)is_rsocket(entry.fd);
        return entry.fd != number;
    });
}

// Waits by the numbers that librsocket knows.
int poll_rsockets(pollfd *entries, nfds_t count, int timeout) {
    const std::span all{entries, count};
    if (!has_other_number(all)) {
        return rpoll(entries, count, timeout);
    }
    std::vector<pollfd> known{all.begin(), all.end()};
    for (pollfd &entry : known) {
        (void)is_rsocket(entry.fd);
    }
    const int ready = rpoll(known.data(), count, timeout);
    for (std::size_t i = 0; ready >= 0 && i < known.size(); ++i) {
        all[i].revents = known[i].revents;
    }
    return ready;
}

using Sets = std::array<DescriptorSet, 3>;

// Returns how far select(2) looks: at most as far as the program's last descriptor. A program whose sets have
// FD_SETSIZE numbers may give getdtablesize(3). The kernel looks as far as its table of descriptors goes,
// which is long here, because those of this library have high numbers.
int end_of(int count) {
    if (count <= FD_SETSIZE) {
        return count;
    }
    const base::HeldSignals held;  // reading a folder allocates memory
    int end = FD_SETSIZE;
    const bool is_known = socket_preload::for_open_descriptors([&](int fd) {
        if (descriptors.kind(fd) != Kind::Own) {
            end = std::max(end, fd + 1);
        }
    });
    return is_known ? std::min(count, end) : count;
}

bool has_rsocket(int count, const Sets &sets) {
    for (int fd = 0; fd < count; ++fd) {
        int known = fd;
        if ((is_rsocket(known) || known != fd) &&
            std::ranges::any_of(sets, [&](const DescriptorSet &set) { return set.has(fd); })) {
            return true;
        }
    }
    return false;
}

int number_of(int fd) {
    (void)is_rsocket(fd);
    return fd;
}

// Waits by the numbers that librsocket knows, which several of the program's may share.
int select_rsockets(int count, Sets sets, timeval *timeout) try {
    int end = count;
    for (int fd = 0; fd < count; ++fd) {
        if (std::ranges::any_of(sets, [fd](const DescriptorSet &set) { return set.has(fd); })) {
            if (descriptors.kind(fd) == Kind::Own) {
                errno = EBADF;
                return -1;
            }
            end = std::max(end, number_of(fd) + 1);
        }
    }
    std::array<std::vector<fd_mask>, 3> words;
    const auto known = [&](std::size_t i) { return reinterpret_cast<fd_set *>(words[i].data()); };
    for (std::size_t i = 0; i < sets.size(); ++i) {
        words[i].resize(DescriptorSet::words_for(end));
        for (int fd = 0; fd < count; ++fd) {
            if (sets[i].has(fd)) {
                DescriptorSet{known(i)}.add(number_of(fd));
            }
        }
    }
    if (rselect(end, known(0), known(1), known(2), timeout) < 0) {
        return -1;
    }
    int ready = 0;
    for (int fd = 0; fd < count; ++fd) {
        for (std::size_t i = 0; i < sets.size(); ++i) {
            if (sets[i].has(fd) && DescriptorSet{known(i)}.has(number_of(fd))) {
                ++ready;
            } else if (sets[i].has(fd)) {
                sets[i].remove(fd);
            }
        }
    }
    return ready;
} catch (const std::bad_alloc &) {
    errno = ENOMEM;
    return -1;
}

bool is_zero(const timespec *timeout) {
    return timeout != nullptr && timeout->tv_sec == 0 && timeout->tv_nsec == 0;
}

}  // namespace

INTERPOSED(3, poll)(pollfd *entries, nfds_t count, int timeout) {
    if (!has_rsocket(entries, count)) {
        return LIBC(poll)(entries, count, timeout);
    }
    const CancelledInSleep cancelled;
    const SleepMask sleeps;
    return poll_rsockets(entries, count, timeout);
}

INTERPOSED(4, __poll_chk)(pollfd *entries, nfds_t count, int timeout, size_t room) {
    return room / sizeof(pollfd) >= count ? poll(entries, count, timeout)
                                          : LIBC(__poll_chk)(entries, count, timeout, room);
}

INTERPOSED(4, ppoll)(pollfd *entries, nfds_t count, const timespec *timeout, const sigset_t *mask) {
    if (!has_rsocket(entries, count)) {
        return LIBC(ppoll)(entries, count, timeout, mask);
    }
    if (!is_valid(timeout)) {
        errno = EINVAL;
        return -1;
    }
    const CancelledInSleep cancelled;
    const SleepMask sleeps{mask};
    const int ready = poll_rsockets(entries, count, milliseconds_of(timeout));
    return ready == 0 && is_zero(timeout) ? sleeps.nothing_found() : ready;
}

INTERPOSED(5, __ppoll_chk)(pollfd *entries, nfds_t count, const timespec *timeout, const sigset_t *mask,
                           size_t room) {
    return room / sizeof(pollfd) >= count ? ppoll(entries, count, timeout, mask)
                                          : LIBC(__ppoll_chk)(entries, count, timeout, mask, room);
}

INTERPOSED(5, select)(int count, fd_set *readable, fd_set *writable, fd_set *exceptional, timeval *timeout) {
    count = end_of(count);
    const Sets sets{DescriptorSet{readable}, DescriptorSet{writable}, DescriptorSet{exceptional}};
    if (!has_rsocket(count, sets)) {
        return LIBC(select)(count, readable, writable, exceptional, timeout);
    }
    const CancelledInSleep cancelled;
    const SleepMask sleeps;
    return select_rsockets(count, sets, timeout);
}

INTERPOSED(6, pselect)(int count, fd_set *readable, fd_set *writable, fd_set *exceptional,
                       const timespec *timeout, const sigset_t *mask) {
    count = end_of(count);
    const Sets sets{DescriptorSet{readable}, DescriptorSet{writable}, DescriptorSet{exceptional}};
    if (!has_rsocket(count, sets)) {
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
    const CancelledInSleep cancelled;
    const SleepMask sleeps{mask};
    const int ready = select_rsockets(count, sets, timeout != nullptr ? &time : nullptr);
    return ready == 0 && is_zero(timeout) ? sleeps.nothing_found() : ready;
}
