// SPDX-License-Identifier: BSD-3-Clause
#include "soft/transport/request_segments.hpp"

#include <algorithm>
#include <bit>

#include "soft/ground/environment.hpp"
#include "soft/memory/memory.hpp"

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
Added RequestSegments::fault_stops(const SendRequest &request) {
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
    return request.is_inline && bytes > Batch::max_copied_bytes && !crc_ && request.kept == nullptr;
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
    if (request.status == IBV_WC_SUCCESS) {
        request.status = gather(request, offset_, size);
    }
    if (request.status != IBV_WC_SUCCESS) {
        return fail_in_turn();
    }
    if (request.needs_answer) {
        add_answered(request);
    } else if (!add_data(request)) {
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
Added RequestSegments::fail_in_turn() const {
    return offset_ != 0 || queue_.next_is_oldest() ? Added::Failed : Added::No;
}

// Stores in gathered_ the pieces of local memory with `size` bytes of the request from `offset` on. When a
// message begins, all of its memory is checked, so that a refused request has sent nothing, and waits for its
// turn. It is flat, because entering the small functions that it calls took a quarter of the instructions.
[[gnu::hot, gnu::flatten]] ibv_wc_status RequestSegments::gather(const SendRequest &request,
                                                                 std::size_t offset, std::size_t size) {
    const unsigned rights = request.needs_answer ? unsigned{IBV_ACCESS_LOCAL_WRITE} : 0U;
    const bool begins = offset == 0;
    gathered_pieces_ = 0;
    for (const ibv_sge &sge : queue_.sges_of(request)) {
        if (offset >= sge.length) {
            offset -= sge.length;
            continue;
        }
        const std::size_t bytes = std::min<std::size_t>(sge.length - offset, size);
        if (bytes == 0 && !begins) {
            break;
        }
        std::byte *from = SendQueue::address_of(sge);
        if (!request.is_inline) {
            const auto pin = Memory::instance().pin({.by = {&domain_},
                                                     .key = sge.lkey,
                                                     .address = sge.addr,
                                                     .length = sge.length,
                                                     .rights = rights});
            if (!pin) {
                return IBV_WC_LOC_PROT_ERR;
            }
            from = pin->region().at(sge.addr);
        }
        gathered_[gathered_pieces_++] = {.iov_base = from + offset, .iov_len = bytes};
        size -= bytes;
        offset = 0;
    }
    return IBV_WC_SUCCESS;
}

[[gnu::hot]] bool RequestSegments::add_data(SendRequest &request) {
    const std::size_t size = next_segment_bytes(request);
    wire::Segment segment{.last = offset_ + size == request.length,
                          .payload_bytes = static_cast<std::uint16_t>(size)};
    const bool at_end = segment.last;
    if (is_message(request.opcode)) {
        segment.last = at_end && !has_immediate(request.opcode);
        const bool invalidates = request.opcode == IBV_WR_SEND_WITH_INV;
        segment.opcode = send_opcode(request.solicited, invalidates);
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
    const auto payload = std::span{gathered_}.first(gathered_pieces_);
    if (size <= Batch::max_copied_bytes) {
        if (request.is_inline) {
            batch_.add_gathered(segment, payload);
        } else if (!batch_.add_small(segment, payload)) {
            return false;
        }
    } else if (is_lent(request, size)) {
        batch_.add_lent(segment, payload);
    } else if (!batch_.add(segment, payload)) {
        return false;
    }
    direct_.peer_writes();
    ordered_in_link_ =
        ordered_in_link_ || !is_message(request.opcode) || request.opcode == IBV_WR_SEND_WITH_INV;
    message_in_link_ = message_in_link_ || is_message(request.opcode) || has_immediate(request.opcode);
    offset_ = at_end ? 0 : offset_ + size;
    if (at_end && has_immediate(request.opcode)) {
        add_immediate(request);
    } else if (segment.last && is_message(request.opcode)) {
        ++send_msn_;
    }
    return true;
}

// Adds immediate data after a write, or as the end of a send (wire/rdmap.hpp).
void RequestSegments::add_immediate(const SendRequest &request) {
    const auto body = wire::encode(std::bit_cast<wire::ImmediateValue>(request.immediate));
    batch_.add_copied(
        {.opcode = request.solicited ? wire::Opcode::ImmediateSolicited : wire::Opcode::Immediate,
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

// Adds a read, flush or atomic request.
void RequestSegments::add_answered(SendRequest &request) {
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
}

}  // namespace soft
