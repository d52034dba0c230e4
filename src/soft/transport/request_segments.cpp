// SPDX-License-Identifier: BSD-3-Clause
#include "soft/transport/request_segments.hpp"

#include <algorithm>
#include <bit>

#include "persist/guard.hpp"
#include "soft/ground/environment.hpp"

namespace soft {

namespace {

wire::Opcode send_opcode(bool solicited, bool invalidates) {
    if (invalidates) {
        return solicited ? wire::Opcode::SendSolicitedInvalidate : wire::Opcode::SendInvalidate;
    }
    return solicited ? wire::Opcode::SendSolicited : wire::Opcode::Send;
}

}  // namespace

void RequestSegments::begin(const Link &link, std::size_t max_payload_bytes, unsigned most_awaiting,
                            bool crc) {
    link_ = &link;
    offset_ = 0;
    send_msn_ = request_msn_ = 1;
    inside_direct_ = ordered_in_link_ = message_in_link_ = false;
    peer_seen_ = mappings_seen_ = {};
    if (faults_ == nullptr && within_host_of_environment() == WithinHost::Direct) {
        const Link::SharedPieces pieces = link.shared_pieces();
        direct_.begin({pieces.own, pieces.peers}, pieces.process);
    }
    max_payload_bytes_ = max_payload_bytes;
    most_awaiting_ = most_awaiting;
    crc_ = crc;
}

// Applies injected faults: the request waits, or the connection ends when the batch is sent.
[[gnu::noinline]] Added RequestSegments::fault_stops(const SendRequest &request) {
    const bool is_write = request.opcode == IBV_WR_RDMA_WRITE || request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    const auto verdict = faults_->verdict(offset_, is_write ? request.length : 0);
    if (verdict == RequestFaults::Verdict::Go) {
        return Added::Yes;
    }
    return verdict == RequestFaults::Verdict::Die && batch_.empty() ? Added::Cut : Added::No;
}

// Returns how many bytes of a write or a send go into the next segment.
std::size_t RequestSegments::next_segment_bytes(const SendRequest &request) const {
    const std::size_t end = faults_ != nullptr ? faults_->most(request.length) : request.length;
    return std::min<std::size_t>(max_payload_bytes_, end - offset_);
}

// Returns whether the request's payload is sent from the program's memory, and only the bytes are copied that
// the link does not take.
bool RequestSegments::is_lent(const SendRequest &request, std::size_t bytes) const {
    return request.is(IBV_SEND_INLINE) && bytes > Batch::max_copied_bytes && !crc_ && request.kept == nullptr;
}

[[gnu::hot]] Added RequestSegments::add_next() {
    SendRequest &request = queue_.next();
    // Programs rely on the order of a flush and what follows it, as after a peer that flushes and reads
    // nothing meanwhile; a write alone tells nothing.
    const bool waits_for_flush = request.opcode != IBV_WR_RDMA_WRITE && flush_.under_way();
    if (waits_for_flush || (offset_ == 0 && !queue_.may_begin(request, most_awaiting_))) {
        return Added::No;
    }
    if (request.opcode != IBV_WR_RDMA_WRITE && changes_window(request.opcode)) {
        queue_.built(request, batch_.bytes());
        return Added::Yes;
    }
    if (faults_ != nullptr) {
        if (const Added stopped = fault_stops(request); stopped != Added::Yes) {
            return stopped;
        }
    }
    if (direct_.is_possible() && may_go_direct(request)) {
        // Requests that the link does not take would complete behind this one's effect.
        if (!batch_.empty()) {
            return Added::No;
        }
        if (go_direct(request)) {
            return Added::Yes;
        }
    }
    if (std::exchange(inside_direct_, false) && request.needs_answer) {
        offset_ = 0;  // the peer answers all of it
    }
    const std::size_t size = request.needs_answer ? request.length : next_segment_bytes(request);
    if (is_lent(request, size) && !batch_.has_room_to_lend(size)) {
        return Added::No;
    }
    if (request.status != IBV_WC_SUCCESS) [[unlikely]] {
        return fail_in_turn();
    }
    if (!(request.needs_answer ? add_answered(request) : add_data(request, size))) [[unlikely]] {
        request.status = IBV_WC_LOC_PROT_ERR;
        return fail_in_turn();
    }
    if (offset_ == 0) {
        queue_.built(request, batch_.bytes());
        if (faults_ != nullptr) {
            faults_->next();
        }
    }
    return Added::Yes;
}

// Completions come in order, so a request fails only when all requests before it are done.
[[gnu::noinline]] Added RequestSegments::fail_in_turn() const {
    return offset_ != 0 || queue_.next_is_oldest() ? Added::Failed : Added::No;
}

// Adds the next `size` bytes of a write or a send. Returns false when they cannot be read. A small segment is
// copied straight into the batch.
[[gnu::hot, gnu::always_inline]] inline bool RequestSegments::add_data(SendRequest &request,
                                                                       std::size_t size) {
    const bool at_end = offset_ + size == request.length;
    const bool is_send = is_message(request.opcode);
    wire::Segment segment{.last = at_end, .payload_bytes = static_cast<std::uint16_t>(size)};
    if (is_send) {
        segment.last = at_end && !has_immediate(request.opcode);
        const bool invalidates = request.opcode == IBV_WR_SEND_WITH_INV;
        segment.opcode = send_opcode(request.is(IBV_SEND_SOLICITED), invalidates);
        segment.stag = invalidates ? request.immediate : 0;
        segment.queue = wire::Queue{request.queue};
        segment.msn = send_msn_;
        segment.offset = offset_;
    } else {
        segment.opcode =
            request.opcode == IBV_WR_ATOMIC_WRITE ? wire::Opcode::AtomicWrite : wire::Opcode::Write;
        segment.stag = request.rkey;
        segment.offset = request.remote_address + offset_;
    }
    if (size <= Batch::max_copied_bytes) {
        const auto copy = [&](std::byte *to) {
            return use_pieces(request, offset_, size, [&to](const std::byte *place, std::size_t bytes) {
                return persist::guarded_copy(std::exchange(to, to + bytes), place, bytes);
            });
        };
        if (!batch_.add_copied_by(segment, copy)) {
            return false;
        }
    } else if (!add_large(request, segment)) {
        return false;
    }
    if (direct_.is_possible()) {
        direct_.peer_writes();
        ordered_in_link_ = ordered_in_link_ || !is_send || request.opcode == IBV_WR_SEND_WITH_INV;
        message_in_link_ = message_in_link_ || takes_receive(request.opcode);
    }
    offset_ = at_end ? 0 : offset_ + size;
    if (request.opcode != IBV_WR_RDMA_WRITE && at_end) {
        if (has_immediate(request.opcode)) {
            add_immediate(request);
        } else if (is_send) {
            ++send_msn_;
        }
    }
    return true;
}

// Adds a segment whose payload stays where it is.
[[gnu::noinline]] bool RequestSegments::add_large(const SendRequest &request, const wire::Segment &segment) {
    Pieces pieces;
    if (!gather(request, offset_, segment.payload_bytes, pieces)) {
        return false;
    }
    if (is_lent(request, segment.payload_bytes)) {
        batch_.add_lent(segment, pieces.get());
        return true;
    }
    return batch_.add(segment, pieces.get()).has_value();
}

// Adds immediate data after a write, or as the end of a send (wire/rdmap.hpp).
[[gnu::noinline]] void RequestSegments::add_immediate(const SendRequest &request) {
    const auto body = wire::encode(std::bit_cast<wire::ImmediateValue>(request.immediate));
    batch_.add_copied({.opcode = request.is(IBV_SEND_SOLICITED) ? wire::Opcode::ImmediateSolicited
                                                                : wire::Opcode::Immediate,
                       .offset = is_message(request.opcode) ? request.length : 0,
                       .queue = wire::Queue{request.queue},
                       .msn = send_msn_++,
                       .payload_bytes = body.size()},
                      body);
}

// A byte is enough, because the kernel tells what it has lost of the whole file.
void RequestSegments::add_last_flushes() {
    unsigned left = most_awaiting_;
    direct_.for_each_to_flush([&](std::uint32_t key, std::uint64_t address) {
        if (left == 0 || !batch_.has_room()) {
            return;
        }
        --left;
        add_request(wire::Opcode::FlushRequest,
                    wire::encode(wire::FlushRequest{
                        .stag = key, .offset = address, .length = 1, .level = wire::FlushLevel::Persistent}));
    });
}

// Adds one segment on the request queue.
void RequestSegments::add_request(wire::Opcode opcode, std::span<const std::byte> body) {
    batch_.add_copied(
        {.opcode = opcode, .msn = request_msn_++, .payload_bytes = static_cast<std::uint16_t>(body.size())},
        body);
}

// Adds a read, flush or atomic request. Returns false when its answer has no place.
[[gnu::noinline]] bool RequestSegments::add_answered(SendRequest &request) {
    if (!use_pieces(request, 0, request.length, [](const std::byte *, std::size_t) { return true; })) {
        return false;
    }
    if (request.opcode == IBV_WR_RDMA_READ) {
        const auto sink = queue_.sges_of(request);
        add_request(wire::Opcode::ReadRequest,
                    wire::encode(wire::ReadRequest{.sink_stag = sink.empty() ? 0 : sink[0].lkey,
                                                   .sink_offset = sink.empty() ? 0 : sink[0].addr,
                                                   .size = request.length,
                                                   .source_stag = request.rkey,
                                                   .source_offset = request.remote_address}));
    } else if (request.opcode == SOFTRDMA_WR_FLUSH) {
        if (wire::FlushLevel{request.immediate} == wire::FlushLevel::Persistent) {
            direct_.peer_flushes();
        }
        add_request(wire::Opcode::FlushRequest,
                    wire::encode(wire::FlushRequest{.stag = request.rkey,
                                                    .offset = request.remote_address,
                                                    .length = request.length,
                                                    .level = wire::FlushLevel{request.immediate}}));
    } else {
        direct_.peer_writes();
        request.immediate = request_msn_;
        const bool adds = request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
        add_request(wire::Opcode::AtomicRequest,
                    wire::encode(wire::AtomicRequest{.operation = adds ? wire::AtomicOperation::FetchAdd
                                                                       : wire::AtomicOperation::CompareSwap,
                                                     .identifier = request.immediate,
                                                     .stag = request.rkey,
                                                     .offset = request.remote_address,
                                                     .add_swap = adds ? request.compare_add : request.swap,
                                                     .add_swap_mask = adds ? 0 : UINT64_MAX,
                                                     .compare = adds ? 0 : request.compare_add,
                                                     .compare_mask = adds ? 0 : UINT64_MAX}));
    }
    queue_.awaits_answer();
    return true;
}

}  // namespace soft
