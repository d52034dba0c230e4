// SPDX-License-Identifier: BSD-3-Clause
// socket_preload/statistics: see the header.
#include "socket_preload/statistics.hpp"

#include <netinet/in.h>
#include <pthread.h>
#include <rpma/rsocket.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <set>

#include "socket_preload/configuration.hpp"
#include "socket_preload/descriptors.hpp"
#include "socket_preload/libc.hpp"

namespace socket_preload {

namespace {

// Whether streams of the kernel's could have been carried instead.
bool is_tcp(int fd) {
    int protocol = 0;
    socklen_t length = sizeof(protocol);
    return LIBC(getsockopt)(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &length) == 0 && protocol == IPPROTO_TCP;
}

char program[64];  // before it writes its title there

// NOLINTNEXTLINE(cppcoreguidelines-special-member-functions): there is one, and it does one thing.
struct AtExit {
    AtExit() {
        (void)std::snprintf(program, sizeof(program), "%s", program_invocation_short_name);
        if (secure_getenv("RSOCKET_PRELOAD_STATS") != nullptr) {
            statistics.begin();
        }
    }
    ~AtExit() { statistics.tell(); }
} at_exit;

// A child counts what it does itself.
[[maybe_unused]] const int counts_from_fork = pthread_atfork(nullptr, nullptr, [] { statistics.forget(); });

}  // namespace

void Statistics::rsocket_ends(int fd) {
    int mode = RDMA_MODE_OPEN;
    socklen_t length = sizeof(mode);
    if (wanted_ && rgetsockopt(fd, SOL_RDMA, RDMA_MODE, &mode, &length) == 0 && mode != RDMA_MODE_OPEN) {
        add(mode == RDMA_MODE_RDMA ? carried_ : plain_, 1);
    }
}

int Statistics::accepted_by_kernel(int accepted) {
    if (wanted_ && accepted >= 0 && is_tcp(accepted)) {
        add(plain_, 1);
    }
    return accepted;
}

int Statistics::connected_by_kernel(int fd, int result) {
    if (wanted_) {
        const int error = errno;
        if ((result == 0 || error == EINPROGRESS) && is_tcp(fd)) {
            add(plain_, 1);
        }
        errno = error;
    }
    return result;
}

void Statistics::forget() {
    for (Count *const count : {&carried_, &plain_, &received_, &sent_}) {
        count->store(0);
    }
}

void Statistics::tell() {
    std::set<int> open;
    for (int fd = 0; wanted_ && fd < static_cast<int>(Descriptors::most); ++fd) {
        const Kind kind = descriptors.kind(fd);
        if (kind == Kind::Rsocket || kind == Kind::RsocketAgain) {
            open.insert(kind == Kind::Rsocket ? fd : descriptors.first_of(fd));
        }
    }
    std::ranges::for_each(open, [this](int fd) { rsocket_ends(fd); });
    if (!wanted_ || carried_ + plain_ == 0) {
        return;
    }
    char line[256];
    const int length =
        std::snprintf(line, sizeof(line),
                      "rpma run --sockets: %s[%d]: %" PRIu64 " connections over rsockets, %" PRIu64
                      " over TCP; %" PRIu64 " bytes received, %" PRIu64 " sent%s\n",
                      program, static_cast<int>(getpid()), carried_.load(), plain_.load(), received_.load(),
                      sent_.load(), carries_anything() ? "" : " (preload_config excludes this program)");
    [[maybe_unused]] const auto written =
        LIBC(write)(STDERR_FILENO, line, std::min(static_cast<std::size_t>(length), sizeof(line) - 1));
}

}  // namespace socket_preload
