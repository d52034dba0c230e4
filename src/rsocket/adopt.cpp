// SPDX-License-Identifier: BSD-3-Clause
// rsocket/socket: how an rsocket is made of a TCP socket that another program made and handed over.
#include <fcntl.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>

#include <cerrno>

#include "base/log.hpp"
#include "rsocket/kernel_socket.hpp"
#include "rsocket/socket.hpp"
#include "rsocket/table.hpp"

#include <rpma/rsocket.h>

namespace rsockets {

namespace {

// These are the values of <netinet/tcp.h>, which cannot be included beside <linux/tcp.h>.
enum TcpState { TcpClosed = 7, TcpListening = 10 };

// Returns whether a program has sent bytes, or read some of the bytes that came.
bool is_used(int fd, const tcp_info &tcp) {
    int unread = 0;
    return tcp.tcpi_bytes_sent != 0 || ioctl(fd, SIOCINQ, &unread) != 0 ||
           tcp.tcpi_bytes_received > static_cast<__u64>(unread);  // more may have come since
}

}  // namespace

Result<std::shared_ptr<AnySocket>> Socket::adopt(int fd) {
    int protocol = 0;
    tcp_info tcp{};
    socklen_t size = sizeof(protocol);
    socklen_t tcp_size = sizeof(tcp);
    if (getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) != 0) {
        return base::last_failure();
    }
    if (protocol != IPPROTO_TCP) {
        return base::failure(ENOTSUP);
    }
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &tcp, &tcp_size) != 0) {
        return base::last_failure();
    }
    if (is_marked_as_stream(fd)) {
        BASE_LOG(Warning,
                 "descriptor %d: its stream is another program's (expected a connection without one)", fd);
        return base::failure(ECONNRESET);
    }
    const bool is_plain = tcp.tcpi_state != TcpListening && is_used(fd, tcp);
    const State state = is_plain                         ? State::Plain
                        : tcp.tcpi_state == TcpListening ? State::Listening
                        : tcp.tcpi_state == TcpClosed    ? State::Fresh
                                                         : State::Undecided;
    const int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || (!is_plain && fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0)) {
        return base::last_failure();
    }
    const bool blocks = is_plain ? (flags & O_NONBLOCK) == 0 : kept_blocking(fd, flags);
    return std::make_shared<Socket>(base::Fd{fd}, state, configuration().settings, blocks,
                                    is_plain ? RDMA_REASON_ADOPTED : RDMA_REASON_NONE);
}

}  // namespace rsockets
