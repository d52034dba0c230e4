// SPDX-License-Identifier: BSD-3-Clause
// rsocket/datagram_socket: options. The kernel's UDP socket has most of them; the rest say how much room
// there is for messages, and how long calls wait.
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>

#include "rsocket/datagram_socket.hpp"
#include "rsocket/option_value.hpp"

#include <rpma/rsocket.h>

namespace rsockets {

bool DatagramSocket::blocks() {
    const base::Lock lock{mutex_};
    return blocks_;
}

void DatagramSocket::set_blocking(bool blocks) {
    const base::Lock lock{mutex_};
    blocks_ = blocks;
}

// Returns nothing for an option that a datagram socket does not have.
std::optional<int> DatagramSocket::rdma_option(int name) const {
    switch (name) {
        case RDMA_SQSIZE:
            return settings_.sends;
        case RDMA_RQSIZE:
            return settings_.receives;
        case RDMA_INLINE:
            return static_cast<int>(settings_.inline_bytes);
        default:
            return std::nullopt;
    }
}

Result<void> DatagramSocket::set_rdma_option(int name, const void *value, socklen_t length) {
    const auto number = value_of<int>(value, length);
    if (!rdma_option(name)) {
        return base::failure(ENOPROTOOPT);
    }
    if (endpoint_ != nullptr || !number || *number < 0) {
        return base::failure(EINVAL);
    }
    const auto messages = static_cast<std::uint16_t>(std::clamp(*number, 1, int{stream::most_messages}));
    if (name == RDMA_INLINE) {
        settings_.inline_bytes = static_cast<std::uint32_t>(*number);
    } else {
        (name == RDMA_SQSIZE ? settings_.sends : settings_.receives) = messages;
    }
    return {};
}

Result<void> DatagramSocket::set_option(int level, int name, const void *value, socklen_t length) {
    const base::Lock lock{mutex_};
    if (level == SOL_RDMA) {
        return set_rdma_option(name, value, length);
    }
    if (level == SOL_SOCKET && (name == SO_RCVTIMEO || name == SO_SNDTIMEO)) {
        const auto timeout = timeout_of(value, length);
        if (timeout) {
            (name == SO_RCVTIMEO ? receive_timeout_ : send_timeout_) = *timeout;
        }
        return timeout ? Result<void>{} : std::unexpected{timeout.error()};
    }
    // These options would change the kernel's datagrams, but not the messages that the program sees.
    if (level == IPPROTO_UDP || (level == IPPROTO_IP && name == IP_PKTINFO) ||
        (level == IPPROTO_IPV6 && name == IPV6_RECVPKTINFO)) {
        return base::failure(ENOPROTOOPT);
    }
    if (setsockopt(fd(), level, name, value, length) != 0) {
        return base::last_failure();
    }
    if (level == SOL_SOCKET && (name == SO_RCVBUF || name == SO_SNDBUF)) {
        const auto number = value_of<int>(value, length);
        (name == SO_RCVBUF ? settings_.receive_bytes : settings_.send_bytes) =
            doubled_bytes(number.value_or(0));
    }
    return {};
}

Result<void> DatagramSocket::get_option(int level, int name, void *value, socklen_t *length) {
    const base::Lock lock{mutex_};
    if (level == SOL_RDMA) {
        const auto number = rdma_option(name);
        return number ? give(*number, value, length) : base::failure(ENOPROTOOPT);
    }
    if (level == SOL_SOCKET && (name == SO_RCVTIMEO || name == SO_SNDTIMEO)) {
        return give(timeval_of(name == SO_RCVTIMEO ? receive_timeout_ : send_timeout_), value, length);
    }
    if (level == SOL_SOCKET && name == SO_ERROR) {
        serve();
        if (const int error = endpoint().take_error(); error != 0) {
            return give(error, value, length);
        }
    }
    return getsockopt(fd(), level, name, value, length) == 0 ? Result<void>{} : base::last_failure();
}

}  // namespace rsockets
