// SPDX-License-Identifier: BSD-3-Clause
// base/readable: a descriptor that is readable while there is something to take (eventfd(2)).
#pragma once

#include <sys/eventfd.h>

#include <utility>

#include "base/fd.hpp"
#include "base/result.hpp"

namespace base {

// Goes with a queue, whose lock guards it.
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
    // Whether it is to be readable; a system call only when that changes. Does not block: what is read was
    // written.
    void set(bool readable) {
        if (readable == is_set_) {
            return;
        }
        is_set_ = readable;
        eventfd_t ignored = 0;
        (void)(readable ? eventfd_write(fd(), 1) : eventfd_read(fd(), &ignored));
    }

private:
    explicit Readable(Fd fd) : fd_{std::move(fd)} {}

    Fd fd_;
    bool is_set_ = false;
};

}  // namespace base
