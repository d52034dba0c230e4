// SPDX-License-Identifier: BSD-3-Clause
// carry_device/watched: a descriptor that wakes the agent when something has changed there.
#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <utility>

#include "base/fd.hpp"

namespace carry_device {

// A forked child may have the descriptor for longer. So it leaves the agent's set before it is closed.
class Watched {
public:
    Watched() = default;
    // events: the agent's epoll set. It gets no pointer, and looks at all.
    Watched(int events, base::Fd fd) : events_{events}, fd_{std::move(fd)} {
        epoll_event event{.events = EPOLLIN | EPOLLOUT | EPOLLET, .data = {.ptr = nullptr}};
        if (fd_ && epoll_ctl(events_, EPOLL_CTL_ADD, fd_.get(), &event) != 0) {
            fd_.reset();
        }
    }
    Watched(Watched &&) = default;
    Watched &operator=(Watched &&other) noexcept {
        reset();
        events_ = other.events_;
        fd_ = std::move(other.fd_);
        return *this;
    }
    Watched(const Watched &) = delete;
    Watched &operator=(const Watched &) = delete;
    ~Watched() { reset(); }

    [[nodiscard]] int get() const { return fd_.get(); }
    explicit operator bool() const { return static_cast<bool>(fd_); }
    // The set is the parent's too.
    void close_in_child() { fd_.reset(); }
    void reset() {
        if (fd_) {
            (void)epoll_ctl(events_, EPOLL_CTL_DEL, fd_.get(), nullptr);
            fd_.reset();
        }
    }

private:
    int events_ = -1;
    base::Fd fd_;
};

}  // namespace carry_device
