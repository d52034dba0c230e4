// SPDX-License-Identifier: BSD-3-Clause
// carry_preload/signals: the functions that set a signal's handler.
#include <signal.h>

#include "base/interpose.hpp"
#include "carry/handlers.hpp"

// Other names of sigaction(2) and signal(2).
extern "C" {
int __sigaction(int signal, const struct sigaction *wanted, struct sigaction *before) noexcept;
sighandler_t bsd_signal(int signal, sighandler_t handler) noexcept;
}

INTERPOSED(3, sigaction)(int signal, const struct sigaction *wanted, struct sigaction *before) noexcept {
    return carry::handlers::set(signal, wanted, before);
}

INTERPOSED(3, __sigaction)(int signal, const struct sigaction *wanted, struct sigaction *before) noexcept {
    return carry::handlers::set(signal, wanted, before);
}

// They fail with SIG_ERR, which is no null pointer, and leave errno alone otherwise.
// NOLINTBEGIN(cppcoreguidelines-macro-usage): only the preprocessor makes a name of a name
#define SETS_HANDLER(name)                                                                   \
    NAMED(sighandler_t, name, int signal, sighandler_t handler) {                            \
        return carry::handlers::set_by(signal, [&] { return LIBC(name)(signal, handler); }); \
    }
// NOLINTEND(cppcoreguidelines-macro-usage)
SETS_HANDLER(signal)
SETS_HANDLER(ssignal)
SETS_HANDLER(bsd_signal)
SETS_HANDLER(sysv_signal)
SETS_HANDLER(__sysv_signal)
SETS_HANDLER(sigset)

INTERPOSED(2, siginterrupt)(int signal, int interrupts) noexcept {
    const int result = LIBC(siginterrupt)(signal, interrupts);
    carry::handlers::adopt(signal);
    return result;
}
