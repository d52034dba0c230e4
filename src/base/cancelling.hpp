// SPDX-License-Identifier: BSD-3-Clause
// base/cancelling: whether this thread can be cancelled, until a scope ends. A thread that is cancelled in
// the middle of the library's work would leave it half done.
#pragma once

#include <pthread.h>

namespace base {

class Cancelling {
public:
    // `state` is that of pthread_setcancelstate(3).
    explicit Cancelling(int state) { pthread_setcancelstate(state, &before_); }
    ~Cancelling() { pthread_setcancelstate(before_, nullptr); }
    Cancelling(const Cancelling &) = delete;
    Cancelling &operator=(const Cancelling &) = delete;
    // Returns the state before the scope.
    [[nodiscard]] int before() const { return before_; }

private:
    int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace base
