// SPDX-License-Identifier: BSD-3-Clause
// soft/transport/receiver: takes the incoming bytes segment by segment.
#include "soft/transport/receiver.hpp"

#include <algorithm>
#include <new>

#include "base/log.hpp"

namespace soft {

namespace {

// The number of reads in one turn, so that other connections of the group have theirs.
constexpr int rounds_in_a_turn = 32;

using LinkState = Link::Received::State;

// Returns the status of the operation for which the peer ended the connection.
ibv_wc_status status_of(const wire::TerminateCode &code) {
    if (code == wire::terminate::untagged_no_buffer) {
        return IBV_WC_RNR_RETRY_EXC_ERR;
    }
    if (code == wire::terminate::untagged_too_long || code == wire::terminate::untagged_queue) {
        return IBV_WC_REM_INV_REQ_ERR;
    }
    const bool protection = code.type == 1 && code.layer <= 1;
    return protection ? IBV_WC_REM_ACCESS_ERR : IBV_WC_REM_OP_ERR;
}

}  // namespace

void Receiver::begin(Link &link, const ConnectionParameters &parameters) {
    link_ = &link;
    responder_.begin();
    answers_.begin();
    pace_.forget();
    place_at_ = write_bytes_ = 0;
    in_write_ = lost_ = false;
    parameters_ = parameters;
    promised_ = false;
    seen_ = {};
    incoming_.begin(parameters.crc);
}

[[gnu::hot]] Outcome<> Receiver::receive() {
    serves();
    if (state() == ConnectionState::SendsOnly) {
        return link_->discard() ? broken_by(EndReason::Closed) : Outcome<>{};
    }
    if (!has_or_borrows_buffer()) {
        return broken_by(EndReason::NoMemory);
    }
    for (int round = 0; round < rounds_in_a_turn && !parked() && is_read(state()); ++round) {
        const Outcome<Link::Received> got = fill();
        if (!got) {
            return std::unexpected{got.error()};
        }
        if (got->bytes > 0) {
            if (const Outcome<> parsed = parse(); !parsed) {
                return parsed;
            }
        }
        if (got->state == LinkState::More) {
            continue;
        }
        if (got->state == LinkState::Failed) {
            parts_.sender.fail(got->error);
        }
        if (got->state != LinkState::Drained) {
            if (const Outcome<> ended = stream_ended(); !ended) {
                return ended;
            }
        }
        break;
    }
    answer_and_watch();
    return {};
}

// No other segment is as short as an empty tagged one, so no bytes of the next segment are read, and the link
// still has the rest of a longer one.
Outcome<> Receiver::receive_empty_first() {
    serves();
    if (!has_or_borrows_buffer()) {
        return broken_by(EndReason::NoMemory);
    }
    constexpr std::size_t shortest = wire::fpdu_bytes({.opcode = wire::Opcode::Write});
    if (const std::size_t has = incoming_.buffered().size(); has < shortest) {
        const Link::Received got = incoming_.fill(*link_, shortest - has);
        if (got.state == LinkState::Failed) {
            parts_.sender.fail(got.error);
        }
        if (got.state == LinkState::Failed || got.state == LinkState::Ended) {
            return stream_ended();
        }
    }
    const wire::Decoded<bool> decoded = incoming_.decode();
    if (!decoded || (*decoded && wire::fpdu_bytes(incoming_.segment()) <= incoming_.buffered().size())) {
        if (const Outcome<> parsed = parse(); !parsed) {
            return parsed;
        }
    }
    if (incoming_.is_empty()) {
        parts_.group.give_back(incoming_.take_buffer());
    }
    return {};
}

[[gnu::always_inline]] inline bool Receiver::has_or_borrows_buffer() {
    serves();
    if (!incoming_.has_buffer()) {
        incoming_.lend(parts_.group.borrow_buffer(incoming_.buffer_size()));
    }
    return incoming_.has_buffer();
}

// Receives bytes from the link.
[[gnu::hot]] Outcome<Link::Received> Receiver::fill() {
    if (incoming_.in_segment() && incoming_.payload_left() != 0 && incoming_.is_empty() && !parameters_.crc &&
        !drops() && !parts_.inbox.keeps()) {
        try {
            const OrRefusal<Link::Received> got = fill_target();
            if (got) {
                return *got;
            }
            const Outcome<bool> goes_on = or_broken(std::unexpected{got.error()});
            return goes_on ? Outcome<Link::Received>{} : std::unexpected{goes_on.error()};
        } catch (const std::bad_alloc &) {
            return broken_by(EndReason::NoMemory);
        }
    }
    return incoming_.fill(*link_);
}

[[gnu::hot]] Outcome<> Receiver::parse() {
    Outcome<> parsed;
    try {
        parsed = parse_all();
    } catch (const std::bad_alloc &) {
        parsed = broken_by(EndReason::NoMemory);
    }
    parts_.access.let_go();
    return parsed;
}

[[gnu::hot]] Outcome<> Receiver::parse_all() {
    while (!parked() && is_read(state())) {
        const Outcome<bool> step = parse_one();
        if (!step) {
            return std::unexpected{step.error()};
        }
        if (!*step) {
            break;
        }
    }
    return {};
}

// Makes one step; returns false when more bytes are needed.
[[gnu::hot]] Outcome<bool> Receiver::parse_one() {
    if (!incoming_.in_segment()) {
        return begin_segment();
    }
    if (incoming_.payload_left() != 0) {
        if (const Outcome<bool> placed = or_broken(place_buffered()); !placed || !*placed) {
            return placed;
        }
    }
    if (awaits_receive(state()) || !incoming_.take_trailer()) {
        return false;
    }
    const wire::Segment &segment = incoming_.segment();
    if (segment.opcode == wire::Opcode::ReadResponse) {
        answers_.finish_read(segment);
    } else if (segment.opcode == wire::Opcode::Write && segment.last && !std::exchange(promised_, false)) {
        parts_.placed.write();
    }
    return wire::is_send(segment.opcode) ? or_broken(finish_message_segment()) : true;
}

[[gnu::hot]] Outcome<bool> Receiver::begin_segment() {
    const wire::Decoded<bool> decoded = incoming_.decode();
    if (!decoded) {
        Broken broken{.by = EndReason::Violation, .violation = decoded.error()};
        const auto header = incoming_.refused_header();
        std::ranges::copy(header, broken.header.begin());
        broken.header_bytes = header.size();
        return std::unexpected{broken};
    }
    if (!*decoded) {
        return false;
    }
    const wire::Segment &segment = incoming_.segment();
    const wire::Decoded<bool> whole = incoming_.can_begin();
    if (!whole) {
        return or_broken(make_refusal(whole.error()));
    }
    if (!*whole) {
        return false;
    }
    if (segment.opcode != wire::Opcode::Write) {
        parts_.access.let_go();  // the segment may take its key back
    }
    if (wire::is_of_message(segment.opcode)) {
        if (parts_.inbox.is_full()) {
            stall();
            return false;
        }
        // The message may answer one of ours, which completes first: programs that poll one queue rely on it.
        parts_.sender.wait_for_posts();
    }
    incoming_.count_segment();
    if (awaits_peer(state()) && segment.opcode != wire::Opcode::Terminate) {
        const bool is_promised = state() == ConnectionState::AwaitsPromised;
        parts_.state.on(ConnectionEvent::FirstFpdu);
        if (is_promised) {
            promised_ = segment.opcode == wire::Opcode::Write;
            parts_.owner.peer_began();
        }
        parts_.sender.allow();
    }
    if (is_data(segment.opcode)) {
        incoming_.begin_payload();
        return or_broken(begin_data());
    }
    const std::span<const std::byte> body = incoming_.take_control();
    return segment.opcode == wire::Opcode::Terminate ? terminated(body) : or_broken(control_message(body));
}

// A refusal ends the connection. There is an exception: a connection that is to end when everything is sent
// continues to send, and ignores the peer from then on. Its program may already have deregistered memory, and
// the peer does not know that. So the bytes that the program sent before still arrive, and the peer cannot
// guess keys, because all its further bytes are ignored.
[[gnu::hot]] Outcome<bool> Receiver::or_broken(const OrRefusal<> &result) {
    serves();
    if (result) {
        return true;
    }
    if (result.error().of == Refusal::Of::Access && parts_.sender.only_has_to_send()) {
        parts_.state.on(ConnectionEvent::IgnoresPeer);
        incoming_.forget();
        parts_.group.clear_deadline(parts_.source);
        return false;
    }
    return std::unexpected{violation(result.error())};
}

Broken Receiver::violation(const Refusal &refusal) const {
    Broken broken{.by = EndReason::Violation, .violation = refusal.violation};
    if (refusal.of != Refusal::Of::KeptMessage) {
        broken.header_bytes = wire::encode_header(incoming_.segment(), broken.header);
    }
    broken.read_request = refusal.read_request;
    return broken;
}

[[gnu::hot]] OrRefusal<> Receiver::begin_data() {
    switch (incoming_.segment().opcode) {
        case wire::Opcode::Write:
            return begin_write();
        case wire::Opcode::ReadResponse:
            if (const auto offset = answers_.begin_read(incoming_.segment()); offset) {
                place_at_ = *offset;
                return {};
            } else {
                return std::unexpected{offset.error()};
            }
        default:
            return begin_message();
    }
}

// Takes a message that fits into one segment.
OrRefusal<> Receiver::control_message(std::span<const std::byte> body) {
    const wire::Segment &segment = incoming_.segment();
    const bool may_follow = wire::is_tagged(segment.opcode) || wire::is_immediate(segment.opcode);
    if (!segment.last || (!may_follow && segment.offset != 0)) {
        return make_refusal({"a request or answer in several segments", wire::terminate::untagged_offset});
    }
    if ((segment.opcode > wire::Opcode::Terminate && !parameters_.soft_peer) ||
        (segment.opcode == wire::Opcode::Acknowledgement && !parameters_.acknowledged)) {
        return make_refusal({"an RDMAP opcode that was not agreed on", wire::terminate::unexpected_opcode});
    }
    switch (segment.opcode) {
        case wire::Opcode::ReadRequest:
            return responder_.read_requested(segment.msn, body);
        case wire::Opcode::FlushRequest:
            return responder_.flush_requested(segment.msn, body);
        case wire::Opcode::FlushResponse:
            return answers_.flush(segment, body);
        case wire::Opcode::AtomicRequest:
            return responder_.atomic_requested(segment.msn, body);
        case wire::Opcode::AtomicResponse:
            return answers_.atomic(segment, body);
        case wire::Opcode::AtomicWrite:
            return atomic_write(body);
        case wire::Opcode::Acknowledgement:
            return answers_.acknowledged(segment, body);
        case wire::Opcode::Immediate:
        case wire::Opcode::ImmediateSolicited:
            return immediate_arrived(body);
        default:
            return {};  // the others are no control messages
    }
}

Outcome<bool> Receiver::terminated(std::span<const std::byte> body) const {
    const auto code = wire::decode_terminate(body);
    if (!code) {
        return std::unexpected{violation({.violation = code.error()})};
    }
    BASE_LOG_PEER(Warning, "%s ends the connection: %s (TERMINATE: layer %u, type %u, code %u)",
                  parts_.access.text().c_str(), wire::meaning_of(*code), code->layer, code->type, code->code);
    return std::unexpected{Broken{.by = EndReason::Terminated, .oldest = status_of(*code)}};
}

}  // namespace soft
