// SPDX-License-Identifier: BSD-3-Clause
// rsocket/socket: connecting, and the names of both ends.
#include <cerrno>
#include <utility>

#include "rsocket/kernel_socket.hpp"
#include "rsocket/socket.hpp"
#include "rsocket/wait.hpp"
#include "stream/address.hpp"

namespace rsockets {

Result<void> Socket::connect(const sockaddr *address, socklen_t length) {
    const base::Lock lock{carrier_.mutex()};
    carrier_.serve();
    carrier_.go_on();
    const bool goes_on = std::exchange(connect_was_interrupted_, false);
    if (const int error = carrier_.take_error(); error != 0) {
        return base::failure(error);
    }
    if (carrier_.state() == State::Fresh) {
        if (auto begun = carrier_.connect(address, length); !begun) {
            return begun;
        }
        waiters_.wake();
        carrier_.serve();
        carrier_.go_on();
        if (!carrier_.blocks() && carrier_.state() == State::Connecting) {
            return base::failure(EINPROGRESS);
        }
    } else if (carrier_.state() == State::Lost) {
        return carrier_.lost();
    } else if (carrier_.state() != State::Connecting && !goes_on) {
        return base::failure(EISCONN);
    } else if (!carrier_.blocks() && carrier_.state() == State::Connecting) {
        return base::failure(EALREADY);
    }
    const auto connected = wait_for_peer();
    connect_was_interrupted_ = !connected && connected.error().number == EINTR;
    return connected;
}

Result<void> Socket::wait_for_peer() {
    const Deadline deadline = Wait::deadline_of(carrier_.options().send_timeout());
    const auto connected = Wait{carrier_, carrier_.blocks(), deadline}.until([&]() -> Result<void> {
        carrier_.assert_looks();
        if (const int error = carrier_.take_error(); error != 0) {
            return base::failure(error);
        }
        if (carrier_.state() == State::Connecting) {
            return base::failure(EAGAIN);
        }
        // Where there is no stream, another call was told why.
        return carrier_.state() == State::Streaming ? Result<void>{} : base::failure(ENOTCONN);
    });
    return Wait::is_waiting(connected) ? base::failure(EINPROGRESS) : connected;
}

Result<void> Socket::name(base::End end, sockaddr *address, socklen_t *length) {
    const base::Lock lock{carrier_.mutex()};
    if (const StreamLock in_stream{carrier_.stream()}) {
        const auto known = carrier_.stream()->name(end);
        if (known) {
            if (address == nullptr || length == nullptr) {
                return base::failure(EFAULT);
            }
            give_name(stream::as_seen_by(family_of(fd()), *known), address, length);
            return {};
        }
    }
    return AnySocket::name(end, address, length);
}

}  // namespace rsockets
