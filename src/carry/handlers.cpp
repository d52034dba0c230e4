// SPDX-License-Identifier: BSD-3-Clause
// carry/handlers: stands between the kernel and the program's signal handlers.
#include "carry/handlers.hpp"

#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <utility>

#include "base/fork.hpp"
#include "base/interpose.hpp"

namespace carry::handlers {

namespace {

using Handler = void (*)(int, siginfo_t *, void *);

// The handler that the program has set, with its flags.
struct Disposition {
    std::atomic<Handler> handler;
    std::atomic<int> flags;
};
constinit std::array<Disposition, _NSIG> dispositions{};

constexpr SignalMask bit(int signal) {
    return SignalMask{1} << (signal - 1);
}
// These tell of the instruction that the thread executes, so their handlers run at once.
constexpr SignalMask faults =
    bit(SIGSEGV) | bit(SIGBUS) | bit(SIGFPE) | bit(SIGILL) | bit(SIGTRAP) | bit(SIGSYS) | bit(SIGABRT);

// A sigset_t is longer than the kernel's set, and so is the place that the kernel gives a handler's context.
SignalMask mask_of(const ucontext_t &context) {
    SignalMask mask = 0;
    std::memcpy(&mask, &context.uc_sigmask, sizeof(mask));
    return mask;
}

void call(int signal, siginfo_t *info, void *context) {
    Disposition &disposition = dispositions.at(static_cast<std::size_t>(signal));
    Handler handler = disposition.handler.load();
    const int flags = disposition.flags.load();
    if ((flags & static_cast<int>(SA_RESETHAND)) != 0) {
        handler = disposition.handler.exchange(nullptr);
        struct sigaction standard{};
        standard.sa_handler = SIG_DFL;
        (void)LIBC(sigaction)(signal, &standard, nullptr);
    }
    of_thread.calls = of_thread.calls + 1;
    of_thread.interruptions = of_thread.interruptions + ((flags & SA_RESTART) == 0 ? 1 : 0);
    const void *const before = std::exchange(of_thread.frame, __builtin_frame_address(0));
    if (handler != nullptr && (flags & SA_SIGINFO) != 0) {
        handler(signal, info, context);
    } else if (handler != nullptr) {
        struct sigaction simple{};
        simple.sa_sigaction = handler;
        simple.sa_handler(signal);
    }
    of_thread.frame = before;
}

// The kernel calls it for each handler of the program.
void take(int signal, siginfo_t *info, void *context) {
    Thread &thread = of_thread;
    if (thread.held == 0 || (faults & bit(signal)) != 0) {
        call(signal, info, context);
        return;
    }
    // No further signal comes before this one is delivered.
    auto &interrupted = *static_cast<ucontext_t *>(context);
    thread.kept = *info;
    thread.kept.si_signo = signal;
    thread.mask = mask_of(interrupted);
    thread.has_kept = true;
    constexpr SignalMask all = ~faults;
    std::memcpy(&interrupted.uc_sigmask, &all, sizeof(all));
}

bool is_handler(const struct sigaction &action) {
    return action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN && action.sa_handler != SIG_ERR;
}

bool is_take(const struct sigaction &action) {
    return action.sa_sigaction == take;
}

bool is_signal(int signal) {
    return signal > 0 && signal < _NSIG;
}

}  // namespace

// The thread gets its signal mask again, and with it the signal.
void deliver_kept(Thread &thread) {
    const int error = errno;
    thread.has_kept = false;
    LIBC(syscall)(SYS_rt_tgsigqueueinfo, getpid(), gettid(), thread.kept.si_signo, &thread.kept);
    LIBC(syscall)(SYS_rt_sigprocmask, SIG_SETMASK, &thread.mask, nullptr, sizeof(thread.mask));
    errno = error;
}

void let_run_in_child() {
    Thread &thread = of_thread;
    if (--thread.held == 0 && std::exchange(thread.has_kept, false)) {
        const int error = errno;
        LIBC(syscall)(SYS_rt_sigprocmask, SIG_SETMASK, &thread.mask, nullptr, sizeof(thread.mask));
        errno = error;
    }
}

// A child of vfork(2) has its parent's memory, but handlers of its own. It sets them at the kernel.
int set(int signal, const struct sigaction *wanted, struct sigaction *before) {
    if (!is_signal(signal)) {
        return LIBC(sigaction)(signal, wanted, before);
    }
    Disposition &disposition = dispositions.at(static_cast<std::size_t>(signal));
    const Handler handler = disposition.handler;
    const int flags = disposition.flags;
    struct sigaction own{};
    if (wanted != nullptr) {
        own = *wanted;
        if (is_handler(own) && !is_take(own) && !base::is_in_parents_memory()) {
            disposition.handler = own.sa_sigaction;
            disposition.flags = own.sa_flags;
            own.sa_sigaction = take;
            own.sa_flags = (own.sa_flags | SA_SIGINFO) & ~static_cast<int>(SA_RESETHAND);
        }
    }
    struct sigaction had{};
    const int result = LIBC(sigaction)(signal, wanted != nullptr ? &own : nullptr, &had);
    if (result != 0) {
        disposition.handler = handler;
        disposition.flags = flags;
        return result;
    }
    if (before != nullptr) {
        if (is_take(had)) {
            had.sa_sigaction = handler;
            had.sa_flags = flags;
        }
        *before = had;
    }
    return result;
}

void adopt(int signal) {
    struct sigaction now{};
    if (!is_signal(signal) || LIBC(sigaction)(signal, nullptr, &now) != 0) {
        return;
    }
    if (is_take(now)) {  // siginterrupt(3) has changed a flag
        std::atomic<int> &flags = dispositions.at(static_cast<std::size_t>(signal)).flags;
        flags = (flags & ~SA_RESTART) | (now.sa_flags & SA_RESTART);
    } else if (is_handler(now)) {
        (void)set(signal, &now, nullptr);
    }
}

sighandler_t of_program(int signal) {
    struct sigaction action{};
    if (is_signal(signal)) {
        action.sa_sigaction = dispositions.at(static_cast<std::size_t>(signal)).handler;
    }
    return action.sa_handler;
}

bool is_own(sighandler_t handler) {
    struct sigaction action{};
    action.sa_handler = handler;
    return is_take(action);
}

}  // namespace carry::handlers
