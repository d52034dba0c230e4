// SPDX-License-Identifier: BSD-3-Clause
// socket_preload/statistics: see the header.
#include "socket_preload/statistics.hpp"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>

#include "socket_preload/libc.hpp"

namespace socket_preload {

namespace {

// Whether streams of the kernel's could have been carried instead.
bool is_tcp(int fd) {
    int protocol = 0;
    socklen_t length = sizeof(protocol);
    return LIBC(getsockopt)(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &length) == 0 && protocol == IPPROTO_TCP;
}

// NOLINTNEXTLINE(cppcoreguidelines-special-member-functions): there is one, and it does one thing.
struct AtExit {
    AtExit() {
        if (secure_getenv("RSOCKET_PRELOAD_STATS") != nullptr) {
            statistics.begin();
        }
    }
    ~AtExit() { statistics.tell(); }
} at_exit;

}  // namespace

int Statistics::plain(int accepted) {
    if (wanted_ && accepted >= 0 && is_tcp(accepted)) {
        add(plain_, 1);
    }
    return accepted;
}

int Statistics::connected_plainly(int fd, int result) {
    if (wanted_) {
        const int error = errno;
        if ((result == 0 || error == EINPROGRESS) && is_tcp(fd)) {
            add(plain_, 1);
        }
        errno = error;
    }
    return result;
}

void Statistics::tell() const {
    if (!wanted_ || carried_ + plain_ == 0) {
        return;
    }
    char line[256];
    const int length =
        std::snprintf(line, sizeof(line),
                      "rpma run --sockets: %s[%d]: %" PRIu64 " connections over rsockets, %" PRIu64
                      " over TCP; %" PRIu64 " bytes received, %" PRIu64 " sent over rsockets\n",
                      program_invocation_short_name, static_cast<int>(getpid()), carried_.load(),
                      plain_.load(), received_.load(), sent_.load());
    [[maybe_unused]] const auto written =
        LIBC(write)(STDERR_FILENO, line, std::min(static_cast<std::size_t>(length), sizeof(line) - 1));
}

}  // namespace socket_preload
