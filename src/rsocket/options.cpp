// SPDX-License-Identifier: BSD-3-Clause
// rsocket/socket: options. The kernel's TCP socket does all that it can; the rest says what a stream is made
// of, and how long its calls wait.
#include <cerrno>

#include "rsocket/kernel_socket.hpp"
#include "rsocket/option_value.hpp"
#include "rsocket/socket.hpp"

#include <rpma/rsocket.h>

namespace rsockets {

bool Socket::blocks() {
    const base::Lock lock{mutex_};
    return blocks_;
}

void Socket::set_blocking(bool blocks) {
    const base::Lock lock{mutex_};
    blocks_ = blocks;
    if (state_ == State::Plain) {
        set_kernel_blocking(blocks);
    } else if (state_ != State::Streaming) {
        keep_blocking(fd(), blocks);
    }
}

bool Socket::can_set_stream_options() const {
    return state_ != State::Streaming && state_ != State::Plain && !is_lost() &&
           (!is_open_yet() || state_ == State::Undecided);
}

// A stream does not begin for being asked about: another process may have the socket.
int Socket::mode() {
    if (stream_ != nullptr) {
        (void)serve();
    }
    const StreamLock in_stream{stream_};
    return state_ == State::Plain                           ? RDMA_MODE_TCP
           : in_stream && stream_->life().was_established() ? RDMA_MODE_RDMA
                                                            : RDMA_MODE_OPEN;
}

Result<void> Socket::set_option(int level, int name, const void *value, socklen_t length) {
    const base::Lock lock{mutex_};
    if (level == SOL_RDMA) {
        return can_set_stream_options() ? options_.set_of_rdma(name, value, length) : base::failure(EINVAL);
    }
    if (state_ != State::Plain && level == SOL_SOCKET && SocketOptions::is_of_stream(name)) {
        auto set = options_.set_of_stream(name, value, length);
        if (set && name == SO_RCVLOWAT) {
            open_stream_.set_low_water(options_.receive_low_water());
            waiters_.wake();
        }
        return set;
    }
    if (level == IPPROTO_TCP && name == TCP_SAVE_SYN && value_of<int>(value, length) == save_syn_of_streams) {
        return base::failure(EINVAL);  // what a listener accepted would look like streams of others
    }
    if (setsockopt(fd(), level, name, value, length) != 0) {
        return base::last_failure();
    }
    options_.of_kernel().keep(level, name, value, length);
    return {};
}

int Socket::buffer_bytes(std::uint32_t stream::Settings::*buffer) const {
    std::uint32_t bytes = options_.settings().*buffer;
    if (bytes == 0) {
        bytes = stream_ != nullptr ? stream_->settings().*buffer : stream::usual_bytes_of_soft;
    }
    return static_cast<int>(bytes);
}

Result<void> Socket::get_option(int level, int name, void *value, socklen_t *length) {
    const base::Lock lock{mutex_};
    if (level == SOL_RDMA) {
        switch (name) {
            case RDMA_SQSIZE:
                return give(int{options_.settings().sends}, value, length);
            case RDMA_RQSIZE:
                return give(int{options_.settings().receives}, value, length);
            case RDMA_INLINE:
                return give(static_cast<int>(options_.settings().inline_bytes), value, length);
            case RDMA_IOMAPSIZE:
                return give(static_cast<int>(options_.settings().slots), value, length);
            case RDMA_FALLBACK:
                return give(int{options_.may_be_tcp()}, value, length);
            case RDMA_MODE:
                return give(mode(), value, length);
            case RDMA_MODE_REASON:
                (void)serve();
                return give(reason_, value, length);
            default:
                return base::failure(ENOPROTOOPT);
        }
    }
    if (level == SOL_SOCKET && state_ != State::Plain) {
        switch (name) {
            case SO_RCVTIMEO:
                return give(timeval_of(options_.receive_timeout()), value, length);
            case SO_SNDTIMEO:
                return give(timeval_of(options_.send_timeout()), value, length);
            case SO_LINGER:
                return give(options_.lingering(), value, length);
            case SO_RCVBUF:
                return give(buffer_bytes(&stream::Settings::receive_bytes), value, length);
            case SO_SNDBUF:
                return give(buffer_bytes(&stream::Settings::send_bytes), value, length);
            case SO_RCVLOWAT:
                return give(static_cast<int>(options_.receive_low_water()), value, length);
            case SO_ERROR: {
                (void)serve();
                const StreamLock in_stream{stream_};
                const bool is_broken = stream_ != nullptr && state_ == State::Streaming;
                const int broken = is_lost() ? ECONNRESET : is_broken ? stream_->life().error() : 0;
                return give(pending_error_ != 0 ? std::exchange(pending_error_, 0) : broken, value, length);
            }
            default:
                break;
        }
    }
    return getsockopt(fd(), level, name, value, length) == 0 ? Result<void>{} : base::last_failure();
}

}  // namespace rsockets
