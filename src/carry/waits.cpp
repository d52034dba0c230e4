// SPDX-License-Identifier: BSD-3-Clause
// carry/waits: poll(2).
#include "carry/waits.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>

#include "base/interpose.hpp"
#include "carry/looking.hpp"
#include "carry/sockets.hpp"

namespace carry {

namespace {

constexpr short readable = POLLIN | POLLRDNORM;

bool wants_to_read(const pollfd &entry) {
    return entry.fd >= 0 && (entry.events & readable) != 0;
}

// Returns the Socket with a link that the entry waits to read from, or nullptr.
Socket *ring_of(const pollfd &entry) {
    Socket *const socket = wants_to_read(entry) ? sockets.at(entry.fd) : nullptr;
    return socket != nullptr && socket->is_linked() ? socket : nullptr;
}

bool is_ready(const pollfd &entry) {
    if (Socket *const socket = ring_of(entry); socket != nullptr) {
        return socket->has_ring_bytes() || (socket->has_bytes() && socket->is_readable(entry.fd));
    }
    return wants_to_read(entry) && epolls::is_ready(entry.fd);
}

bool any_ready(std::span<const pollfd> entries) {
    return std::ranges::any_of(entries, is_ready);
}

// While one lives, the peers ring for what they put into the rings.
class Sleep {
public:
    explicit Sleep(std::span<const pollfd> entries) {
        for (auto entry = entries.begin(); has_nothing_ && entry != entries.end(); ++entry) {
            if (Socket *const socket = ring_of(*entry); socket != nullptr) {
                has_nothing_ = socket->begin_sleep(entry->fd);
                begun({.socket = socket, .epoll = -1});
            } else if (wants_to_read(*entry) && epolls::is_set(entry->fd)) {
                has_nothing_ = epolls::begin_sleep(entry->fd);
                begun({.socket = nullptr, .epoll = entry->fd});
            }
        }
    }
    ~Sleep() noexcept(false) {
        for (std::size_t i = 0; i < count_; ++i) {
            if (all_[i].socket != nullptr) {
                all_[i].socket->end_sleep();
                all_[i].socket->end_use();
            } else {
                epolls::end_sleep(all_[i].epoll);
            }
        }
    }
    Sleep(const Sleep &) = delete;
    Sleep &operator=(const Sleep &) = delete;
    // Returns whether there was nothing to read when it began.
    [[nodiscard]] bool has_nothing() const { return has_nothing_; }

private:
    struct One {
        Socket *socket;
        int epoll;
    };
    // The peers of those for which there is no place may ring in vain later.
    void begun(const One &one) {
        if (count_ < all_.size()) {
            if (one.socket != nullptr) {
                one.socket->begin_use();  // another thread may close it
            }
            all_[count_++] = one;
        }
    }
    std::array<One, 64> all_;
    std::size_t count_ = 0;
    bool has_nothing_ = true;
};

// Returns whether there is an error of which the kernel does not tell any more.
bool has_error(const pollfd &entry) {
    const Socket *const socket = sockets.at(entry.fd);
    return socket != nullptr && socket->keeps_error();
}

short events_of(const pollfd &entry) {
    const Socket *const socket = sockets.at(entry.fd);
    return socket != nullptr ? socket->events_of(entry.revents) : entry.revents;
}

// Adds what the rings have to what the kernel says, and takes away what was a doorbell only. Returns how many
// entries have something.
int settle(std::span<pollfd> entries) {
    int count = 0;
    for (pollfd &entry : entries) {
        if (is_ready(entry)) {
            entry.revents = static_cast<short>(entry.revents | (entry.events & readable));
        } else if (Socket *const socket = ring_of(entry);
                   socket != nullptr && (entry.revents & readable) != 0 && !socket->is_readable(entry.fd)) {
            entry.revents = static_cast<short>(entry.revents & ~readable);
        }
        entry.revents = events_of(entry);
        count += entry.revents != 0 ? 1 : 0;
    }
    return count;
}

}  // namespace

bool concern_a_ring(std::span<const pollfd> entries) {
    bool concern = false;
    for (const pollfd &entry : entries) {
        if (wants_to_read(entry)) {
            epolls::tell_kernel(entry.fd);
            concern = concern || ring_of(entry) != nullptr || epolls::has_linked(entry.fd);
        }
        concern = concern || has_error(entry);
    }
    return concern;
}

int wait_for(std::span<pollfd> entries, const timespec *timeout, const sigset_t *mask) {
    constexpr timespec at_once{};
    TimeLeft left{timeout};
    const Interruptions handlers;
    // A wait that finds something lets no signal through.
    const auto ask_kernel = [&](const timespec *time) {
        const sigset_t *const lets_through = mask != nullptr && any_ready(entries) ? nullptr : mask;
        const int result = LIBC(ppoll)(entries.data(), entries.size(), time, lets_through);
        return result < 0 ? result : settle(entries);
    };
    for (;;) {
        if (const int ready = ask_kernel(&at_once); ready != 0 || left.is_over()) {
            return ready;
        }
        if (look([&] { return any_ready(entries); })) {
            continue;
        }
        if (handlers.any()) {
            errno = EINTR;
            return -1;
        }
        if (const Sleep sleep{entries}; sleep.has_nothing()) {
            if (const int ready = ask_kernel(left.now()); ready != 0) {
                return ready;
            }
        }
    }
}

}  // namespace carry
