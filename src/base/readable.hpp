// SPDX-License-Identifier: BSD-3-Clause
// base/readable: a descriptor that is readable while there is an item to take (eventfd(2)).
#pragma once

#include <sys/eventfd.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstdint>
#include <utility>

#include "base/event.hpp"
#include "base/fd.hpp"
#include "base/result.hpp"

namespace base {

// Belongs to a queue, whose lock guards it.
class Readable {
public:
    [[nodiscard]] static Result<Readable> create() {
        Fd fd{eventfd(0, EFD_CLOEXEC)};
        if (!fd) {
            return last_failure();
        }
        return Readable{std::move(fd)};
    }

    [[nodiscard]] int fd() const { return fd_.get(); }
    // Makes the descriptor readable or not, with a system call only when that changes. Does not block, even
    // if another process has read the value and the program has made the descriptor blocking.
    void set(bool readable) {
        if (readable == is_set_) {
            return;
        }
        is_set_ = readable;
        if (readable) {
            raise_event(fd());
            return;
        }
        std::uint64_t ignored = 0;
        const iovec to{.iov_base = &ignored, .iov_len = sizeof(ignored)};
        constexpr long as_read = -1;
        // It is no cancellation point (event.hpp). The place has two halves.
        if (syscall(SYS_preadv2, fd(), &to, 1, as_read, as_read, RWF_NOWAIT) < 0 && errno != EAGAIN) {
            (void)take_event(fd());  // before Linux 5.8
        }
    }

private:
    explicit Readable(Fd fd) : fd_{std::move(fd)} {}

    Fd fd_;
    bool is_set_ = false;
};

}  // namespace base
