// SPDX-License-Identifier: BSD-3-Clause
#include "soft/transport/answers.hpp"

#include "softrdma.h"

namespace soft {

OrRefusal<std::uint64_t> Answers::begin_read(const wire::Segment &segment) {
    SendRequest *const request = sender_.oldest_awaiting();
    if (request != nullptr && request->opcode == IBV_WR_RDMA_READ) {
        const auto sink = sender_.sges_of(*request);
        const std::uint64_t end = std::uint64_t{request->received} + segment.payload_bytes;
        const std::uint32_t stag = sink.empty() ? 0 : sink[0].lkey;
        const std::uint64_t address = (sink.empty() ? 0 : sink[0].addr) + request->received;
        if (segment.stag == stag && segment.offset == address && end <= request->length &&
            segment.last == (end == request->length)) {
            reading_ = request;
            return request->received;
        }
    }
    return make_refusal(
        {"a read response that does not fit the oldest read", wire::terminate::tagged_bounds});
}

OrRefusal<> Answers::aim(Target &target, std::uint64_t offset, std::size_t most_bytes) const {
    if (target.aim_at(&domain_, sender_.sges_of(*reading_), offset, most_bytes) != IBV_WC_SUCCESS) {
        return make_refusal({"the memory of a read was deregistered", wire::terminate::local_catastrophic});
    }
    return {};
}

void Answers::finish_read(const wire::Segment &segment) {
    reading_->received += segment.payload_bytes;
    if (segment.last) {
        sender_.answered(*reading_);
    }
}

OrRefusal<> Answers::flush(const wire::Segment &segment, std::span<const std::byte> body) {
    if (!body.empty()) {
        return make_refusal({"a FLUSH RESPONSE with a body", wire::terminate::untagged_too_long});
    }
    const bool in_sequence = segment.msn == next_msn_++;
    SendRequest *const request = sender_.oldest_awaiting();
    if (!in_sequence || request == nullptr || request->opcode != SOFTRDMA_WR_FLUSH) {
        return make_refusal({"an answer to a flush that nobody asked for", wire::terminate::untagged_msn});
    }
    sender_.answered(*request);
    return {};
}

OrRefusal<> Answers::atomic(const wire::Segment &segment, std::span<const std::byte> body) {
    const auto response = wire::decode_atomic_response(body);
    if (!response) {
        return make_refusal(response.error());
    }
    const bool in_sequence = segment.msn == next_msn_++;
    SendRequest *const request = sender_.oldest_awaiting();
    if (!in_sequence || request == nullptr || !is_atomic(request->opcode) ||
        request->immediate != response->identifier) {
        return make_refusal(
            {"an answer to an atomic operation that nobody asked for", wire::terminate::untagged_msn});
    }
    Target target;
    const auto *const original = reinterpret_cast<const std::byte *>(&response->original);
    if (target.aim_at(&domain_, sender_.sges_of(*request), 0, wire::atomic_bytes) != IBV_WC_SUCCESS ||
        target.fill(original) != target.count) {
        return make_refusal({"the memory for the answer to an atomic operation is not there",
                             wire::terminate::local_catastrophic});
    }
    sender_.answered(*request);
    return {};
}

OrRefusal<> Answers::acknowledged(const wire::Segment &segment, std::span<const std::byte> body) {
    const auto placed = wire::decode_acknowledgement(body);
    if (!placed) {
        return make_refusal(placed.error());
    }
    const bool in_sequence = segment.msn == next_msn_++;
    if (!in_sequence || !sender_.acknowledged(*placed)) {
        return make_refusal({"an acknowledgement of what was not sent", wire::terminate::untagged_msn});
    }
    return {};
}

}  // namespace soft
