// SPDX-License-Identifier: BSD-3-Clause
// soft/transport/receiver: messages. A message that finds no receive is kept, within a bound, while the
// receiver continues to parse. Beyond the bound the stream stalls until a receive is posted. The end of the
// stream comes after the kept messages, but at most limits::unclaimed_timeout after the last receive;
// messages that have none by then are dropped.
#include <bit>
#include <utility>

#include "base/log.hpp"
#include "soft/ground/limits.hpp"
#include "soft/transport/receiver.hpp"

namespace soft {

Accepted<> Receiver::begin_message() {
    const wire::Segment &segment = incoming_.segment();
    Inbox &inbox = parts_.inbox;
    const std::size_t more = wire::is_send(segment.opcode) ? segment.payload_bytes : 0;
    if (const auto follows = inbox.check(segment.msn, segment.offset, more); !follows) {
        return follows;
    }
    place_at_ = inbox.bytes();
    if (!inbox.inside_message()) {
        inbox.begin(inbox.keeps_nothing() && may_take_receive());
    }
    return {};
}

// Returns whether the message that begins may take a receive.
bool Receiver::may_take_receive() const {
    const wire::Segment &segment = incoming_.segment();
    if (parts_.inbox.shared() == nullptr || !wire::is_send(segment.opcode)) {
        return true;
    }
    const std::size_t buffered = incoming_.buffered().size();
    const std::size_t trailer = wire::fpdu_trailer_bytes(wire::segment_bytes(segment));
    if (segment.last && buffered >= incoming_.payload_left() + trailer) {
        return true;
    }
    return incoming_.payload_left() >= limits::shared_message_bytes &&
           (buffered >= limits::shared_message_bytes ||
            buffered + link_->unread_bytes() >= limits::shared_message_bytes);
}

Accepted<> Receiver::finish_message_segment() {
    const wire::Segment &segment = incoming_.segment();
    Inbox &inbox = parts_.inbox;
    inbox.segment_arrived(segment.payload_bytes);
    if (!segment.last) {
        return {};
    }
    const bool invalidates = wire::invalidates(segment.opcode);
    // The key is invalidated before the program gets the message, even when the message still waits for its
    // receive.
    if (invalidates) {
        if (const auto invalidated = parts_.access.invalidate(segment.stag); !invalidated) {
            return invalidated;
        }
    }
    return inbox.message_arrived({.opcode = IBV_WC_RECV,
                                  .bytes = inbox.bytes(),
                                  .solicited = segment.opcode == wire::Opcode::SendSolicited ||
                                               segment.opcode == wire::Opcode::SendSolicitedInvalidate,
                                  .flags = invalidates ? unsigned{IBV_WC_WITH_INV} : 0U,
                                  .immediate = invalidates ? segment.stag : 0});
}

// Ends the send that is arriving. Without one, the immediate data belongs to the write before it.
Accepted<> Receiver::immediate_arrived(std::span<const std::byte> body) {
    const auto immediate = wire::decode_immediate(body);
    if (!immediate) {
        return refused(immediate.error());
    }
    Inbox &inbox = parts_.inbox;
    const bool of_a_write = !inbox.inside_message();
    if (of_a_write && (in_write_ || write_bytes_ > limits::max_message_bytes)) {
        return refused({"immediate data inside a write, or behind one longer than the largest message",
                        wire::terminate::operation_unspecified});
    }
    if (const auto begun = begin_message(); !begun) {
        return begun;
    }
    return inbox.message_arrived(
        {.opcode = of_a_write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV,
         .bytes = of_a_write ? static_cast<std::uint32_t>(std::exchange(write_bytes_, 0)) : inbox.bytes(),
         .solicited = incoming_.segment().opcode == wire::Opcode::ImmediateSolicited,
         .flags = IBV_WC_WITH_IMM,
         .immediate = std::bit_cast<std::uint32_t>(*immediate)});
}

void Receiver::stall() {
    BASE_LOG_PEER(Info, "connection with %s waits for a receive: %zu messages of %zu bytes are kept",
                  parts_.access.text().c_str(), parts_.inbox.kept_messages(), parts_.inbox.kept_bytes());
    stalled_ = true;
    // A connection may stay stalled for ever, and has to notice, once, that the peer is gone.
    parts_.sender.want_readable(false, true);
}

// Takes the end of the peer's stream. The messages before the end arrive, because programs that disconnect
// after their last send rely on that. A program that waits for the end before it posts receives gets the end
// too.
Outcome<> Receiver::stream_ended() {
    if (!parts_.inbox.keeps_whole()) {
        return std::unexpected{Broken{.by = Broken::By::End}};
    }
    stall();
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
    const bool begins = !std::exchange(end_held_, true);
    parts_.sender.want_readable(false, false);  // also when a failure of the link has asked for reading since
    if (begins) {
        parts_.group.set_deadline(parts_.source, base::Clock::now() + limits::unclaimed_timeout);
    }
}

Outcome<> Receiver::receives_posted() {
    if (const Outcome<bool> delivered = accepted(parts_.inbox.deliver()); !delivered) {
        return std::unexpected{delivered.error()};
    }
    if (!stalled_) {
        return {};
    }
    stalled_ = end_held_ = false;
    parts_.sender.want_readable(true, false);
    return go_on();
}

Outcome<> Receiver::unpark() {
    if (const Outcome<bool> answered = accepted(responder_.unpark()); !answered) {
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

}  // namespace soft
