// SPDX-License-Identifier: BSD-3-Clause
// rsocket/datagram_socket: messages in and out, options, and what a socket is ready for.
#include "rsocket/datagram_socket.hpp"

#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/fork.hpp"
#include "rsocket/option_value.hpp"

#include <rpma/rsocket.h>

namespace rsockets {

namespace {

// How long rclose waits for a device to send what it was given.
constexpr milliseconds close_timeout{100};

constexpr int most_messages = 0xfffe;
constexpr int send_flags_refused = MSG_OOB | MSG_MORE | MSG_FASTOPEN | MSG_DONTROUTE;
constexpr int receive_flags_refused = MSG_OOB | MSG_ERRQUEUE;

// Copies what fits.
void scatter(std::span<const std::byte> content, std::span<const iovec> parts) {
    for (const iovec &part : parts) {
        const auto here = content.first(std::min(content.size(), part.iov_len));
        std::ranges::copy(here, static_cast<std::byte *>(part.iov_base));
        content = content.subspan(here.size());
    }
}

std::size_t size_of(std::span<const iovec> parts) {
    std::size_t size = 0;
    for (const iovec &part : parts) {
        size += part.iov_len;
    }
    return size;
}

}  // namespace

Result<std::shared_ptr<AnySocket>> DatagramSocket::create(int domain, int type, int protocol) {
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
            return std::clamp<std::size_t>(bytes / datagram::slot_bytes, 1, messages);
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
    const std::scoped_lock lock{mutex_};
    if (::connect(fd(), address, length) != 0) {
        return base::last_failure();
    }
    endpoint().peer_changed();
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
Result<std::size_t> DatagramSocket::until(std::unique_lock<std::mutex> &lock, short events, bool blocks,
                                          milliseconds timeout, Attempt attempt) {
    const auto try_once = [&] {
        auto answer = closed_ ? Result<std::size_t>{base::failure(EBADF)} : attempt();
        tell_news();
        return answer;
    };
    const auto is_waiting = [](const auto &result) { return !result && result.error().number == EAGAIN; };
    const auto began = base::Clock::now();
    const Deadline deadline = timeout.count() != 0 ? Deadline{began + timeout} : std::nullopt;
    auto result = try_once();
    while (is_waiting(result) && blocks && base::Clock::now() < began + configuration().polling_time) {
        lock.unlock();
        lock.lock();
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
            lock.unlock();
            slept = sleep.until(deadline);
            lock.lock();
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
    if ((flags & receive_flags_refused) != 0) {
        return base::failure(EOPNOTSUPP);
    }
    std::unique_lock lock{mutex_};
    return until(lock, POLLIN, blocks_ && (flags & MSG_DONTWAIT) == 0, receive_timeout_,
                 [&] { return take(message, flags); });
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
    const std::size_t copied = std::min(size, size_of(parts));
    message.msg_controllen = 0;
    message.msg_flags = copied < size ? int{MSG_TRUNC} : 0;
    if ((flags & MSG_PEEK) == 0) {
        endpoint_->drop_message();
    }
    return (flags & MSG_TRUNC) != 0 ? size : copied;
}

Result<std::size_t> DatagramSocket::send(const msghdr &message, int flags) {
    if ((flags & send_flags_refused) != 0) {
        return base::failure(EOPNOTSUPP);
    }
    const std::span parts{message.msg_iov, message.msg_iovlen};
    std::unique_lock lock{mutex_};
    return until(
        lock, POLLOUT, blocks_ && (flags & MSG_DONTWAIT) == 0, send_timeout_, [&]() -> Result<std::size_t> {
            if (is_shut_to_write_) {
                return base::failure(EPIPE);
            }
            if (const int error = endpoint().take_error(); error != 0) {
                return base::failure(error);
            }
            const auto sent =
                endpoint_->send(parts, static_cast<const sockaddr *>(message.msg_name), message.msg_namelen);
            return sent ? Result<std::size_t>{size_of(parts)} : std::unexpected{sent.error()};
        });
}

Result<void> DatagramSocket::shutdown(int how) {
    const std::scoped_lock lock{mutex_};
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
    std::unique_lock lock{mutex_};
    if (endpoint_ != nullptr && !endpoint_->has_sent_all()) {
        (void)until(lock, 0, true, close_timeout, [&]() -> Result<std::size_t> {
            serve();
            return endpoint_->has_sent_all() ? Result<std::size_t>{0} : base::failure(EAGAIN);
        });
    }
    closed_ = true;
    waiters_.wake();
}

// ---- options ----

bool DatagramSocket::blocks() {
    const std::scoped_lock lock{mutex_};
    return blocks_;
}

void DatagramSocket::set_blocking(bool blocks) {
    const std::scoped_lock lock{mutex_};
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
    const auto messages = static_cast<std::uint16_t>(std::clamp(*number, 1, most_messages));
    if (name == RDMA_INLINE) {
        settings_.inline_bytes = static_cast<std::uint32_t>(*number);
    } else {
        (name == RDMA_SQSIZE ? settings_.sends : settings_.receives) = messages;
    }
    return {};
}

Result<void> DatagramSocket::set_option(int level, int name, const void *value, socklen_t length) {
    const std::scoped_lock lock{mutex_};
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
    // With these the kernel would change its datagrams, but not the messages that the program sees.
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
    const std::scoped_lock lock{mutex_};
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

// ---- waiting ----

std::shared_ptr<stream::Shard> DatagramSocket::advance() {
    const std::scoped_lock lock{mutex_};
    serve();
    tell_news();
    return nullptr;
}

short DatagramSocket::readiness(short events) {
    const std::scoped_lock lock{mutex_};
    if (closed_) {
        return POLLNVAL;
    }
    // The kernel's socket is asked only about sending and about its end: what has come is in the inbox.
    pollfd kernels{.fd = fd(), .events = static_cast<short>(events & ~(POLLIN | POLLRDNORM)), .revents = 0};
    (void)::poll(&kernels, 1, 0);
    int ready = kernels.revents;
    if (!endpoint().can_send()) {
        ready &= ~(POLLOUT | POLLWRNORM);
    }
    if (endpoint_->has_message() || is_shut_to_read_ || endpoint_->error() != 0) {
        ready |= events & (POLLIN | POLLRDNORM);
    }
    return static_cast<short>(ready | (endpoint_->error() != 0 ? POLLERR : 0));
}

Result<void> DatagramSocket::begin_wait(Sleep &sleep, short events) {
    const std::scoped_lock lock{mutex_};
    return begin_wait_locked(sleep, events);
}

Result<void> DatagramSocket::begin_wait_locked(Sleep &sleep, short events) {
    waiters_.add(sleep.waiter());
    const auto descriptors = begin_wait_of(sleep.waiter().get(), events);
    if (!descriptors) {
        return std::unexpected{descriptors.error()};
    }
    for (const pollfd &descriptor : *descriptors) {
        sleep.add(descriptor);
    }
    return {};
}

Result<std::vector<pollfd>> DatagramSocket::begin_wait_of(const Waiter *waiter, short events) {
    waiting_.push_back({.waiter = waiter, .pairs = {}});
    std::vector<pollfd> descriptors;
    if (closed_) {
        return descriptors;
    }
    // While the devices take nothing, the UDP socket would be ready for sending all the time.
    const int to_send = endpoint().can_send() ? events & (POLLOUT | POLLWRNORM) : 0;
    const int to_serve = endpoint().has_room() && !is_shut_to_read_ ? POLLIN : 0;
    descriptors.push_back({.fd = fd(), .events = static_cast<short>(to_send | to_serve), .revents = 0});
    waiting_.back().pairs.reserve(endpoint().pairs().size());
    for (datagram::QueuePair *const pair : endpoint().pairs()) {
        const auto its = pair->begin_wait();
        if (!its) {
            return std::unexpected{its.error()};
        }
        waiting_.back().pairs.push_back(pair);
        descriptors.push_back({.fd = *its, .events = POLLIN, .revents = 0});
    }
    return descriptors;
}

void DatagramSocket::end_wait(const Sleep &sleep) {
    const std::scoped_lock lock{mutex_};
    end_wait_locked(sleep);
}

void DatagramSocket::end_wait_locked(const Sleep &sleep) {
    waiters_.remove(sleep.waiter());
    end_wait_of(sleep.waiter().get());
}

Result<std::vector<pollfd>> DatagramSocket::watch(short events) {
    const std::scoped_lock lock{mutex_};
    end_wait_of(nullptr);  // a device of the kernel is asked for each event
    auto descriptors = begin_wait_of(nullptr, events);
    if (descriptors && !descriptors->empty()) {
        // The socket says when there is news, so that it does not matter what there is already.
        descriptors->front().events = static_cast<short>(POLLIN | (events & POLLOUT));
        serve();  // a queue pair does not tell of what came before
        tell_news();
    }
    return descriptors;
}

void DatagramSocket::end_watch() {
    const std::scoped_lock lock{mutex_};
    end_wait_of(nullptr);
}

void DatagramSocket::end_wait_of(const Waiter *waiter) {
    const auto found = std::ranges::find(waiting_, waiter, &Waiting::waiter);
    if (found == waiting_.end()) {
        return;
    }
    for (datagram::QueuePair *const pair : found->pairs) {
        pair->end_wait(waiting_.size() > 1);
    }
    waiting_.erase(found);
}

// The child has the UDP socket too, and makes queue pairs of its own when it needs them. It leaves the
// parent's as they are.
void DatagramSocket::after_fork_in_child() {
    new (&mutex_) std::mutex;
    waiters_.after_fork_in_child();
    waiting_.clear();
    base::leave_to_parent(std::move(endpoint_));
}

}  // namespace rsockets
