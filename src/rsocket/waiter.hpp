// SPDX-License-Identifier: BSD-3-Clause
// rsocket/waiter: how one thread wakes another that sleeps for the same socket.
#pragma once

#include <sys/eventfd.h>

#include <memory>

#include "base/readable.hpp"

namespace rsockets {

// A thread's own. A socket knows the waiters that sleep for it; whoever takes something off the socket's
// connection wakes the others, because they cannot see it there any more.
class Waiter {
public:
    // This thread's, made when it sleeps for the first time. EMFILE, ENFILE, ENOMEM.
    [[nodiscard]] static base::Result<std::shared_ptr<Waiter>> of_this_thread() {
        thread_local std::shared_ptr<Waiter> own;
        if (own == nullptr) {
            base::Fd fd{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
            if (!fd) {
                return base::last_failure();
            }
            own = std::make_shared<Waiter>(std::move(fd));
        }
        return own;
    }
    explicit Waiter(base::Fd fd) : fd_{std::move(fd)} {}

    // Readable when it was woken.
    [[nodiscard]] int fd() const { return fd_.get(); }
    void wake() { (void)eventfd_write(fd_.get(), 1); }
    void clear() {
        eventfd_t ignored = 0;
        (void)eventfd_read(fd_.get(), &ignored);
    }

private:
    base::Fd fd_;
};

}  // namespace rsockets
