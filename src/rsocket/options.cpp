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
    switch (state) {
        case Carrier::State::Fresh:
        case Carrier::State::Listening:
        case Carrier::State::Undecided:
            return true;
        case Carrier::State::Reaching:
        case Carrier::State::Offered:
        case Carrier::State::Replaying:
        case Carrier::State::Streaming:
        case Carrier::State::Plain:
        case Carrier::State::Lost:
            break;
    }
    return false;
}

// Returns one of RDMA_MODE_. A stream does not begin for being asked about: another process may have the
// socket.
int mode_of(Carrier &carrier, Beginning &beginning) REQUIRES(carrier.mutex()) {
    if (carrier.stream() != nullptr) {
        (void)beginning.serve();
    }
    const StreamLock in_stream{carrier.stream()};
    return carrier.state() == Carrier::State::Plain                  ? RDMA_MODE_TCP
           : in_stream && carrier.stream()->life().was_established() ? RDMA_MODE_RDMA
                                                                     : RDMA_MODE_OPEN;
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
    if (!is_plain() && level == SOL_SOCKET && SocketOptions::is_of_stream(name)) {
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
            case RDMA_FALLBACK:
                return give(int{carrier_.options().may_be_tcp()}, value, length);
            case RDMA_MODE:
                return give(mode_of(carrier_, beginning_), value, length);
            case RDMA_MODE_REASON:
                (void)beginning_.serve();
                return give(carrier_.reason(), value, length);
            default:
                return base::failure(ENOPROTOOPT);
        }
    }
    if (level == SOL_SOCKET && !is_plain()) {
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
                (void)beginning_.serve();
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
