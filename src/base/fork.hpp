// SPDX-License-Identifier: BSD-3-Clause
// base/fork: what a forked child inherits is its parent's: the sockets are shared, and its locks may be held
// for ever by threads that the child does not have.
#pragma once

namespace base {

// Number of forks between the first process that used the library and this one.
[[nodiscard]] unsigned fork_generation();

// What refuses its work to a child of the process that made it.
class Inheritable {
public:
    // Made before a fork, and so the parent's. Takes no lock.
    [[nodiscard]] bool inherited() const { return made_in_ != fork_generation(); }

protected:
    Inheritable() = default;
    ~Inheritable() = default;

private:
    const unsigned made_in_ = fork_generation();
};

}  // namespace base
