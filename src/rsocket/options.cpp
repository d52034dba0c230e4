// SPDX-License-Identifier: BSD-3-Clause
// rsocket/socket: options. The kernel's TCP socket does all that it can; the rest says what a stream is made
// of, and how long its calls wait.
#include <algorithm>
#include <cerrno>

#include "rsocket/kernel_socket.hpp"
#include "rsocket/option_value.hpp"
#include "rsocket/socket.hpp"

#include <rpma/rsocket.h>

namespace rsockets {

namespace {

constexpr int most_bytes = 1 << 30;
constexpr int most_messages = 0xfffe;

}  // namespace

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

void Socket::apply(const Options &options) const {
    if (options == nullptr) {
        return;
    }
    for (const Option &option : *options) {
        (void)setsockopt(fd(), option.level, option.name, option.value.data(),
                         static_cast<socklen_t>(option.value.size()));
    }
}

void Socket::keep(Options &options, int level, int name, const void *value, socklen_t length) {
    const auto *const bytes = static_cast<const std::byte *>(value);
    auto changed = options != nullptr ? *options : std::vector<Option>{};
    std::erase_if(changed, [&](const Option &known) { return known.level == level && known.name == name; });
    changed.push_back({.level = level, .name = name, .value = {bytes, bytes + length}});
    options = std::make_shared<const std::vector<Option>>(std::move(changed));
}

void Socket::copy_options(const Socket &from) {
    receive_timeout_ = from.receive_timeout_;
    send_timeout_ = from.send_timeout_;
    receive_low_water_ = from.receive_low_water_.load();
    linger_ = from.linger_;
    options_ = from.options_;
    stream_options_ = from.stream_options_;
    may_be_tcp_ = from.may_be_tcp_;
}

Result<void> Socket::set_socket_option(int name, const void *value, socklen_t length) {
    if (name == SO_RCVTIMEO || name == SO_SNDTIMEO) {
        const auto timeout = timeout_of(value, length);
        if (!timeout) {
            return std::unexpected{timeout.error()};
        }
        (name == SO_RCVTIMEO ? receive_timeout_ : send_timeout_) = *timeout;
        return {};
    }
    if (name == SO_LINGER) {
        const auto wanted = value_of<linger>(value, length);
        linger_ = wanted.value_or(linger_);
        return wanted ? Result<void>{} : base::failure(EINVAL);
    }
    const auto number = value_of<int>(value, length);
    if (!number) {
        return base::failure(EINVAL);
    }
    if (name == SO_RCVBUF) {
        settings_.receive_bytes = doubled_bytes(*number);
    } else if (name == SO_SNDBUF) {
        settings_.send_bytes = doubled_bytes(*number);
    } else {
        receive_low_water_ = static_cast<std::size_t>(std::clamp(*number, 1, most_bytes));
        waiters_.wake();
    }
    return {};
}

Result<void> Socket::set_rdma_option(int name, const void *value, socklen_t length) {
    const auto number = value_of<int>(value, length);
    if (!number || *number < 0 || state_ == State::Streaming || state_ == State::Plain || is_lost() ||
        (is_open_yet() && state_ != State::Undecided)) {
        return base::failure(EINVAL);
    }
    const auto messages = static_cast<std::uint16_t>(std::clamp(*number, 1, most_messages));
    switch (name) {
        case RDMA_SQSIZE:
            settings_.sends = messages;
            return {};
        case RDMA_RQSIZE:
            settings_.receives = messages;
            return {};
        case RDMA_INLINE:
            settings_.inline_bytes = static_cast<std::uint32_t>(std::min(*number, 0xffff));
            return {};
        case RDMA_IOMAPSIZE:
            settings_.slots = stream::from_scale(stream::to_scale(static_cast<std::uint32_t>(*number)));
            return {};
        case RDMA_FALLBACK:
            may_be_tcp_ = *number != 0;
            return {};
        default:
            return base::failure(ENOPROTOOPT);
    }
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
        return set_rdma_option(name, value, length);
    }
    if (state_ != State::Plain && level == SOL_SOCKET &&
        (name == SO_RCVTIMEO || name == SO_SNDTIMEO || name == SO_LINGER || name == SO_RCVBUF ||
         name == SO_SNDBUF || name == SO_RCVLOWAT)) {
        auto set = set_socket_option(name, value, length);
        if (set) {
            keep(stream_options_, level, name, value, length);
        }
        return set;
    }
    if (level == IPPROTO_TCP && name == TCP_SAVE_SYN && value_of<int>(value, length) == save_syn_of_streams) {
        return base::failure(EINVAL);  // what a listener accepted would look like streams of others
    }
    if (setsockopt(fd(), level, name, value, length) != 0) {
        return base::last_failure();
    }
    keep(options_, level, name, value, length);
    return {};
}

int Socket::buffer_bytes(std::uint32_t stream::Settings::*buffer) const {
    std::uint32_t bytes = settings_.*buffer;
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
                return give(int{settings_.sends}, value, length);
            case RDMA_RQSIZE:
                return give(int{settings_.receives}, value, length);
            case RDMA_INLINE:
                return give(static_cast<int>(settings_.inline_bytes), value, length);
            case RDMA_IOMAPSIZE:
                return give(static_cast<int>(settings_.slots), value, length);
            case RDMA_FALLBACK:
                return give(int{may_be_tcp_}, value, length);
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
                return give(timeval_of(receive_timeout_), value, length);
            case SO_SNDTIMEO:
                return give(timeval_of(send_timeout_), value, length);
            case SO_LINGER:
                return give(linger_, value, length);
            case SO_RCVBUF:
                return give(buffer_bytes(&stream::Settings::receive_bytes), value, length);
            case SO_SNDBUF:
                return give(buffer_bytes(&stream::Settings::send_bytes), value, length);
            case SO_RCVLOWAT:
                return give(static_cast<int>(receive_low_water_), value, length);
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
