// SPDX-License-Identifier: BSD-3-Clause
// socket_preload/reuse: the calls that give the program a new number.
#include "socket_preload/reuse.hpp"

#include <fcntl.h>
#include <rpma/rsocket.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "base/cancelling.hpp"
#include "base/fork.hpp"
#include "base/interpose.hpp"
#include "socket_preload/descriptor_kinds.hpp"

namespace socket_preload {

namespace {

// Ends the rsocket or repoll whose number has become another descriptor's. Meanwhile the number is that of a
// socket without a peer, so that the calls of librsocket on it have no effect.
void forget(int number) {
    const base::Cancelling disabled{PTHREAD_CANCEL_DISABLE};
    const int flags = LIBC(fcntl)(number, F_GETFD);
    const int others = LIBC(fcntl)(number, F_DUPFD_CLOEXEC, 0);
    const int nobodys = LIBC(socket)(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (others >= 0 && nobodys >= 0 && LIBC(dup3)(nobodys, number, O_CLOEXEC) == number) {
        descriptors.set(number, Kind::Own);
        (void)rclose(number);
        (void)LIBC(dup3)(others, number, (flags & FD_CLOEXEC) != 0 ? O_CLOEXEC : 0);
    }
    for (const int fd : {others, nobodys}) {
        if (fd >= 0) {
            (void)LIBC(close)(fd);
        }
    }
}

}  // namespace

int fresh(int made) {
    if (made < 0 || base::is_in_parents_memory()) {
        return made;
    }
    if (descriptors.kind(made) == Kind::Other) {
        return made;
    }
    const int error = errno;
    const int first = descriptors.first_of_carried(made);
    if (first >= 0 && descriptors.take_away(first)) {
        forget(first);
    }
    descriptors.set(made, Kind::Other);
    errno = error;
    return made;
}

}  // namespace socket_preload

using socket_preload::fresh;

#include "base/new_descriptors.hpp"
