// SPDX-License-Identifier: BSD-3-Clause
// socket_preload/bytes: the handling of signals that libc's calls have, and the calls of rsockets do not
// have.
#pragma once

#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <cerrno>

#include "rsocket/process.hpp"
#include "socket_preload/libc.hpp"
#include "socket_preload/statistics.hpp"

namespace socket_preload {

// Returns whether a call that a signal has interrupted goes on, because all handlers that may have run ask
// for that (SA_RESTART). timeout is SO_RCVTIMEO or SO_SNDTIMEO: calls that have such a time do not go on.
[[nodiscard]] bool goes_on_after_signal(int fd, int timeout);

template <typename Call>
[[nodiscard]] auto restarted(int fd, int timeout, Call call) {
    const CancelledInSleep cancelled;
    auto result = call();
    while (result < 0 && errno == EINTR && goes_on_after_signal(fd, timeout)) {
        result = call();
    }
    return result;
}

template <typename Call>
[[nodiscard]] ssize_t received(int fd, Call call) {
    return statistics.received(restarted(fd, SO_RCVTIMEO, call));
}

// rsockets raise no SIGPIPE. libc's calls do, in the thread that sends; but a process that ends has no thread
// any more when its sockets end.
template <typename Call>
[[nodiscard]] ssize_t sent(int fd, Call call, int flags = 0) {
    const ssize_t bytes = restarted(fd, SO_SNDTIMEO, call);
    if (bytes < 0 && errno == EPIPE && (flags & MSG_NOSIGNAL) == 0 && !rsockets::process_ends()) {
        (void)pthread_kill(pthread_self(), SIGPIPE);
        errno = EPIPE;
    }
    return statistics.sent(bytes);
}

}  // namespace socket_preload
