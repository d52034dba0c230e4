// SPDX-License-Identifier: BSD-3-Clause
// rstream/wait_set: a descriptor for a program's poll(2): an epoll set of what a device has, and of a light
// that says that there is something to read at once.
#pragma once

#include <sys/epoll.h>

#include <span>
#include <utility>

#include "base/fd.hpp"
#include "base/readable.hpp"
#include "base/result.hpp"

namespace rstream {

class WaitSet {
public:
    [[nodiscard]] static base::Result<WaitSet> make() {
        base::Fd epoll{epoll_create1(EPOLL_CLOEXEC)};
        if (!epoll) {
            return base::last_failure();
        }
        auto light = base::Readable::create();
        if (!light) {
            return std::unexpected{light.error()};
        }
        WaitSet made{std::move(epoll), std::move(*light)};
        const int light_fd = made.light_.fd();
        auto added = made.add({&light_fd, 1}, nullptr);
        return added ? base::Result<WaitSet>{std::move(made)} : std::unexpected{added.error()};
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
    void light(bool on) { light_.set(on); }
    // Returns the events that are there, and does not wait.
    [[nodiscard]] std::span<epoll_event> ready(std::span<epoll_event> events) const {
        const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
        return events.first(count > 0 ? static_cast<std::size_t>(count) : 0);
    }

private:
    WaitSet(base::Fd epoll, base::Readable light) : epoll_{std::move(epoll)}, light_{std::move(light)} {}

    base::Fd epoll_;
    base::Readable light_;
};

}  // namespace rstream
