// SPDX-License-Identifier: BSD-3-Clause
// rsocket/datagram_socket: messages in and out, and the end of a socket.
#include "rsocket/datagram_socket.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/log.hpp"
#include "base/parts.hpp"
#include "rsocket/configuration.hpp"

namespace rsockets {

namespace {

// Says how long rclose waits until a device has sent its messages.
constexpr milliseconds close_timeout{100};

constexpr int datagram_send_flags_refused = MSG_OOB | MSG_MORE | MSG_FASTOPEN | MSG_DONTROUTE;
constexpr int datagram_receive_flags_refused = MSG_OOB | MSG_ERRQUEUE;

// Copies as many bytes as fit.
void scatter(std::span<const std::byte> content, std::span<const iovec> parts) {
    base::for_pieces(parts, 0, content.size(), [content](std::span<std::byte> to, std::size_t before) {
        std::memcpy(to.data(), content.data() + before, to.size());
    });
}

}  // namespace

Result<std::shared_ptr<AnySocket>> DatagramSocket::create(int domain, int type, int protocol) {
    if (configuration().tls) {
        BASE_LOG(Error, "no rsocket of type SOCK_DGRAM: RPMA_TLS asks for TLS, which datagrams do not have");
        return base::failure(EPROTONOSUPPORT);
    }
    // The kernel's socket never blocks: blocks_ says whether the program's calls wait.
    base::Fd fd{::socket(domain, type | SOCK_NONBLOCK, protocol)};
    if (!fd) {
        return base::last_failure();
    }
    if (auto prepared = datagram::udp::prepare(fd.get(), domain); !prepared) {
        return std::unexpected{prepared.error()};
    }
    return std::make_shared<DatagramSocket>(std::move(fd), domain, (type & SOCK_NONBLOCK) == 0);
}

datagram::Endpoint &DatagramSocket::endpoint() {
    if (endpoint_ == nullptr) {
        const auto slots = [](std::uint32_t bytes, std::uint16_t messages) {
            const std::uint32_t known = bytes != 0 ? bytes : stream::usual_bytes;
            return std::clamp<std::size_t>(known / datagram::slot_bytes, 1, messages);
        };
        const datagram::Room room{.receives = slots(settings_.receive_bytes, settings_.receives),
                                  .sends = slots(settings_.send_bytes, settings_.sends)};
        endpoint_ = std::make_unique<datagram::Endpoint>(fd(), domain_, room);
        endpoint_->peer_changed();
    }
    return *endpoint_;
}

Result<void> DatagramSocket::listen(int) {
    return base::failure(EOPNOTSUPP);
}

Result<std::shared_ptr<AnySocket>> DatagramSocket::accept(sockaddr *, socklen_t *, int) {
    return base::failure(EOPNOTSUPP);
}

Result<void> DatagramSocket::connect(const sockaddr *address, socklen_t length) {
    const base::Lock lock{mutex_};
    if (::connect(fd(), address, length) != 0) {
        return base::last_failure();
    }
    endpoint().peer_changed();
    list();
    return {};
}

void DatagramSocket::serve() {
    if (!closed_) {
        endpoint().serve();
    }
}

void DatagramSocket::tell_news() {
    if (endpoint_ != nullptr && endpoint_->take_news()) {
        waiters_.wake();
    }
}

template <typename Attempt>
Result<std::size_t> DatagramSocket::until(short events, bool blocks, milliseconds timeout, Attempt attempt) {
    const auto try_once = [&] {
        mutex_.assert_held();
        auto answer = closed_ ? Result<std::size_t>{base::failure(EBADF)} : attempt();
        tell_news();
        return answer;
    };
    const auto is_waiting = [](const auto &result) { return !result && result.error().number == EAGAIN; };
    const auto began = base::Clock::now();
    const Deadline deadline = timeout.count() != 0 ? Deadline{began + timeout} : std::nullopt;
    auto result = try_once();
    if (is_waiting(result)) {
        (void)stream::Shard::serve_expecting();
    }
    while (is_waiting(result) && blocks && base::Clock::now() < began + configuration().polling_time) {
        mutex_.unlock();
        mutex_.lock();
        result = try_once();
    }
    while (is_waiting(result) && blocks && (!deadline || base::Clock::now() < *deadline)) {
        const auto waiter = Waiter::of_this_thread();
        if (!waiter) {
            return std::unexpected{waiter.error()};
        }
        Sleep sleep{*waiter};
        auto slept = begin_wait_locked(sleep, events);
        result = slept ? try_once() : result;
        if (slept && is_waiting(result)) {
            const base::Unlock unlocked{mutex_};
            slept = sleep.until(deadline);
        }
        end_wait_locked(sleep);
        if (!slept) {
            return std::unexpected{slept.error()};
        }
        result = is_waiting(result) ? try_once() : result;
    }
    return result;
}

Result<std::size_t> DatagramSocket::receive(msghdr &message, int flags) {
    if ((flags & datagram_receive_flags_refused) != 0) {
        return base::failure(EOPNOTSUPP);
    }
    const base::Lock lock{mutex_};
    return until(POLLIN, blocks_ && (flags & MSG_DONTWAIT) == 0, receive_timeout_, [&] {
        mutex_.assert_held();
        return take(message, flags);
    });
}

Result<std::size_t> DatagramSocket::take(msghdr &message, int flags) {
    if (!endpoint().has_message()) {
        serve();
    }
    if (const int error = endpoint_->take_error(); error != 0) {
        return base::failure(error);
    }
    if (!endpoint_->has_message()) {
        return is_shut_to_read_ ? Result<std::size_t>{0} : base::failure(EAGAIN);
    }
    const datagram::Message &oldest = endpoint_->message();
    const std::span parts{message.msg_iov, message.msg_iovlen};
    scatter(oldest.content(), parts);
    if (message.msg_name != nullptr) {
        datagram::AnyAddress name;
        const socklen_t length = write_address(oldest.from, domain_, name);
        std::memcpy(message.msg_name, &name, std::min(message.msg_namelen, length));
        message.msg_namelen = length;
    }
    const std::size_t size = oldest.size;
    const std::size_t copied = std::min(size, base::size_of(parts));
    message.msg_controllen = 0;
    message.msg_flags = copied < size ? int{MSG_TRUNC} : 0;
    if ((flags & MSG_PEEK) == 0) {
        if (registry::Live *const live = entry().live()) {
            live->received_bytes += size;
        }
        endpoint_->drop_message();
    }
    return (flags & MSG_TRUNC) != 0 ? size : copied;
}

Result<std::size_t> DatagramSocket::send(const msghdr &message, int flags) {
    if ((flags & datagram_send_flags_refused) != 0) {
        return base::failure(EOPNOTSUPP);
    }
    const std::span parts{message.msg_iov, message.msg_iovlen};
    const base::Lock lock{mutex_};
    return until(
        POLLOUT, blocks_ && (flags & MSG_DONTWAIT) == 0, send_timeout_, [&]() -> Result<std::size_t> {
            mutex_.assert_held();
            if (is_shut_to_write_) {
                return base::failure(EPIPE);
            }
            if (const int error = endpoint().take_error(); error != 0) {
                return base::failure(error);
            }
            const auto sent =
                endpoint_->send(parts, static_cast<const sockaddr *>(message.msg_name), message.msg_namelen);
            if (!sent) {
                return std::unexpected{sent.error()};
            }
            const std::size_t bytes = base::size_of(parts);
            if (registry::Live *const live = entry().live()) {
                live->sent_bytes += bytes;
                ++live->sent_messages;
            }
            return bytes;
        });
}

Result<void> DatagramSocket::shutdown(int how) {
    const base::Lock lock{mutex_};
    const int result = ::shutdown(fd(), how);
    if (result != 0 && errno != ENOTCONN) {
        return base::last_failure();
    }
    // The kernel shuts a socket without a peer, too, although the call fails.
    is_shut_to_read_ = is_shut_to_read_ || how != SHUT_WR;
    is_shut_to_write_ = is_shut_to_write_ || how != SHUT_RD;
    waiters_.wake();
    return result == 0 ? Result<void>{} : base::failure(ENOTCONN);
}

void DatagramSocket::close() {
    const base::Lock lock{mutex_};
    if (endpoint_ != nullptr && !endpoint_->has_sent_all()) {
        (void)until(0, true, close_timeout, [&]() -> Result<std::size_t> {
            mutex_.assert_held();
            serve();
            return endpoint_->has_sent_all() ? Result<std::size_t>{0} : base::failure(EAGAIN);
        });
    }
    closed_ = true;
    waiters_.wake();
}

}  // namespace rsockets
