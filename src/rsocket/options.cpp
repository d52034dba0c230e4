// SPDX-License-Identifier: BSD-3-Clause
// rsocket/socket: options. The kernel's TCP socket has all options that it can have. The others set the
// sizes of a stream, and how long its calls wait.
#include <cerrno>

#include "rsocket/kernel_socket.hpp"
#include "rsocket/option_value.hpp"
#include "rsocket/socket.hpp"

#include <rpma/rsocket.h>

namespace rsockets {

namespace {

// Returns whether the sizes of the rsocket's stream can still be set.
bool can_set_stream_options(Carrier::State state) {
    return state == Carrier::State::Fresh || state == Carrier::State::Listening ||
           state == Carrier::State::Accepted;
}

}  // namespace

bool Socket::blocks() {
    const base::Lock lock{carrier_.mutex()};
    return carrier_.blocks();
}

void Socket::set_blocking(bool blocks) {
    const base::Lock lock{carrier_.mutex()};
    carrier_.set_blocking(blocks);
}

Result<void> Socket::set_option(int level, int name, const void *value, socklen_t length) {
    const base::Lock lock{carrier_.mutex()};
    if (level == SOL_RDMA) {
        return can_set_stream_options(carrier_.state()) ? carrier_.options().set_of_rdma(name, value, length)
                                                        : base::failure(EINVAL);
    }
    if (level == SOL_SOCKET && SocketOptions::is_of_stream(name)) {
        auto set = carrier_.options().set_of_stream(name, value, length);
        if (set && name == SO_RCVLOWAT) {
            carrier_.open_stream().set_low_water(carrier_.options().receive_low_water());
            waiters_.wake();
        }
        return set;
    }
    if (level == IPPROTO_TCP && name == TCP_SAVE_SYN && value_of<int>(value, length) == save_syn_of_streams) {
        return base::failure(EINVAL);  // the sockets that a listener accepts would look like streams
    }
    if (setsockopt(fd(), level, name, value, length) != 0) {
        return base::last_failure();
    }
    carrier_.options().of_kernel().keep(level, name, value, length);
    return {};
}

Result<void> Socket::get_option(int level, int name, void *value, socklen_t *length) {
    const base::Lock lock{carrier_.mutex()};
    if (level == SOL_RDMA) {
        switch (name) {
            case RDMA_SQSIZE:
                return give(int{carrier_.options().settings().sends}, value, length);
            case RDMA_RQSIZE:
                return give(int{carrier_.options().settings().receives}, value, length);
            case RDMA_INLINE:
                return give(static_cast<int>(carrier_.options().settings().inline_bytes), value, length);
            case RDMA_IOMAPSIZE:
                return give(static_cast<int>(carrier_.options().settings().slots), value, length);
            default:
                return base::failure(ENOPROTOOPT);
        }
    }
    if (level == SOL_SOCKET) {
        switch (name) {
            case SO_RCVTIMEO:
                return give(timeval_of(carrier_.options().receive_timeout()), value, length);
            case SO_SNDTIMEO:
                return give(timeval_of(carrier_.options().send_timeout()), value, length);
            case SO_LINGER:
                return give(carrier_.options().lingering(), value, length);
            case SO_RCVBUF:
                return give(carrier_.buffer_bytes(&stream::Settings::receive_bytes), value, length);
            case SO_SNDBUF:
                return give(carrier_.buffer_bytes(&stream::Settings::send_bytes), value, length);
            case SO_RCVLOWAT:
                return give(static_cast<int>(carrier_.options().receive_low_water()), value, length);
            case SO_ERROR: {
                carrier_.serve();
                const StreamLock in_stream{carrier_.stream()};
                const bool is_streaming = in_stream && carrier_.state() == State::Streaming;
                const int broken = carrier_.state() == State::Lost ? ECONNRESET
                                   : is_streaming                  ? carrier_.stream()->life().error()
                                                                   : 0;
                return give(carrier_.has_error() ? carrier_.take_error() : broken, value, length);
            }
            default:
                break;
        }
    }
    return getsockopt(fd(), level, name, value, length) == 0 ? Result<void>{} : base::last_failure();
}

}  // namespace rsockets
