// SPDX-License-Identifier: BSD-3-Clause
#include "socket_preload/carried.hpp"

#include <rpma/rsocket.h>
#include <unistd.h>

#include <cerrno>

#include "base/cancelling.hpp"
#include "base/fork.hpp"
#include "base/interpose.hpp"
#include "socket_preload/statistics.hpp"
#include "socket_preload/stdio.hpp"

namespace socket_preload {

void add_number(int first, int number, Kind again) {
    descriptors.add(first, number, again);
    begin_standard_stream(number);
}

int close_carried(int fd, Kind kind) {
    if (base::is_in_parents_memory()) {
        return LIBC(close)(fd);
    }
    // Meanwhile the number is neither the program's nor the library's.
    const base::Cancelling disabled{PTHREAD_CANCEL_DISABLE};
    const bool again = kind == Kind::RsocketAgain || kind == Kind::RepollAgain;
    const int first = again ? descriptors.first_of(fd) : fd;
    // From here on the first number is the library's, until there is no duplicate and all bytes have left.
    if (!descriptors.change(fd, kind, again ? Kind::Other : Kind::Own)) {
        errno = EBADF;  // another thread has closed it
        return -1;
    }
    if (again) {
        (void)LIBC(close)(fd);
    }
    if (!descriptors.take_away(first)) {
        return 0;
    }
    statistics.rsocket_ends(first);
    return rclose(first);
}

}  // namespace socket_preload
