// SPDX-License-Identifier: BSD-3-Clause
// carry_preload/wait: poll, select and epoll.
#include <dirent.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/interpose.hpp"
#include "base/user_memory.hpp"
#include "carry/high_number.hpp"
#include "carry/looking.hpp"
#include "carry/section.hpp"
#include "carry/waits.hpp"
#include "carry_preload/fresh.hpp"

using carry_preload::fresh;

// _FORTIFY_SOURCE
extern "C" {
int __poll_chk(pollfd *entries, nfds_t count, int timeout, size_t room);
int __ppoll_chk(pollfd *entries, nfds_t count, const timespec *timeout, const sigset_t *mask, size_t room);
}

namespace {

// Negative milliseconds stand for no end.
std::optional<timespec> time_of(int milliseconds) {
    return milliseconds < 0 ? std::nullopt
                            : std::optional{timespec{.tv_sec = milliseconds / 1000,
                                                     .tv_nsec = (milliseconds % 1000) * 1'000'000L}};
}

const timespec *pointer(const std::optional<timespec> &time) {
    return time ? &*time : nullptr;
}

// Returns none of what the kernel refuses.
std::span<pollfd> in_memory(pollfd *entries, nfds_t count) {
    constexpr nfds_t most = 1U << 30;
    const bool may_be = count <= most && base::may_be_memory(entries, count * sizeof(pollfd));
    return {entries, may_be ? count : 0};
}

bool is_valid(const timespec *timeout) {
    return timeout == nullptr ||
           (timeout->tv_sec >= 0 && timeout->tv_nsec >= 0 && timeout->tv_nsec < 1'000'000'000);
}

// ---- select ----

// The events of poll(2) that stand for each of the three sets, as in the kernel.
struct Sets {
    struct Kind {
        short asked;
        short found;
    };
    static constexpr std::array<Kind, 3> kinds{
        {{POLLIN | POLLRDNORM, POLLIN | POLLRDNORM | POLLRDBAND | POLLHUP | POLLERR},
         {POLLOUT | POLLWRNORM, POLLOUT | POLLWRNORM | POLLWRBAND | POLLERR},
         {POLLPRI, POLLPRI}}};
    std::array<fd_set *, 3> sets;

    // A program may have sets that are longer than an fd_set.
    [[nodiscard]] static fd_mask &word(fd_set *set, int fd) {
        return reinterpret_cast<fd_mask *>(set)[fd / NFDBITS];
    }
    [[nodiscard]] static fd_mask bit(int fd) { return static_cast<fd_mask>(1UL << (fd % NFDBITS)); }

    [[nodiscard]] std::vector<pollfd> entries(int count) const {
        std::vector<pollfd> all;
        for (int fd = 0; fd < count; ++fd) {
            short events = 0;
            for (std::size_t i = 0; i < sets.size(); ++i) {
                if (sets[i] != nullptr && (word(sets[i], fd) & bit(fd)) != 0) {
                    events = static_cast<short>(events | kinds[i].asked);
                }
            }
            if (events != 0) {
                all.push_back({.fd = fd, .events = events, .revents = 0});
            }
        }
        return all;
    }
    // Returns how many bits are set.
    [[nodiscard]] int tell(std::span<const pollfd> found) const {
        int count = 0;
        for (const pollfd &entry : found) {
            for (std::size_t i = 0; i < sets.size(); ++i) {
                if ((entry.events & kinds[i].asked) != 0 && sets[i] != nullptr) {
                    const bool is_there = (entry.revents & kinds[i].found) != 0;
                    word(sets[i], entry.fd) &= is_there ? ~fd_mask{0} : ~bit(entry.fd);
                    count += is_there ? 1 : 0;
                }
            }
        }
        return count;
    }
};

// Returns how far select(2) looks: at most as far as the program's last descriptor. A program whose sets have
// FD_SETSIZE numbers may give getdtablesize(3). The kernel looks as far as its table of descriptors goes,
// which is long here, because those of this library have high numbers.
int end_of(int count) {
    const int high = carry::first_high_number();
    if (count <= FD_SETSIZE || high < 0) {
        return count;
    }
    const carry::HeldHandlers held;
    const std::unique_ptr<DIR, int (*)(DIR *)> folder{opendir("/proc/self/fd"), closedir};
    int end = folder != nullptr ? FD_SETSIZE : count;
    while (const dirent *entry = folder != nullptr ? readdir(folder.get()) : nullptr) {
        const std::string_view name{entry->d_name};
        int fd = -1;  // of the two entries that are folders
        (void)std::from_chars(name.data(), name.data() + name.size(), fd);
        end = fd < high ? std::max(end, fd + 1) : end;
    }
    return std::min(count, end);
}

// A handler that interrupts the call may use the heap as well.
class Entries {
public:
    Entries(const Sets &sets, int count) {
        const carry::HeldHandlers held;
        all_ = sets.entries(count);
    }
    ~Entries() noexcept(false) {
        const carry::HeldHandlers held;
        std::vector<pollfd>{}.swap(all_);
    }
    Entries(const Entries &) = delete;
    Entries &operator=(const Entries &) = delete;
    [[nodiscard]] std::span<pollfd> all() { return all_; }

private:
    std::vector<pollfd> all_;
};

// Returns nothing when no ring is concerned.
std::optional<int> select_any(int count, const Sets &sets, const timespec *timeout,
                              const sigset_t *mask) try {
    const bool are_in_memory = std::ranges::all_of(sets.sets, [](const fd_set *set) {
        return set == nullptr || base::may_be_memory(set, sizeof(fd_mask));
    });
    if (!carry::any_link() || count < 0 || !are_in_memory) {
        return std::nullopt;
    }
    Entries held{sets, count};
    const std::span<pollfd> entries = held.all();
    if (!carry::concern_a_ring(entries)) {
        return std::nullopt;
    }
    const int ready = carry::wait_for(entries, timeout, mask);
    if (ready < 0) {
        return ready;
    }
    if (std::ranges::any_of(entries, [](const pollfd &entry) { return (entry.revents & POLLNVAL) != 0; })) {
        errno = EBADF;
        return -1;
    }
    return sets.tell(entries);
} catch (const std::bad_alloc &) {
    errno = ENOMEM;
    return -1;
}

// A wait of a set without a link, by the kernel. Returns nothing when a socket of the set has one: perhaps
// got it meanwhile, and the kernel's events were its doorbells.
template <typename Call>
std::optional<int> wait_by_kernel(int epoll, epoll_event *events, int most, Call by_kernel) {
    const bool has_linked = carry::any_link() && carry::epolls::has_linked(epoll);
    if (has_linked && most > 0 && base::may_be_memory(events, sizeof(epoll_event))) {
        return std::nullopt;
    }
    const int found = by_kernel();
    if (found <= 0 || !carry::any_link() || !carry::epolls::has_names(epoll)) {
        return found;
    }
    const int settled = carry::epolls::settle(epoll, std::span{events, static_cast<std::size_t>(found)});
    return settled != 0 ? std::optional{settled} : std::nullopt;
}

}  // namespace

INTERPOSED(3, poll)(pollfd *entries, nfds_t count, int timeout) {
    const std::span all = in_memory(entries, count);
    if (!carry::any_link() || !carry::concern_a_ring(all)) {
        return LIBC(poll)(entries, count, timeout);
    }
    const auto time = time_of(timeout);
    return carry::wait_for(all, pointer(time), nullptr);
}

INTERPOSED(4, __poll_chk)(pollfd *entries, nfds_t count, int timeout, size_t room) {
    return room / sizeof(pollfd) >= count ? poll(entries, count, timeout)
                                          : LIBC(__poll_chk)(entries, count, timeout, room);
}

INTERPOSED(4, ppoll)(pollfd *entries, nfds_t count, const timespec *timeout, const sigset_t *mask) {
    const std::span all = in_memory(entries, count);
    if (!carry::any_link() || !is_valid(timeout) || !carry::concern_a_ring(all)) {
        return LIBC(ppoll)(entries, count, timeout, mask);
    }
    return carry::wait_for(all, timeout, mask);
}

INTERPOSED(5, __ppoll_chk)(pollfd *entries, nfds_t count, const timespec *timeout, const sigset_t *mask,
                           size_t room) {
    return room / sizeof(pollfd) >= count ? ppoll(entries, count, timeout, mask)
                                          : LIBC(__ppoll_chk)(entries, count, timeout, mask, room);
}

// Linux writes the time that is left.
INTERPOSED(5, select)(int count, fd_set *readable, fd_set *writable, fd_set *exceptional, timeval *timeout) {
    count = end_of(count);
    std::optional<timespec> time;
    if (timeout != nullptr) {
        time = timespec{.tv_sec = timeout->tv_sec + timeout->tv_usec / 1'000'000,
                        .tv_nsec = timeout->tv_usec % 1'000'000 * 1000};
    }
    carry::TimeLeft left{pointer(time)};
    const auto ready =
        timeout != nullptr && !is_valid(pointer(time))
            ? std::nullopt
            : select_any(count, Sets{{readable, writable, exceptional}}, pointer(time), nullptr);
    if (!ready) {
        return LIBC(select)(count, readable, writable, exceptional, timeout);
    }
    if (timeout != nullptr) {
        const timespec *const rest = left.now();
        *timeout = {.tv_sec = rest->tv_sec, .tv_usec = rest->tv_nsec / 1000};
    }
    return *ready;
}

INTERPOSED(6, pselect)(int count, fd_set *readable, fd_set *writable, fd_set *exceptional,
                       const timespec *timeout, const sigset_t *mask) {
    count = end_of(count);
    const auto ready = is_valid(timeout)
                           ? select_any(count, Sets{{readable, writable, exceptional}}, timeout, mask)
                           : std::nullopt;
    return ready ? *ready : LIBC(pselect)(count, readable, writable, exceptional, timeout, mask);
}

INTERPOSED(1, epoll_create1)(int flags) noexcept {
    return fresh(LIBC(epoll_create1)(flags));
}

INTERPOSED(1, epoll_create)(int size) noexcept {
    return fresh(LIBC(epoll_create)(size));
}

INTERPOSED(4, epoll_ctl)(int epoll, int operation, int fd, epoll_event *event) noexcept {
    return carry::epolls::control(epoll, operation, fd, event);
}

INTERPOSED(4, epoll_wait)(int epoll, epoll_event *events, int most, int timeout) {
    if (const auto found = wait_by_kernel(epoll, events, most,
                                          [&] { return LIBC(epoll_wait)(epoll, events, most, timeout); })) {
        return *found;
    }
    const auto time = time_of(timeout);
    return carry::epolls::wait(epoll, std::span{events, static_cast<std::size_t>(most)}, pointer(time),
                               nullptr);
}

INTERPOSED(5, epoll_pwait)(int epoll, epoll_event *events, int most, int timeout, const sigset_t *mask) {
    if (const auto found = wait_by_kernel(
            epoll, events, most, [&] { return LIBC(epoll_pwait)(epoll, events, most, timeout, mask); })) {
        return *found;
    }
    const auto time = time_of(timeout);
    return carry::epolls::wait(epoll, std::span{events, static_cast<std::size_t>(most)}, pointer(time), mask);
}

INTERPOSED(5, epoll_pwait2)(int epoll, epoll_event *events, int most, const timespec *timeout,
                            const sigset_t *mask) {
    const auto by_kernel = [&] { return LIBC(epoll_pwait2)(epoll, events, most, timeout, mask); };
    const auto found = is_valid(timeout) ? wait_by_kernel(epoll, events, most, by_kernel) : by_kernel();
    return found
               ? *found
               : carry::epolls::wait(epoll, std::span{events, static_cast<std::size_t>(most)}, timeout, mask);
}
