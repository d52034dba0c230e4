// SPDX-License-Identifier: BSD-3-Clause
// socket_preload/signals: which calls go on after a signal.
#include <rpma/rsocket.h>
#include <signal.h>
#include <sys/time.h>

#include "socket_preload/bytes.hpp"

namespace socket_preload {

namespace {

// This library does not know which signal it was. So one handler that does not ask for SA_RESTART is enough
// to end the call.
bool all_handlers_restart() {
    sigset_t blocked;
    (void)pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    for (int signal = 1; signal <= SIGRTMAX; ++signal) {
        struct sigaction action{};
        // An instruction raises these two, never a wait; the soft device has handlers of its own for them.
        if (signal == SIGSEGV || signal == SIGBUS || sigismember(&blocked, signal) == 1 ||
            sigaction(signal, nullptr, &action) != 0) {
            continue;
        }
        const bool is_handled = (action.sa_flags & SA_SIGINFO) != 0 ||
                                (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN);
        if (is_handled && (action.sa_flags & SA_RESTART) == 0) {
            return false;
        }
    }
    return true;
}

}  // namespace

bool goes_on_after_signal(int fd, int timeout) {
    timeval time{};
    socklen_t length = sizeof(time);
    const bool goes_on = rgetsockopt(fd, SOL_SOCKET, timeout, &time, &length) == 0 && time.tv_sec == 0 &&
                         time.tv_usec == 0 && all_handlers_restart();
    errno = EINTR;
    return goes_on;
}

}  // namespace socket_preload
