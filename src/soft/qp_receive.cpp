// SPDX-License-Identifier: BSD-3-Clause
// soft/qp: from TCP to memory. The stream is parsed wherever TCP happens to cut it: headers and small payload
// come through one buffer, large payload is received where it belongs.
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstring>

#include "base/log.hpp"
#include "persist/guard.hpp"
#include "soft/limits.hpp"
#include "soft/qp.hpp"
#include "soft/tcp.hpp"
#include "softrdma.h"

namespace soft {

namespace {

// Reads in one turn, so that others of the group have theirs.
constexpr int rounds_in_a_turn = 32;
// A message that is not data: request, answer, TERMINATE with what it quotes.
constexpr std::size_t max_control_bytes = 1024;

bool is_send(wire::Opcode opcode) {
    return opcode == wire::Opcode::Send || opcode == wire::Opcode::SendSolicited;
}
bool is_data(wire::Opcode opcode) {
    return is_send(opcode) || opcode == wire::Opcode::Write || opcode == wire::Opcode::ReadResponse;
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

void QueuePair::progress() {
    if (!connected()) {
        if (socket_ && tcp::discard_input(socket_.get()) == tcp::Input::Ended) {
            finish_draining();
        }
        return;
    }
    {
        std::unique_lock lock{send_mutex_};
        if (link_broken_) {
            const int error = link_error_;
            lock.unlock();
            link_lost(error);
            return;
        }
        if (interest_.writable) {
            transmit();
        }
    }
    receive();
}

void QueuePair::receive() {
    for (int round = 0; round < rounds_in_a_turn && connected() && !parked_ && !stalled_; ++round) {
        const ssize_t count = fill();
        if (count > 0) {
            parse();
            continue;
        }
        if (count == 0) {
            peer_closed();
        } else if (errno != EAGAIN && errno != EINTR && connected()) {
            link_lost(errno);
        }
        break;
    }
    answer();
}

// Sends the responses that parsing added.
void QueuePair::answer() {
    if (responses_added_ && connected()) {
        responses_added_ = false;
        const std::scoped_lock lock{send_mutex_};
        transmit();
    }
}

// Takes what TCP has. Like recv; EAGAIN also when the connection has ended meanwhile.
ssize_t QueuePair::fill() {
    if (begin_ == end_) {
        begin_ = end_ = 0;
    } else if (begin_ != 0) {
        std::memmove(buffer_.get(), buffer_.get() + begin_, end_ - begin_);
        end_ -= begin_;
        begin_ = 0;
    }
    if (in_segment_ && payload_left_ != 0 && end_ == 0 && !parameters_.crc && message_ != Message::Kept) {
        Target target;
        if (!aim(target, payload_left_)) {
            errno = EAGAIN;
            return -1;
        }
        return fill_target(target);
    }
    const ssize_t count = recv(socket_.get(), buffer_.get() + end_, capacity_ - end_, MSG_DONTWAIT);
    if (count > 0) {
        end_ += static_cast<std::size_t>(count);
    }
    return count;
}

// Payload to where it belongs, and into the buffer only the trailer and the next header: more would be copied
// twice.
ssize_t QueuePair::fill_target(Target &target) {
    const std::size_t ahead = wire::fpdu_trailer_bytes(wire::segment_bytes(segment_)) + wire::tagged_bytes;
    if (target.bytes == payload_left_) {
        target.pieces[target.count++] = {.iov_base = buffer_.get(), .iov_len = ahead};
    }
    msghdr message{};
    message.msg_iov = target.pieces.data();
    message.msg_iovlen = target.count;
    const ssize_t count = recvmsg(socket_.get(), &message, MSG_DONTWAIT);
    if (count > 0) {
        const std::size_t payload = std::min(static_cast<std::size_t>(count), target.bytes);
        end_ = static_cast<std::size_t>(count) - payload;
        placed(payload);
    }
    return count;
}

void QueuePair::parse() {
    while (connected() && !parked_ && !stalled_ && parse_one()) {
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
    begin_ += trailer;
    in_segment_ = false;
    end_segment();
    return true;
}

bool QueuePair::begin_segment() {
    const auto header = wire::decode_header(buffered());
    if (!header) {
        violate(header.error());
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
    if (is_send(segment_.opcode) && message_must_wait()) {
        return false;
    }
    if (!established_) {
        established_ = true;
        if (owner_ != nullptr) {
            owner_->connection_established();
        }
        const std::scoped_lock lock{send_mutex_};
        may_transmit_ = true;
        transmit();
    }
    if (!is_data(segment_.opcode)) {
        control_message();
        return connected();
    }
    begin_ += wire::header_bytes(segment_.opcode);
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
    const auto body = buffered().subspan(wire::header_bytes(segment_.opcode), segment_.payload_bytes);
    begin_ += wire::fpdu_bytes(segment_);
    const bool first_and_last = segment_.last && (wire::is_tagged(segment_.opcode) || segment_.offset == 0);
    if (!first_and_last && segment_.opcode != wire::Opcode::Terminate) {
        violate({"a request or answer in several segments", wire::terminate::untagged_offset});
        return;
    }
    const bool known = parameters_.soft_peer || segment_.opcode <= wire::Opcode::Terminate;
    switch (segment_.opcode) {
        case wire::Opcode::ReadRequest:
            return read_requested(body);
        case wire::Opcode::Terminate:
            return terminated(body);
        case wire::Opcode::FlushRequest:
            if (known) {
                return flush_requested(body);
            }
            break;
        case wire::Opcode::FlushResponse:
            if (known) {
                return flush_answered();
            }
            break;
        case wire::Opcode::AtomicWrite:
            if (known) {
                return atomic_write(body);
            }
            break;
        default:
            break;
    }
    violate({"an RDMAP opcode that was not agreed on", wire::terminate::unexpected_opcode});
}

void QueuePair::begin_write() {
    place_at_ = segment_.offset;
    if (payload_left_ == 0) {
        return;  // touches nothing: no key is checked
    }
    Target target;
    (void)aim(target, payload_left_);
}

void QueuePair::atomic_write(std::span<const std::byte> payload) {
    if (payload.size() != wire::atomic_write_bytes || segment_.offset % wire::atomic_write_bytes != 0) {
        violate({"ATOMIC WRITE that is not 8 aligned bytes", wire::terminate::operation_unspecified});
        return;
    }
    place_at_ = segment_.offset;
    Target target;
    if (!aim(target, payload.size())) {
        return;
    }
    std::uint64_t value;
    std::memcpy(&value, payload.data(), sizeof(value));
    auto *const to = static_cast<std::uint64_t *>(target.pieces[0].iov_base);
    if (reinterpret_cast<std::uintptr_t>(to) % sizeof(value) != 0) {
        violate({"ATOMIC WRITE to memory that is not aligned", wire::terminate::operation_unspecified});
    } else if (!persist::guarded_store(to, value)) {
        violate({"the memory of a region has vanished", wire::terminate::local_catastrophic});
    } else {
        note_dirty(segment_.stag, segment_.offset, sizeof(value));
    }
}

// The request whose answer comes next.
QueuePair::SendRequest *QueuePair::oldest_awaiting() {
    for (std::size_t i = 0; i < unbuilt_; ++i) {
        SendRequest &request = requests_.at(i);
        if (request.state != SendRequest::State::Done && asks(request.opcode)) {
            return &request;
        }
    }
    return nullptr;
}

void QueuePair::begin_read_response() {
    bool fits = false;
    {
        const std::scoped_lock lock{send_mutex_};
        SendRequest *const request = oldest_awaiting();
        if (request != nullptr && request->opcode == IBV_WR_RDMA_READ) {
            const auto sink = sges_of(*request);
            const std::uint64_t end = std::uint64_t{request->received} + segment_.payload_bytes;
            const std::uint32_t stag = sink.empty() ? 0 : sink[0].lkey;
            const std::uint64_t address = (sink.empty() ? 0 : sink[0].addr) + request->received;
            fits = segment_.stag == stag && segment_.offset == address && end <= request->length &&
                   segment_.last == (end == request->length);
            reading_ = request;
            place_at_ = request->received;
        }
    }
    if (!fits) {
        violate({"a read response that does not fit the oldest read", wire::terminate::tagged_bounds});
    }
}

void QueuePair::finish_read_response() {
    const std::scoped_lock lock{send_mutex_};
    reading_->received += segment_.payload_bytes;
    if (segment_.last) {
        reading_->state = SendRequest::State::Done;
        --awaiting_;
        retire();
        transmit();
    }
}

void QueuePair::end_segment() {
    if (segment_.opcode == wire::Opcode::ReadResponse) {
        finish_read_response();
    } else if (is_send(segment_.opcode)) {
        finish_send();
    }
}

// Up to most_bytes of memory for the next payload.
bool QueuePair::aim(Target &target, std::size_t most_bytes) {
    if (segment_.opcode == wire::Opcode::ReadResponse) {
        if (aim_at(target, sges_of(*reading_), place_at_, most_bytes) != IBV_WC_SUCCESS) {
            violate({"the memory of a read was deregistered", wire::terminate::local_catastrophic});
        }
        return connected();
    }
    if (is_send(segment_.opcode)) {
        const ibv_wc_status status = aim_at(target, receive_.sges, place_at_, most_bytes);
        if (status != IBV_WC_SUCCESS) {
            receive_failed(status);
        }
        return connected();
    }
    auto pin = Memory::instance().pin({.pd = pd,
                                       .key = segment_.stag,
                                       .address = place_at_,
                                       .length = most_bytes,
                                       .rights = IBV_ACCESS_REMOTE_WRITE});
    if (!pin) {
        BASE_LOG(Warning, "%s writes %zu bytes to 0x%" PRIx64 " with key 0x%" PRIx32 ": %s", name().c_str(),
                 most_bytes, place_at_, segment_.stag, text_of(pin.error()));
        violate({"a write that is not allowed", tagged_code(pin.error())});
        return false;
    }
    target.pieces[0] = {.iov_base = pin->region().at(place_at_), .iov_len = most_bytes};
    target.pins[0] = std::move(*pin);
    target.count = 1;
    target.bytes = most_bytes;
    return true;
}

ibv_wc_status QueuePair::aim_at(Target &target, std::span<const ibv_sge> sges, std::size_t offset,
                                std::size_t most_bytes) const {
    for (const ibv_sge &sge : sges) {
        if (target.bytes == most_bytes) {
            break;
        }
        if (offset >= sge.length) {
            offset -= sge.length;
            continue;
        }
        const std::size_t bytes = std::min<std::size_t>(sge.length - offset, most_bytes - target.bytes);
        auto pin = Memory::instance().pin({.pd = pd,
                                           .key = sge.lkey,
                                           .address = sge.addr,
                                           .length = sge.length,
                                           .rights = IBV_ACCESS_LOCAL_WRITE});
        if (!pin) {
            BASE_LOG(Error,
                     "local memory of %" PRIu32 " bytes at 0x%" PRIx64 " with key 0x%" PRIx32
                     " cannot be filled: %s",
                     sge.length, sge.addr, sge.lkey, text_of(pin.error()));
            return IBV_WC_LOC_PROT_ERR;
        }
        target.pieces[target.count] = {.iov_base = pin->region().at(sge.addr + offset), .iov_len = bytes};
        target.pins[target.count++] = std::move(*pin);
        target.bytes += bytes;
        offset = 0;
    }
    return target.bytes != 0 ? IBV_WC_SUCCESS : IBV_WC_LOC_LEN_ERR;
}

// Payload that is in the buffer already.
bool QueuePair::place_buffered() {
    while (payload_left_ != 0 && begin_ != end_) {
        const auto bytes = buffered().first(std::min(payload_left_, buffered().size()));
        if (message_ == Message::Kept && is_send(segment_.opcode)) {
            if (!keep_unexpected(bytes)) {
                return false;
            }
            begin_ += bytes.size();
            placed(bytes.size());
            continue;
        }
        Target target;
        if (!aim(target, bytes.size())) {
            return false;
        }
        for (std::size_t i = 0; i < target.count; ++i) {
            if (!persist::guarded_copy(target.pieces[i].iov_base, buffer_.get() + begin_,
                                       target.pieces[i].iov_len)) {
                violate({"the memory of a region has vanished", wire::terminate::local_catastrophic});
                return false;
            }
            begin_ += target.pieces[i].iov_len;
        }
        placed(target.bytes);
    }
    return true;
}

void QueuePair::placed(std::size_t bytes) {
    if (segment_.opcode == wire::Opcode::Write) {
        note_dirty(segment_.stag, place_at_, bytes);
    }
    payload_left_ -= bytes;
    place_at_ += bytes;
}

void QueuePair::terminated(std::span<const std::byte> body) {
    const auto code = wire::decode_terminate(body);
    if (!code) {
        violate(code.error());
        return;
    }
    BASE_LOG(Warning, "%s sent TERMINATE: layer %u, type %u, code %u", name().c_str(), code->layer,
             code->type, code->code);
    end({.text = "terminated by the peer",
         .level = static_cast<int>(base::LogLevel::Warning),
         .oldest = status_of(*code),
         .drain = true});
}

}  // namespace soft
