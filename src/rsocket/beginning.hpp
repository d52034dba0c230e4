// SPDX-License-Identifier: BSD-3-Clause
// rsocket/beginning: how an rsocket becomes a stream or TCP. It asks the server to which it connects, or
// looks at the first bytes of its client. Carrier has the states.
#pragma once

#include "rsocket/carrier.hpp"
#include "rsocket/decision_time.hpp"
#include "rsocket/replay.hpp"

namespace rsockets {

// The lock of the rsocket guards it.
class Beginning {
public:
    explicit Beginning(Carrier &carrier) : carrier_{carrier} {}
    // Makes a forked child's own object of its parent's.
    Beginning(Carrier &carrier, const Beginning &parents)
        : carrier_{carrier},
          decision_time_{parents.decision_time_.in_child()},
          replay_{parents.replay_.in_child()} {}
    Beginning(const Beginning &) = delete;
    Beginning &operator=(const Beginning &) = delete;

    [[nodiscard]] Carrier &carrier() { return carrier_; }
    // Takes the rsocket to its next state, if there is news for that.
    void go_on() {
        carrier_.mutex().assert_held();
        if (carrier_.is_open_yet()) {
            decide();
        }
    }
    // Does the same, and serves the stream's shard. Returns whether there was anything for any stream.
    bool serve();

    // In beginning_reach.cpp.
    // Asks the peer over a device of the kernel where one serves the route's local address, and connects in
    // TCP elsewhere.
    [[nodiscard]] Result<void> reach(const sockaddr *address, socklen_t length);
    [[nodiscard]] bool is_connecting();
    // Returns whether the rsocket stays TCP if the peer of its stream does not answer.
    [[nodiscard]] bool may_fall_back();
    // Keeps bytes that are sent while it is Replaying.
    [[nodiscard]] Result<std::size_t> keep(std::span<const iovec> parts);
    // Returns whether there are bytes for the peer, and it is not decided yet whether they go by the stream
    // or in TCP. The caller holds the stream's lock.
    [[nodiscard]] bool waits_with_bytes();

    // In beginning_accepted.cpp.
    // The peer of an accepted rsocket has until then to begin its request.
    void begin_grace(base::Clock::time_point ends) { decision_time_.begin_grace(ends); }
    // The program is about to send. The rsocket becomes TCP if the peer's time is over.
    void speak_first();
    // Returns whether another process that has the descriptor has begun a stream on it. Then this one has
    // lost it.
    [[nodiscard]] bool lose_to_another();
    // The rsocket is TCP from now on.
    void stay_tcp(int reason);
    // Returns until when bytes of the peer may decide; nothing when that time is over.
    [[nodiscard]] Deadline due();

    // Begins a wait for the stream, or for what comes before there is one.
    [[nodiscard]] Result<void> begin_wait(Sleep &sleep);
    // Returns the descriptors that tell when the stream may begin, or another client may be accepted.
    [[nodiscard]] AnySocket::Watched watched();

private:
    void decide() REQUIRES(carrier_.mutex());
    // These return whether the state has changed.
    [[nodiscard]] bool take_connection() REQUIRES(carrier_.mutex());
    [[nodiscard]] bool take_answer() REQUIRES(carrier_.mutex());
    [[nodiscard]] bool replay() REQUIRES(carrier_.mutex());
    // Looks at the first bytes of an accepted rsocket's peer.
    [[nodiscard]] bool look_at_request() REQUIRES(carrier_.mutex());
    [[nodiscard]] bool begin_stream(stream::Side side) REQUIRES(carrier_.mutex());
    void fall_back(int reason) REQUIRES(carrier_.mutex());
    void drop_stream() REQUIRES(carrier_.mutex());
    // There is no connection, and another may be made. The program is told why.
    void give_up(int error) REQUIRES(carrier_.mutex());

    Carrier &carrier_;
    DecisionTime decision_time_;
    Replay replay_;
};

}  // namespace rsockets
