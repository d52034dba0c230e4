// SPDX-License-Identifier: BSD-3-Clause
// rsocket/socket: an rsocket of a TCP socket that another program made, which handed its descriptor over.
#include <fcntl.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>

#include <cerrno>

#include "base/log.hpp"
#include "rsocket/socket.hpp"

namespace rsockets {

namespace {

// As <netinet/tcp.h> has them, which does not go with <linux/tcp.h>.
enum TcpState { TcpEstablished = 1, TcpSynReceived = 3, TcpClosed = 7, TcpListening = 10 };

// Whether somebody has sent bytes, or taken some of those that came.
bool is_used(int fd, const tcp_info &tcp) {
    int unread = 0;
    return tcp.tcpi_bytes_sent != 0 || ioctl(fd, SIOCINQ, &unread) != 0 ||
           tcp.tcpi_bytes_received != static_cast<__u64>(unread);
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
    State state = State::Undecided;
    if (tcp.tcpi_state == TcpClosed) {
        state = State::Fresh;
    } else if (tcp.tcpi_state == TcpListening) {
        state = State::Listening;
    } else if (is_used(fd, tcp)) {
        BASE_LOG(Warning,
                 "descriptor %d: the TCP connection has been used (expected one that nobody has read or "
                 "written): its stream, or what else it carries, is another program's",
                 fd);
        return base::failure(ECONNRESET);
    }
    const int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) {
        return base::last_failure();
    }
    auto adopted = std::make_shared<Socket>(base::Fd{fd}, state, configuration().settings, true);
    adopted->in_tcp_ = state == State::Listening;
    return adopted;
}

}  // namespace rsockets
