// SPDX-License-Identifier: BSD-3-Clause
// soft/transport/connection_state: the state of a connection as one value, and the table of its changes.
#pragma once

#include <array>
#include <atomic>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/log.hpp"
#include "base/shared_value.hpp"

namespace soft {

enum class ConnectionState : std::uint8_t {
    Idle,  // there was no link yet
    // There is a link:
    AwaitsPromised,  // the responder sends nothing before the first FPDU, which the initiator has promised
    AwaitsFirst,     // the same, but the initiator promised none
    Open,            // both sides send
    Stalled,         // the peer's bytes wait until a receive is posted
    PeerClosed,      // the peer's last messages wait until a receive is posted
    SendsOnly,       // the peer's bytes are dropped until all of ours are sent
    // There is none any more, or it is about to go:
    Lost,           // only the link has ended (QueuePair::lose_link())
    Draining,       // the peer may still have to read; the owner was told of the end
    Disconnecting,  // the same, and the owner is told when it is done
    Ended,
};

enum class ConnectionEvent : std::uint8_t {
    BeginsInitiator,
    BeginsPromised,   // a responder; the initiator has promised an FPDU
    BeginsResponder,  // a responder; the initiator has promised none
    FirstFpdu,
    Stalls,
    PeerCloses,
    ReceivesPosted,
    IgnoresPeer,
    LosesLink,
    Disconnects,  // this side ends it in order
    Breaks,       // it ends for any other reason
    Ends,
    Resets,
};

[[nodiscard]] constexpr bool is_linked(ConnectionState state) {
    return state >= ConnectionState::AwaitsPromised && state <= ConnectionState::SendsOnly;
}
[[nodiscard]] constexpr bool awaits_peer(ConnectionState state) {
    return state == ConnectionState::AwaitsPromised || state == ConnectionState::AwaitsFirst;
}
// Returns whether the link is not read until a receive is posted.
[[nodiscard]] constexpr bool awaits_receive(ConnectionState state) {
    return state == ConnectionState::Stalled || state == ConnectionState::PeerClosed;
}
// Returns whether the peer's bytes are taken and parsed.
[[nodiscard]] constexpr bool is_read(ConnectionState state) {
    return awaits_peer(state) || state == ConnectionState::Open;
}
// Returns whether all requests and receives are flushed.
[[nodiscard]] constexpr bool is_over(ConnectionState state) {
    return state >= ConnectionState::Draining;
}

// Returns the state behind the event; nothing when the event does not occur in that state.
[[nodiscard]] constexpr std::optional<ConnectionState> after(ConnectionState state, ConnectionEvent event) {
    using enum ConnectionState;
    using Next = std::optional<ConnectionState>;
    // A queue pair that was given up, or has ended, still gets the link that its id was connecting, and ends
    // it.
    const bool takes_link = state == Idle || state == Ended;
    switch (event) {
        case ConnectionEvent::BeginsInitiator:
            return takes_link ? Next{Open} : std::nullopt;
        case ConnectionEvent::BeginsPromised:
            return takes_link ? Next{AwaitsPromised} : std::nullopt;
        case ConnectionEvent::BeginsResponder:
            return takes_link ? Next{AwaitsFirst} : std::nullopt;
        case ConnectionEvent::FirstFpdu:
            return awaits_peer(state) ? Next{Open} : std::nullopt;
        case ConnectionEvent::Stalls:
            return is_read(state) ? Next{Stalled} : std::nullopt;
        case ConnectionEvent::PeerCloses:
            return is_read(state) || awaits_receive(state) ? Next{PeerClosed} : std::nullopt;
        case ConnectionEvent::ReceivesPosted:
            return awaits_receive(state) ? Next{Open} : std::nullopt;
        case ConnectionEvent::IgnoresPeer:
            return is_linked(state) ? Next{SendsOnly} : std::nullopt;
        case ConnectionEvent::LosesLink:
            return is_linked(state) ? Next{Lost} : std::nullopt;
        case ConnectionEvent::Disconnects:
            return is_linked(state) ? Next{Disconnecting} : std::nullopt;
        case ConnectionEvent::Breaks:
            return is_linked(state) ? Next{Draining} : std::nullopt;
        case ConnectionEvent::Ends:
            return Ended;
        case ConnectionEvent::Resets:
            return state == Ended ? Next{Idle} : std::nullopt;
    }
    return std::nullopt;
}

[[nodiscard]] constexpr const char *name_of(ConnectionState state) {
    constexpr std::array names{"idle",
                               "awaits the promised FPDU",
                               "awaits the first FPDU",
                               "open",
                               "stalled",
                               "closed by the peer",
                               "sends only",
                               "lost",
                               "draining",
                               "disconnecting",
                               "ended"};
    return names[static_cast<std::size_t>(state)];
}

// The state of a queue pair's connection. The group's lock guards its changes; any thread reads it.
class ConnectionStateCell {
public:
    explicit ConnectionStateCell(const std::uint32_t &queue_pair) : queue_pair_{queue_pair} {}
    [[nodiscard]] ConnectionState get() const { return state_.load(std::memory_order_acquire); }
    // The same, for the owner of the group's lock.
    [[nodiscard]] ConnectionState now() const { return state_.load(std::memory_order_relaxed); }
    void on(ConnectionEvent event) {
        const ConnectionState from = now();
        const std::optional<ConnectionState> next = after(from, event);
        assert(next);
        const ConnectionState to = next.value_or(from);
        base::set_shared(state_, to, std::memory_order_release);
        if (to != from) {
            BASE_LOG_PEER(Debug, "queue pair %u: its connection goes from '%s' to '%s'", queue_pair_,
                          name_of(from), name_of(to));
        }
    }

private:
    const std::uint32_t &queue_pair_;  // its number
    std::atomic<ConnectionState> state_{ConnectionState::Idle};
};

}  // namespace soft
