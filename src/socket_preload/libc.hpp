// SPDX-License-Identifier: BSD-3-Clause
// socket_preload/libc: the functions that this library stands in front of.
//
// A program's calls come to this library because it is preloaded. The rooms below it (rsocket, stream,
// librpma, soft) are linked into it, and must never come back in: the soft device's thread receives on a
// descriptor that is an rsocket for the program. So the link binds them around: `ld --wrap=NAME` lets each
// reference of theirs to NAME reach __wrap_NAME (libc.cpp), which calls libc. That is decided when the
// library is linked. No thread has to be marked, neither the engine's nor one that runs destructors at exit;
// and a room that begins to call another of these functions does not link until libc.cpp has it. (A mark per
// thread misses atfork handlers and destructors; the address that a call came from misses tail calls.) The
// price is a copy of the rooms in this library.
#pragma once

#include <signal.h>

#include <array>
#include <cstdarg>

#include "base/cancelling.hpp"
#include "base/interpose.hpp"
#include "base/signals.hpp"
#include "base/system_call.hpp"

namespace socket_preload {

// While one lives, this thread is cancelled only in the sleep of a wait, so that the work of the rooms below
// is never left half done. The constructor acts on a cancellation that is pending, as libc's calls do.
class CancelledInSleep {
public:
    CancelledInSleep();
    ~CancelledInSleep();
    CancelledInSleep(const CancelledInSleep &) = delete;
    CancelledInSleep &operator=(const CancelledInSleep &) = delete;

private:
    const base::Cancelling not_now_;
};

// Makes a call that is no cancellation point, by rooms that use some.
template <typename Call>
auto uncancelled(Call call) {
    const base::Cancelling disabled{PTHREAD_CANCEL_DISABLE};
    return call();
}

// While one lives, signals reach this thread only in its sleep, which has those of the mask blocked, as in
// ppoll(2); without a mask those that the thread had blocked before. So a handler that interrupts a wait may
// do all that it may when it interrupts libc's, which is one system call: it may fork(2) and allocate memory,
// when the program unblocks its signal for the wait only. Signals that an instruction raises come at once.
// The wait sleeps in poll(2) only.
class SleepMask {
public:
    explicit SleepMask(const sigset_t *mask = nullptr);
    ~SleepMask();
    SleepMask(const SleepMask &) = delete;
    SleepMask &operator=(const SleepMask &) = delete;

    // Returns what a wait that did not sleep and found nothing returns: 0; or -1 and EINTR, when a signal
    // that the mask lets through was waiting.
    [[nodiscard]] int nothing_found() const;

private:
    const bool is_given_;
    const base::HeldSignals held_;
};

// Gives a descriptor of this library's own a high number, and returns that. The program may count on the
// next free number or on numbers below FD_SETSIZE, or may dup2 onto one.
int kept(int fd);

// Returns an option of SOL_SOCKET that is a number, as the kernel has it; -1 when the descriptor is no
// socket.
[[nodiscard]] int option_of(int fd, int name);

// While one lives, the next descriptor of its kind that a room makes on this thread is for the program. All
// others are kept away from the program. A room's own sockets are closed on exec; it makes the program's
// without that, unless the program's call asks for it.
class ForProgram {
public:
    enum class Descriptor { None, Socket, Accepted, Set };
    struct Next {
        Descriptor descriptor = Descriptor::None;
        bool closes_on_exec = false;
    };
    explicit ForProgram(Descriptor descriptor, bool closes_on_exec = false);
    ~ForProgram();
    ForProgram(const ForProgram &) = delete;
    ForProgram &operator=(const ForProgram &) = delete;

private:
    const Next outer_;  // of a call that a handler has interrupted
};

}  // namespace socket_preload
