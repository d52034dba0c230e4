// SPDX-License-Identifier: BSD-3-Clause
// base/fd: a file descriptor with an owner.
#pragma once

#include <unistd.h>

#include <utility>

namespace base {

// Owns one file descriptor and closes it once, or borrows it from an owner that outlives this object. -1
// means "none".
class Fd {
public:
    Fd() = default;
    explicit Fd(int fd) : fd_{fd} {}
    // Returns an Fd that never closes the descriptor.
    [[nodiscard]] static Fd borrowed(int fd) {
        Fd one{fd};
        one.borrowed_ = true;
        return one;
    }
    Fd(Fd &&other) noexcept
        : fd_{std::exchange(other.fd_, -1)}, borrowed_{std::exchange(other.borrowed_, false)} {}
    Fd &operator=(Fd &&other) noexcept {
        if (this != &other) {
            reset(std::exchange(other.fd_, -1));
            borrowed_ = std::exchange(other.borrowed_, false);
        }
        return *this;
    }
    Fd(const Fd &) = delete;
    Fd &operator=(const Fd &) = delete;
    ~Fd() { reset(); }

    [[nodiscard]] int get() const { return fd_; }
    [[nodiscard]] bool is_borrowed() const { return borrowed_; }
    [[nodiscard]] int release() { return std::exchange(fd_, -1); }
    explicit operator bool() const { return fd_ >= 0; }

    void reset(int fd = -1) {
        if (fd_ >= 0 && !borrowed_) {
            ::close(fd_);
        }
        fd_ = fd;
        borrowed_ = false;
    }

private:
    int fd_ = -1;
    bool borrowed_ = false;
};

}  // namespace base
