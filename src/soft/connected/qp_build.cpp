// SPDX-License-Identifier: BSD-3-Clause
// soft/qp: a batch of whole segments, from the send queue and the owed responses.
#include <algorithm>
#include <bit>
#include <cerrno>

#include "soft/connected/qp.hpp"
#include "softrdma.h"

namespace soft {

namespace {

constexpr std::uint32_t ready_to_receive_stag = 1;  // no key is checked for an empty message

wire::Opcode send_opcode(bool solicited, bool invalidates) {
    if (invalidates) {
        return solicited ? wire::Opcode::SendSolicitedInvalidate : wire::Opcode::SendInvalidate;
    }
    return solicited ? wire::Opcode::SendSolicited : wire::Opcode::Send;
}

}  // namespace

// Whole messages in turn, requests and responses; a message's segments stay together.
void QueuePair::build_batch() {
    if (ready_to_receive_due_) {
        ready_to_receive_due_ = false;
        batch_.add_copied({.opcode = wire::Opcode::Write, .stag = ready_to_receive_stag}, {});
    }
    bool added = true;
    while (added && !link_broken_ && batch_.has_room()) {
        if (request_offset_ != 0) {
            added = add_next_request_segment();
        } else if (response_offset_ != 0) {
            added = add_next_response_segment();
        } else if (response_turn_) {
            added = add_next_response_segment() || add_next_request_segment();
        } else {
            added = add_next_request_segment() || add_next_response_segment();
        }
    }
}

bool QueuePair::may_begin(const SendRequest &request) const {
    sends();
    return !(request.fence && awaiting_ != 0) &&
           !(is_answered(request.opcode) && awaiting_ >= parameters_.ord);
}

// Faults on purpose: the request waits, or the connection ends here, when what is in the batch is sent.
bool QueuePair::fault_stops(const SendRequest &request) {
    const bool is_write = request.opcode == IBV_WR_RDMA_WRITE || request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    const auto verdict = faults_->verdict(request_offset_, is_write ? request.length : 0);
    if (verdict == RequestFaults::Verdict::Die && batch_.empty()) {
        cut_link();
    }
    return verdict != RequestFaults::Verdict::Go;
}

// How many bytes of a write or a send the next segment has.
std::size_t QueuePair::next_segment_bytes(const SendRequest &request) const {
    const std::size_t end = faults_ != nullptr ? faults_->most(request.length) : request.length;
    return std::min<std::size_t>(max_payload_bytes_, end - request_offset_);
}

// Whether payload of the request goes from the program's memory, to be copied only where the link does not
// take it.
bool QueuePair::is_lent(const SendRequest &request, std::size_t bytes) const {
    sends();
    return request.is_inline && bytes > Batch::max_copied_bytes && !parameters_.crc &&
           request.kept == nullptr;
}

bool QueuePair::add_next_request_segment() {
    if (first_unbuilt_ == requests_.size()) {
        return false;
    }
    SendRequest &request = requests_.at(first_unbuilt_);
    if (request_offset_ == 0 && !may_begin(request)) {
        return false;
    }
    if (faults_ != nullptr && fault_stops(request)) {
        return false;
    }
    const std::size_t size = is_answered(request.opcode) ? request.length : next_segment_bytes(request);
    if (is_lent(request, size) && !batch_.has_room_to_lend(size)) {
        return false;
    }
    if (request.status == IBV_WC_SUCCESS) {
        request.status = gather(request, request_offset_, size);
    }
    if (request.status != IBV_WC_SUCCESS) {
        // It fails when everything before it is done, as the order of completions wants.
        if (request_offset_ != 0 || (awaiting_ == 0 && first_uncommitted_ == first_unbuilt_)) {
            break_link(0);
        }
        return false;
    }
    if (is_answered(request.opcode)) {
        add_answered_request(request);
    } else if (!add_data_segment(request)) {
        request.status = IBV_WC_LOC_PROT_ERR;
        break_link(0);
        return false;
    }
    if (request_offset_ == 0) {
        request.state = SendRequest::State::Built;
        ++first_unbuilt_;
        response_turn_ = true;
        if (faults_ != nullptr) {
            faults_->next();
        }
    }
    return true;
}

// The pieces of local memory that hold `size` bytes of the request from `offset` on, into gathered_. When a
// message begins, all of its memory is looked at: what is refused has sent nothing, and waits for its turn.
ibv_wc_status QueuePair::gather(const SendRequest &request, std::size_t offset, std::size_t size) {
    const unsigned rights = is_answered(request.opcode) ? unsigned{IBV_ACCESS_LOCAL_WRITE} : 0U;
    const bool begins = offset == 0;
    gathered_pieces_ = 0;
    for (const ibv_sge &sge : requests_.sges_of(request)) {
        if (offset >= sge.length) {
            offset -= sge.length;
            continue;
        }
        const std::size_t bytes = std::min<std::size_t>(sge.length - offset, size);
        if (bytes == 0 && !begins) {
            break;
        }
        if (request.is_inline) {
            gathered_[gathered_pieces_++] = {.iov_base = requests_.address_of(sge) + offset,
                                             .iov_len = bytes};
            size -= bytes;
            offset = 0;
            continue;
        }
        const auto pin = Memory::instance().pin({.by = {qp_base.pd},
                                                 .key = sge.lkey,
                                                 .address = sge.addr,
                                                 .length = sge.length,
                                                 .rights = rights});
        if (!pin) {
            return IBV_WC_LOC_PROT_ERR;
        }
        gathered_[gathered_pieces_++] = {.iov_base = pin->region().at(sge.addr + offset), .iov_len = bytes};
        size -= bytes;
        offset = 0;
    }
    return IBV_WC_SUCCESS;
}

bool QueuePair::add_data_segment(SendRequest &request) {
    const std::size_t size = next_segment_bytes(request);
    wire::Segment segment{.last = request_offset_ + size == request.length,
                          .payload_bytes = static_cast<std::uint16_t>(size)};
    const bool at_end = segment.last;
    if (is_message(request.opcode)) {
        segment.last = at_end && !has_immediate(request.opcode);
        const bool invalidates = request.opcode == IBV_WR_SEND_WITH_INV;
        segment.opcode = send_opcode(request.solicited, invalidates);
        segment.stag = invalidates ? request.immediate : 0;
        segment.msn = send_msn_;
        segment.offset = request_offset_;
    } else {
        segment.opcode =
            request.opcode == IBV_WR_ATOMIC_WRITE ? wire::Opcode::AtomicWrite : wire::Opcode::Write;
        segment.stag = request.rkey;
        segment.offset = request.remote_address + request_offset_;
    }
    const auto payload = std::span{gathered_}.first(gathered_pieces_);
    if (request.is_inline && size <= Batch::max_copied_bytes) {
        batch_.add_gathered(segment, payload);
    } else if (is_lent(request, size)) {
        batch_.add_lent(segment, payload);
    } else if (!batch_.add(segment, payload)) {
        return false;
    }
    request_offset_ = at_end ? 0 : request_offset_ + size;
    if (at_end && has_immediate(request.opcode)) {
        add_immediate(request);
    } else if (segment.last && is_message(request.opcode)) {
        ++send_msn_;
    }
    return true;
}

// Behind a write, or as the end of a send (wire/rdmap.hpp).
void QueuePair::add_immediate(const SendRequest &request) {
    const auto body = wire::encode(std::bit_cast<wire::ImmediateValue>(request.immediate));
    batch_.add_copied(
        {.opcode = request.solicited ? wire::Opcode::ImmediateSolicited : wire::Opcode::Immediate,
         .offset = is_message(request.opcode) ? request.length : 0,
         .msn = send_msn_++,
         .payload_bytes = body.size()},
        body);
}

// A read, flush or atomic request: one segment on the request queue.
void QueuePair::add_answered_request(SendRequest &request) {
    const std::uint32_t msn = request_msn_++;
    const auto add = [&](wire::Opcode opcode, std::span<const std::byte> body) {
        send_mutex_.assert_held();
        batch_.add_copied(
            {.opcode = opcode, .msn = msn, .payload_bytes = static_cast<std::uint16_t>(body.size())}, body);
    };
    if (request.opcode == IBV_WR_RDMA_READ) {
        const auto sink = requests_.sges_of(request);
        add(wire::Opcode::ReadRequest,
            wire::encode(wire::ReadRequest{.sink_stag = sink.empty() ? 0 : sink[0].lkey,
                                           .sink_offset = sink.empty() ? 0 : sink[0].addr,
                                           .size = request.length,
                                           .source_stag = request.rkey,
                                           .source_offset = request.remote_address}));
    } else if (request.opcode == SOFTRDMA_WR_FLUSH) {
        add(wire::Opcode::FlushRequest,
            wire::encode(wire::FlushRequest{.stag = request.rkey,
                                            .offset = request.remote_address,
                                            .length = request.length,
                                            .level = wire::FlushLevel{request.immediate}}));
    } else {
        request.immediate = msn;
        const bool adds = request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
        add(wire::Opcode::AtomicRequest,
            wire::encode(wire::AtomicRequest{
                .operation = adds ? wire::AtomicOperation::FetchAdd : wire::AtomicOperation::CompareSwap,
                .identifier = msn,
                .stag = request.rkey,
                .offset = request.remote_address,
                .add_swap = adds ? request.compare_add : request.swap,
                .add_swap_mask = adds ? 0 : UINT64_MAX,
                .compare = adds ? 0 : request.compare_add,
                .compare_mask = adds ? 0 : UINT64_MAX}));
    }
    ++awaiting_;
}

bool QueuePair::add_next_response_segment() {
    if (responses_.empty()) {
        return false;
    }
    const Response &response = responses_.front();
    if (response.opcode == wire::Opcode::ReadResponse) {
        if (!add_read_response_segment(response.read)) {
            return false;
        }
    } else {
        const auto atomic = wire::encode(response.atomic);
        const bool is_atomic = response.opcode == wire::Opcode::AtomicResponse;
        const auto body = std::span<const std::byte>{atomic}.first(is_atomic ? atomic.size() : 0);
        batch_.add_copied({.opcode = response.opcode,
                           .queue = wire::Queue::Response,
                           .msn = response_msn_++,
                           .payload_bytes = static_cast<std::uint16_t>(body.size())},
                          body);
    }
    if (response_offset_ == 0) {
        responses_.pop();
        response_turn_ = false;
    }
    return true;
}

bool QueuePair::add_read_response_segment(const wire::ReadRequest &read) {
    const std::size_t size = std::min<std::size_t>(max_payload_bytes_, read.size - response_offset_);
    const wire::Segment segment{.opcode = wire::Opcode::ReadResponse,
                                .last = response_offset_ + size == read.size,
                                .stag = read.sink_stag,
                                .offset = read.sink_offset + response_offset_,
                                .payload_bytes = static_cast<std::uint16_t>(size)};
    if (size == 0) {
        batch_.add_copied(segment, {});
        return true;
    }
    const Access access{.by = peer(),
                        .key = read.source_stag,
                        .address = read.source_offset + response_offset_,
                        .length = size,
                        .rights = IBV_ACCESS_REMOTE_READ};
    auto pin = Memory::instance().pin(access);
    if (!pin) {
        break_link(EACCES);  // deregistered since it was asked for
        return false;
    }
    const iovec piece{.iov_base = pin->region().at(access.address), .iov_len = size};
    if (!batch_.add(segment, {&piece, 1})) {
        break_link(EFAULT);
        return false;
    }
    pins_.push_back(std::move(*pin));
    batch_reads_.push_back({.access = access, .piece = batch_.payload_piece()});
    response_offset_ = segment.last ? 0 : response_offset_ + size;
    return true;
}

}  // namespace soft
