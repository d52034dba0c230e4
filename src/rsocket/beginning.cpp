// SPDX-License-Identifier: BSD-3-Clause
// rsocket/beginning: the way from one state to the next, and the descriptors that a thread waits for
// meanwhile.
#include "rsocket/beginning.hpp"

#include "rsocket/kernel_socket.hpp"

namespace rsockets {

void Beginning::decide() {
    const auto state = carrier_.state();
    if (state == Carrier::State::Reaching    ? take_connection()
        : state == Carrier::State::Offered   ? take_answer()
        : state == Carrier::State::Replaying ? replay()
                                             : look_at_request()) {
        carrier_.rsocket().waiters().wake(true);  // they sleep on something else
    }
}

bool Beginning::serve() {
    carrier_.mutex().assert_held();
    go_on();
    const StreamLock in_stream{carrier_.stream()};
    return in_stream && carrier_.stream()->serve_shard();
}

bool Beginning::begin_stream(stream::Side side) {
    if (lose_to_another()) {
        return true;
    }
    const bool asks = side == stream::Side::Active;
    // A child that is forked meanwhile has lost it.
    carrier_.set_state(asks ? Carrier::State::Offered : Carrier::State::Streaming);
    mark_as_stream(carrier_.fd());
    // The waiter is made now, so that this thread can also wait for the stream when no descriptor is left
    // later.
    const auto waiter = Waiter::of_this_thread();
    auto stream = waiter ? stream::Connection::begin(stream::Approach::on_socket(side, carrier_.fd()),
                                                     carrier_.options().settings(), carrier_.observer())
                         : std::unexpected{waiter.error()};
    if (!stream) {
        // The kernel says why there is no connection any more.
        const int gone = pending_error(carrier_.fd());
        const int error = gone != 0 ? gone : stream.error().number;
        if (asks) {
            give_up(error);
        } else {
            (void)::shutdown(carrier_.fd(), SHUT_RDWR);  // the peer would get no answer
            carrier_.fail(error);
        }
        return true;
    }
    carrier_.take(std::move(*stream));
    if (!asks) {
        decision_time_.drop_timer();
    }
    carrier_.options().of_kernel().apply(carrier_.fd());  // the device has set options of its own
    return true;
}

Result<void> Beginning::begin_wait(Sleep &sleep) {
    carrier_.mutex().assert_held();
    carrier_.rsocket().waiters().add(sleep.waiter());
    if (carrier_.stream() != nullptr) {
        if (auto joined = sleep.join(carrier_.stream()->shard());
            !joined || carrier_.state() == Carrier::State::Streaming) {
            return joined;
        }
    }
    for (const pollfd &descriptor : watched().descriptors) {
        sleep.add(descriptor);
    }
    return {};
}

AnySocket::Watched Beginning::watched() {
    using State = Carrier::State;
    carrier_.mutex().assert_held();
    carrier_.list_in_child();
    std::vector<pollfd> descriptors;
    carrier_.listening().add_descriptor(descriptors);
    const State state = carrier_.state();
    if (state != State::Lost && carrier_.stream() == nullptr &&
        (state != State::Listening || carrier_.listening().is_in_tcp())) {
        const bool reads = state == State::Listening || state == State::Undecided || state == State::Fresh;
        descriptors.push_back(
            {.fd = carrier_.fd(), .events = static_cast<short>(reads ? POLLIN : POLLOUT), .revents = 0});
    }
    std::optional<pollfd> timer;
    if ((state == State::Undecided || state == State::Offered) && carrier_.options().may_be_tcp()) {
        timer = decision_time_.timer(state == State::Undecided);
    }
    if (timer) {
        descriptors.push_back(*timer);
    }
    return {.descriptors = std::move(descriptors),
            .timer = timer ? decision_time_.owner_of_timer() : nullptr};
}

Deadline Beginning::due() {
    carrier_.mutex().assert_held();
    return carrier_.options().may_be_tcp() ? decision_time_.due() : std::nullopt;
}

}  // namespace rsockets
