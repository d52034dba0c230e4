// SPDX-License-Identifier: BSD-3-Clause
// rsocket/socket: connecting, and the names of both ends.
#include <algorithm>
#include <cerrno>

#include "rsocket/call.hpp"
#include "rsocket/kernel_socket.hpp"
#include "rsocket/socket.hpp"
#include "rsocket/wait.hpp"
#include "stream/address.hpp"

namespace rsockets {

Result<void> Socket::connect(const sockaddr *address, socklen_t length) {
    base::Lock lock{carrier_.mutex()};
    (void)beginning_.serve();
    beginning_.go_on();
    const bool goes_on = connect_was_interrupted_;
    if (const int error = carrier_.take_error(); error != 0) {
        return base::failure(error);
    }
    if (carrier_.state() == State::Fresh) {
        if (auto begun = beginning_.reach(address, length); !begun) {
            return begun;
        }
        waiters_.wake();
        (void)beginning_.serve();
        if (!carrier_.blocks() && carrier_.is_open_yet()) {
            return base::failure(EINPROGRESS);
        }
    } else if (beginning_.is_connecting()) {
        if (!carrier_.blocks()) {
            return base::failure(EALREADY);
        }
    } else if (!is_plain() && !goes_on) {
        return base::failure(EISCONN);
    }
    if (is_plain()) {
        lock.unlock();
        return connect_in_tcp(address, length, goes_on);
    }
    const auto connected = wait_for_peer();
    connect_was_interrupted_ = !connected && connected.error().number == EINTR;
    return connected;
}

Result<void> Socket::connect_in_tcp(const sockaddr *address, socklen_t length, bool goes_on) {
    const auto reach = [&] {
        const Call::Pause pause;
        return ::connect(fd(), address, length);
    };
    if (reach() == 0 || (goes_on && errno == EISCONN)) {
        return {};
    }
    const auto failed = base::last_failure();
    if (failed.error().number != EINPROGRESS && failed.error().number != EALREADY &&
        failed.error().number != EISCONN && failed.error().number != EINTR) {
        const base::Lock lock{carrier_.mutex()};
        set_kernel_blocking(fd(), false);
        carrier_.set_state(State::Fresh);  // it may connect elsewhere
    }
    return failed;
}

Result<void> Socket::wait_for_peer() {
    // A program that is its own peer cannot answer while it waits here. After time_to_answer it goes on, and
    // the bytes that it sends wait for the answer. The time is not shorter, because no thread sends these
    // bytes if the program makes no other call of rsockets.
    const Deadline deadline = Wait::deadline_of(carrier_.options().send_timeout());
    const auto wait = [&](Deadline until_then, bool for_answer) {
        carrier_.mutex().assert_held();
        return Wait{beginning_, carrier_.blocks(), until_then}.until([&]() -> Result<void> {
            carrier_.assert_looks();
            if (const int error = carrier_.take_error(); error != 0) {
                return base::failure(error);
            }
            if (carrier_.state() == State::Fresh) {
                return base::failure(ENOTCONN);  // another call was told why
            }
            const bool is_there = !carrier_.is_open_yet() || (carrier_.stream() != nullptr &&
                                                              carrier_.stream()->life().was_established());
            return is_there || (!for_answer && carrier_.state() != State::Reaching) ? Result<void>{}
                                                                                    : base::failure(EAGAIN);
        });
    };
    auto connected = wait(deadline, false);
    if (connected && beginning_.may_fall_back()) {
        const auto soon = beginning_.due().value_or(base::Clock::now());
        connected = wait(deadline ? std::min(*deadline, soon) : soon, true);
        if (!connected && connected.error().number == EAGAIN && carrier_.state() == State::Offered) {
            return {};
        }
    }
    if (connected || connected.error().number == EAGAIN) {
        connected = wait(deadline, true);
    }
    if (!connected && connected.error().number == EAGAIN) {
        return base::failure(EINPROGRESS);
    }
    return connected;
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
