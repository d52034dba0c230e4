// SPDX-License-Identifier: BSD-3-Clause
// rstream/wait_set: a descriptor for a program's poll(2): an epoll set of what a device has, and of a light
// that says that there is something to read at once.
#pragma once

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <span>

#include "base/fd.hpp"
#include "base/result.hpp"

namespace rstream {

class WaitSet {
public:
    [[nodiscard]] static base::Result<WaitSet> make() {
        WaitSet made{base::Fd{epoll_create1(EPOLL_CLOEXEC)}};
        return made.epoll_ && light_fd() >= 0 ? base::Result<WaitSet>{std::move(made)} : base::last_failure();
    }

    [[nodiscard]] int fd() const { return epoll_.get(); }
    // `what` is what ready() gives when one of the descriptors is readable.
    [[nodiscard]] base::Result<void> add(std::span<const int> descriptors, void *what) {
        for (const int fd : descriptors) {
            epoll_event event{.events = EPOLLIN, .data = {.ptr = what}};
            if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
                return base::last_failure();
            }
        }
        return {};
    }
    void remove(std::span<const int> descriptors) {
        for (const int fd : descriptors) {
            (void)epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
        }
    }
    // Lit, the set is readable. The light's event has nullptr.
    void light(bool on) {
        if (on != is_lit_) {
            epoll_event event{.events = EPOLLIN, .data = {.ptr = nullptr}};
            (void)epoll_ctl(epoll_.get(), on ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, light_fd(), &event);
            is_lit_ = on;
        }
    }
    // Returns the events that are there, and does not wait.
    [[nodiscard]] std::span<epoll_event> ready(std::span<epoll_event> events) const {
        const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
        return events.first(count > 0 ? static_cast<std::size_t>(count) : 0);
    }

private:
    explicit WaitSet(base::Fd epoll) : epoll_{std::move(epoll)} {}
    // One descriptor that is always readable serves all sets.
    static int light_fd() {
        static const int fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
        return fd;
    }

    base::Fd epoll_;
    bool is_lit_ = false;
};

}  // namespace rstream
