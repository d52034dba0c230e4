// SPDX-License-Identifier: BSD-3-Clause
// carry/handlers: the program's signal handlers. A handler may use the socket whose call it has interrupted,
// as it may with the kernel's. So none runs while this library has a lock: the kernel calls a function of
// this file for each handler that the program has set with a function of libc. That calls the handler, or
// keeps the signal until the thread has no lock any more. A handler costs the library's own calls nothing
// then, where the signal mask would cost two system calls for each lock.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <cerrno>

namespace carry {

// The kernel takes this for a set of signals.
using SignalMask = unsigned long;

namespace handlers {

// Works as sigaction(2).
[[nodiscard]] int set(int signal, const struct sigaction *wanted, struct sigaction *before);
// The handler that the program has set.
[[nodiscard]] sighandler_t of_program(int signal);
// Returns whether the kernel's handler is this library's.
[[nodiscard]] bool is_own(sighandler_t handler);
// Stands before the handler that the kernel has, if it is the program's.
void adopt(int signal);
// Makes a call of libc that sets the signal's handler in another way, and returns the one before.
template <typename Call>
[[nodiscard]] sighandler_t set_by(int signal, Call by_libc) {
    const sighandler_t own = of_program(signal);
    const sighandler_t before = by_libc();
    adopt(signal);
    return is_own(before) ? own : before;
}

// One thread has this.
struct Thread {
    unsigned held = 0;      // HeldHandlers
    unsigned inside = 0;    // of Sockets: Socket::begin_use()
    unsigned receives = 0;  // of the kernel's for Sockets without a link
    bool has_kept = false;
    SignalMask mask = 0;  // that the thread had when the signal came
    siginfo_t kept{};
    const void *frame = nullptr;          // of the last handler that has begun, and has not returned
    volatile unsigned calls = 0;          // of handlers
    volatile unsigned interruptions = 0;  // those of them without SA_RESTART
};
// The dynamic linker makes it with the thread, so a handler that is the first to use it allocates nothing.
[[gnu::tls_model("initial-exec")]] inline thread_local constinit Thread of_thread;

// From hold() to let_run() this thread runs no handler but those of faults: HeldSignals. Not noexcept: the
// handler may end the thread.
void deliver_kept(Thread &thread);
inline void hold() {
    ++of_thread.held;
    std::atomic_signal_fence(std::memory_order_seq_cst);
}
inline void let_run() {
    Thread &thread = of_thread;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    const bool is_last = --thread.held == 0;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (is_last && thread.has_kept) {
        deliver_kept(thread);
    }
}
// The same in a forked child: the signal is its parent's.
void let_run_in_child();

// Returns whether the caller may be a handler, which may have interrupted malloc(3). A handler that was left
// by longjmp(3) has not returned; most callers stand above its place in the stack then.
[[nodiscard]] inline bool may_run() {
    return __builtin_frame_address(0) < of_thread.frame;
}

}  // namespace handlers

// Says whether a handler of the program has run in this thread since it was made. A wait ends then, as the
// kernel's does; a call that moves bytes, when the handler was set without SA_RESTART.
class Interruptions {
public:
    [[nodiscard]] bool any() const { return handlers::of_thread.calls != calls_; }
    [[nodiscard]] bool without_restart() const { return handlers::of_thread.interruptions != interruptions_; }

private:
    unsigned calls_ = handlers::of_thread.calls;
    unsigned interruptions_ = handlers::of_thread.interruptions;
};

// While one lives, this thread runs no handler but those of faults. It may be cancelled in the calls that are
// cancellation points.
class HeldSignals {
public:
    HeldSignals() { handlers::hold(); }
    ~HeldSignals() noexcept(false) { handlers::let_run(); }
    HeldSignals(const HeldSignals &) = delete;
    HeldSignals &operator=(const HeldSignals &) = delete;
};

// The same, and this thread is not cancelled: close(2) and its like would end it with a lock.
class HeldHandlers {
    class Cancelling {
    public:
        Cancelling() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
        // Not noexcept: a thread that is cancelled at any moment (pthread_setcanceltype(3)) ends here.
        ~Cancelling() noexcept(false) { pthread_setcancelstate(before_, nullptr); }
        Cancelling(const Cancelling &) = delete;
        Cancelling &operator=(const Cancelling &) = delete;

    private:
        int before_ = PTHREAD_CANCEL_ENABLE;
    };
    const Cancelling disabled_;
    const HeldSignals held_;
};

}  // namespace carry
