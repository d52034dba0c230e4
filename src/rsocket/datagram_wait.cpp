// SPDX-License-Identifier: BSD-3-Clause
// rsocket/datagram_socket: the events that a socket is ready for, and how threads wait for them.
#include <algorithm>
#include <new>

#include "rsocket/datagram_socket.hpp"

namespace rsockets {

std::shared_ptr<stream::Shard> DatagramSocket::advance() {
    const base::Lock lock{mutex_};
    serve();
    tell_news();
    return nullptr;
}

short DatagramSocket::readiness(short events) {
    const base::Lock lock{mutex_};
    if (closed_) {
        return POLLNVAL;
    }
    // The kernel's socket is asked only about sending and about its end, because messages that have come are
    // in the inbox.
    int ready = polled(fd(), static_cast<short>(events & ~(POLLIN | POLLRDNORM)));
    if (!endpoint().can_send()) {
        ready &= ~(POLLOUT | POLLWRNORM);
    }
    if (endpoint_->has_message() || is_shut_to_read_ || endpoint_->error() != 0) {
        ready |= events & (POLLIN | POLLRDNORM);
    }
    return static_cast<short>(ready | (endpoint_->error() != 0 ? POLLERR : 0));
}

Result<void> DatagramSocket::begin_wait(Sleep &sleep, short events) {
    const base::Lock lock{mutex_};
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
    const base::Lock lock{mutex_};
    end_wait_locked(sleep);
}

void DatagramSocket::end_wait_locked(const Sleep &sleep) {
    waiters_.remove(sleep.waiter());
    end_wait_of(sleep.waiter().get());
}

Result<std::vector<pollfd>> DatagramSocket::watch(short events) {
    const base::Lock lock{mutex_};
    end_wait_of(nullptr);  // a device of the kernel is asked for each event
    auto descriptors = begin_wait_of(nullptr, events);
    if (!descriptors) {
        return std::unexpected{descriptors.error()};
    }
    if (!descriptors->empty()) {
        // The socket tells of news; earlier messages do not matter.
        descriptors->front().events = static_cast<short>(POLLIN | (events & POLLOUT));
        serve();  // a queue pair does not tell of what came before
        tell_news();
    }
    return descriptors;
}

void DatagramSocket::end_watch() {
    const base::Lock lock{mutex_};
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

// The child has the UDP socket too, and makes queue pairs of its own when it needs them.
DatagramSocket::DatagramSocket(base::Fd fd, const DatagramSocket &parents)
    : AnySocket{std::move(fd)},
      domain_{parents.domain_},
      blocks_{parents.blocks_},
      is_shut_to_read_{parents.is_shut_to_read_},
      is_shut_to_write_{parents.is_shut_to_write_},
      settings_{parents.settings_},
      receive_timeout_{parents.receive_timeout_},
      send_timeout_{parents.send_timeout_} {}

std::shared_ptr<AnySocket> DatagramSocket::in_child() const {
    return std::make_shared<DatagramSocket>(base::Fd{fd()}, *this);
}

}  // namespace rsockets
