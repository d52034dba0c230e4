// SPDX-License-Identifier: BSD-3-Clause
// soft/qp: the bytes that come, segment by segment, wherever the link happens to cut them.
#include <algorithm>
#include <cerrno>
#include <new>

#include "base/log.hpp"
#include "soft/connected/qp.hpp"

namespace soft {

namespace {

// A message that is not data: request, answer, TERMINATE with what it quotes.
constexpr std::size_t max_control_bytes = 1024;

bool is_data(wire::Opcode opcode) {
    return wire::is_send(opcode) || opcode == wire::Opcode::Write || opcode == wire::Opcode::ReadResponse;
}

// The status of the operation that the peer ended the connection for.
ibv_wc_status status_of(const wire::TerminateCode &code) {
    if (code == wire::terminate::untagged_no_buffer) {
        return IBV_WC_RNR_RETRY_EXC_ERR;
    }
    if (code == wire::terminate::untagged_too_long) {
        return IBV_WC_REM_INV_REQ_ERR;
    }
    const bool protection = code.type == 1 && code.layer <= 1;
    return protection ? IBV_WC_REM_ACCESS_ERR : IBV_WC_REM_OP_ERR;
}

}  // namespace

void QueuePair::parse() {
    try {
        while (connected() && !parked_ && !stalled_ && !ignores_peer_ && parse_one()) {
        }
    } catch (const std::bad_alloc &) {
        link_lost(ENOMEM);
    }
}

// One step; false when more bytes are needed, or the connection ended.
bool QueuePair::parse_one() {
    if (!in_segment_) {
        return begin_segment();
    }
    if (payload_left_ != 0 && !place_buffered()) {
        return false;
    }
    const std::size_t trailer = wire::fpdu_trailer_bytes(wire::segment_bytes(segment_));
    if (payload_left_ != 0 || buffered().size() < trailer) {
        return false;
    }
    buffer_begin_ += trailer;
    in_segment_ = false;
    end_segment();
    return true;
}

bool QueuePair::begin_segment() {
    serves();
    const auto header = wire::decode_header(buffered());
    if (!header) {
        // As it is, if all of it is here.
        const auto bytes = buffered();
        const std::size_t size = wire::header_bytes(bytes);
        terminate(header.error(), bytes.first(bytes.size() < size ? 0 : size), {});
        return false;
    }
    if (!*header) {
        return false;
    }
    segment_ = **header;
    const std::size_t fpdu = wire::fpdu_bytes(segment_);
    if (!is_data(segment_.opcode) && segment_.payload_bytes > max_control_bytes) {
        violate({"a control message longer than any can be", wire::terminate::mpa_frame});
        return false;
    }
    if ((parameters_.crc || !is_data(segment_.opcode)) && buffered().size() < fpdu) {
        return false;
    }
    if (parameters_.crc && !crc_is_right(fpdu)) {
        violate({"CRC32C of an FPDU is wrong", wire::terminate::mpa_crc});
        return false;
    }
    if ((wire::is_send(segment_.opcode) || wire::is_immediate(segment_.opcode)) && message_must_wait()) {
        return false;
    }
    ++segments_;
    if (!peer_ready_ && segment_.opcode != wire::Opcode::Terminate) {
        peer_ready_ = true;
        if (!established_) {
            group_->clear_deadline(*this);
            establish();
        }
        const base::Lock lock{send_mutex_};
        may_transmit_ = true;
        transmit();
    }
    if (!is_data(segment_.opcode)) {
        control_message();
        return connected();
    }
    buffer_begin_ += wire::header_bytes(segment_.opcode);
    in_segment_ = true;
    payload_left_ = segment_.payload_bytes;
    if (segment_.opcode == wire::Opcode::Write) {
        begin_write();
    } else if (segment_.opcode == wire::Opcode::ReadResponse) {
        begin_read_response();
    } else {
        begin_send();
    }
    return connected();
}

bool QueuePair::crc_is_right(std::size_t fpdu_bytes) {
    const auto fpdu = buffered().first(fpdu_bytes);
    const std::size_t summed = fpdu_bytes - wire::fpdu_crc_bytes;
    wire::Crc crc;
    crc.feed(fpdu.first(summed));
    return std::ranges::equal(crc.digest(), fpdu.subspan(summed));
}

// A message that fits one segment and is all in the buffer.
void QueuePair::control_message() {
    serves();
    const auto body = buffered().subspan(wire::header_bytes(segment_.opcode), segment_.payload_bytes);
    buffer_begin_ += wire::fpdu_bytes(segment_);
    const bool may_follow = wire::is_tagged(segment_.opcode) || wire::is_immediate(segment_.opcode);
    const bool first_and_last = segment_.last && (may_follow || segment_.offset == 0);
    if (!first_and_last && segment_.opcode != wire::Opcode::Terminate) {
        violate({"a request or answer in several segments", wire::terminate::untagged_offset});
        return;
    }
    if (segment_.opcode > wire::Opcode::Terminate && !parameters_.soft_peer) {
        violate({"an RDMAP opcode that was not agreed on", wire::terminate::unexpected_opcode});
        return;
    }
    switch (segment_.opcode) {
        case wire::Opcode::ReadRequest:
            return read_requested(body);
        case wire::Opcode::Terminate:
            return terminated(body);
        case wire::Opcode::FlushRequest:
            return flush_requested(body);
        case wire::Opcode::FlushResponse:
            return flush_answered(body);
        case wire::Opcode::AtomicRequest:
            return atomic_requested(body);
        case wire::Opcode::AtomicResponse:
            return atomic_answered(body);
        case wire::Opcode::AtomicWrite:
            return atomic_write(body);
        case wire::Opcode::Immediate:
        case wire::Opcode::ImmediateSolicited:
            return immediate_arrived(body);
        default:
            return;  // the others are no control messages
    }
}

void QueuePair::end_segment() {
    if (segment_.opcode == wire::Opcode::ReadResponse) {
        finish_read_response();
    } else if (wire::is_send(segment_.opcode)) {
        finish_send();
    }
}

void QueuePair::terminated(std::span<const std::byte> body) {
    serves();
    const auto code = wire::decode_terminate(body);
    if (!code) {
        violate(code.error());
        return;
    }
    BASE_LOG_PEER(Warning, "%s ends the connection: %s (TERMINATE: layer %u, type %u, code %u)",
                  peer_.c_str(), wire::meaning_of(*code), code->layer, code->type, code->code);
    end({.text = "terminated by the peer",
         .level = static_cast<int>(base::LogLevel::Warning),
         .oldest = status_of(*code),
         .drain = true,
         .error = EPROTO});
}

}  // namespace soft
