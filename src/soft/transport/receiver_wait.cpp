// SPDX-License-Identifier: BSD-3-Clause
// soft/transport/receiver: what the receiver waits for. It stalls when it can keep no more messages, until a
// receive is posted. The end of the stream comes after the kept messages, but at most
// limits::InForce::unclaimed_timeout after the last receive; messages that have none by then are dropped. A
// segment or message that the peer has begun has a time limit.
#include <new>
#include <utility>

#include "base/log.hpp"
#include "soft/ground/limits.hpp"
#include "soft/transport/receiver.hpp"

namespace soft {

// Sends the answers that parsing added, and times the segment or message that the peer has begun.
[[gnu::hot]] void Receiver::answer_and_watch() {
    serves();
    if (const bool news = take_news(); responder_.take_answer_due() || news) {
        parts_.sender.transmit_ready();
    }
    const Inbox &inbox = parts_.inbox;
    if (state() != ConnectionState::AwaitsPromised && state() != ConnectionState::SendsOnly &&
        (incoming_.inside() || inbox.holds_shared_receive()) && pace_.begin(peers_position())) {
        parts_.group.set_deadline(parts_.source, base::Clock::now() + pace_.timeout());
    }
    if (incoming_.has_buffer() && incoming_.is_empty()) {
        parts_.group.give_back(incoming_.take_buffer());
    }
}

// Returns whether more is placed than at the last call, which the peer is to be told.
[[gnu::hot]] bool Receiver::take_news() {
    const wire::Acknowledgement placed = parts_.placed.now();
    return std::exchange(seen_, placed) != placed;
}

PeerPosition Receiver::peers_position() const {
    const Inbox &inbox = parts_.inbox;
    const bool in_message = incoming_.in_segment() && wire::is_send(incoming_.segment().opcode);
    const std::size_t arrived = in_message ? incoming_.segment().payload_bytes - incoming_.payload_left() : 0;
    return {.inside_segment = incoming_.inside(),
            .holds_shared_receive = inbox.holds_shared_receive(),
            .segments = incoming_.segments(),
            .next_msn = inbox.next_msn(),
            .message_bytes = inbox.bytes() + arrived};
}

void Receiver::stall() {
    BASE_LOG_PEER(Info, "connection with %s waits for a receive: %zu messages of %zu bytes are kept",
                  parts_.access.text().c_str(), parts_.inbox.kept_messages(), parts_.inbox.kept_bytes());
    parts_.state.on(ConnectionEvent::Stalls);
    // A connection may stay stalled for ever, and has to notice, once, that the peer is gone.
    parts_.sender.want_readable(false, true);
}

// Takes the end of the peer's stream. The messages before the end arrive, because programs that disconnect
// after their last send rely on that. A program that waits for the end before it posts receives gets the end
// too.
Outcome<> Receiver::stream_ended() {
    if (!parts_.inbox.keeps_whole() || state() == ConnectionState::SendsOnly) {
        return broken_by(EndReason::Closed);
    }
    if (is_read(state())) {
        stall();
    }
    hold_end();
    return {};
}

void Receiver::link_ended() {
    if (const int error = link_->failure()) {
        parts_.sender.fail(error);
    }
    hold_end();
}

void Receiver::hold_end() {
    serves();
    const bool begins = state() != ConnectionState::PeerClosed;
    parts_.state.on(ConnectionEvent::PeerCloses);
    parts_.sender.want_readable(false, false);  // also when a failure of the link has asked for reading since
    // The end of a peer by number tells the program nothing (QueuePair::lose_link()), so it can wait.
    if (begins && !parameters_.by_number) {
        parts_.group.set_deadline(parts_.source, base::Clock::now() + limits::in_force().unclaimed_timeout);
    }
}

Outcome<> Receiver::receives_posted() {
    try {
        if (const Outcome<bool> delivered = or_broken(parts_.inbox.deliver()); !delivered) {
            return std::unexpected{delivered.error()};
        }
    } catch (const std::bad_alloc &) {
        return broken_by(EndReason::NoMemory);  // the line of a queue of XRC may have to grow
    }
    if (!awaits_receive(state())) {
        if (take_news()) {
            parts_.sender.transmit_ready();
        }
        return {};
    }
    parts_.state.on(ConnectionEvent::ReceivesPosted);
    parts_.sender.want_readable(true, false);
    return go_on();
}

Outcome<> Receiver::unpark() {
    if (const Outcome<bool> answered = or_broken(responder_.unpark()); !answered) {
        return std::unexpected{answered.error()};
    }
    return go_on();
}

// Parses the bytes that were read before the connection waited for receives or for storage. The peer gets its
// whole time again for the missing part of a segment.
Outcome<> Receiver::go_on() {
    if (const Outcome<> parsed = parse(); !parsed) {
        return parsed;
    }
    pace_.forget();
    answer_and_watch();
    return {};
}

Outcome<> Receiver::expire() {
    if (state() == ConnectionState::PeerClosed) {
        return broken_by(EndReason::Closed);
    }
    // When this process or its thread did not run for a while, the link may have bytes that the peer sent in
    // time.
    if (!awaits_receive(state()) && !parked()) {
        if (const Outcome<> received = receive(); !received) {
            return received;
        }
    }
    const bool ours_to_go_on = awaits_receive(state()) || parked();
    if (state() == ConnectionState::AwaitsPromised || (!ours_to_go_on && pace_.is_late(peers_position()))) {
        return broken_by(EndReason::Silence);
    }
    pace_.forget();
    answer_and_watch();
    return {};
}

void Receiver::stop() {
    serves();
    if (incoming_.has_buffer()) {
        parts_.group.give_back(incoming_.take_buffer());
    }
}

}  // namespace soft
