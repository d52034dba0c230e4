// SPDX-License-Identifier: BSD-3-Clause
// base/signals: which signals can wait, and letting them wait until a scope ends.
#pragma once

#include <signal.h>

#include <cerrno>

namespace base {

// Returns every signal except those that a faulty instruction raises, and abort(3). The library's threads
// block them, so that the program's signals go to the program's threads while guarded sections still work.
[[nodiscard]] inline sigset_t signals_from_outside() {
    sigset_t signals;
    sigfillset(&signals);
    for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT}) {
        sigdelset(&signals, signal);
    }
    return signals;
}

// This thread blocks the signals from outside until the scope ends. Then the handlers of those that have come
// run, and errno stays as it was.
class HeldSignals {
public:
    HeldSignals() {
        const sigset_t held = signals_from_outside();
        pthread_sigmask(SIG_BLOCK, &held, &before_);
    }
    ~HeldSignals() {
        const int error = errno;
        pthread_sigmask(SIG_SETMASK, &before_, nullptr);
        errno = error;
    }
    HeldSignals(const HeldSignals &) = delete;
    HeldSignals &operator=(const HeldSignals &) = delete;
    // Returns the signals that were blocked before the scope.
    [[nodiscard]] const sigset_t &before() const { return before_; }

private:
    sigset_t before_;
};

}  // namespace base
