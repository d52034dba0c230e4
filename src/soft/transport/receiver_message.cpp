// SPDX-License-Identifier: BSD-3-Clause
// soft/transport/receiver: messages. A message that finds no receive is kept, within a bound, while the
// receiver continues to parse.
#include <bit>
#include <utility>

#include "soft/ground/limits.hpp"
#include "soft/transport/receiver.hpp"

namespace soft {

[[gnu::hot]] OrRefusal<> Receiver::begin_message() {
    const wire::Segment &segment = incoming_.segment();
    Inbox &inbox = parts_.inbox;
    const std::size_t more = wire::is_send(segment.opcode) ? segment.payload_bytes : 0;
    if (const auto follows = inbox.check(segment, more); !follows) {
        return follows;
    }
    place_at_ = inbox.bytes();
    if (!inbox.inside_message()) {
        inbox.begin(inbox.keeps_nothing() && may_take_receive(), segment.queue);
    }
    return {};
}

// Returns whether the message that begins may take a receive.
bool Receiver::may_take_receive() const {
    const wire::Segment &segment = incoming_.segment();
    if (!parts_.inbox.shares() || !wire::is_send(segment.opcode)) {
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

[[gnu::hot]] OrRefusal<> Receiver::finish_message_segment() {
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
OrRefusal<> Receiver::immediate_arrived(std::span<const std::byte> body) {
    const auto immediate = wire::decode_immediate(body);
    if (!immediate) {
        return make_refusal(immediate.error());
    }
    Inbox &inbox = parts_.inbox;
    const bool of_a_write = !inbox.inside_message();
    if (of_a_write && (in_write_ || write_bytes_ > limits::max_message_bytes)) {
        return make_refusal({"immediate data inside a write, or behind one longer than the largest message",
                             wire::terminate::operation_unspecified});
    }
    if (of_a_write && std::exchange(lost_, false)) {
        return inbox.lose_message(incoming_.segment());
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

}  // namespace soft
