// SPDX-License-Identifier: BSD-3-Clause
#include "soft/transport/response_segments.hpp"

#include <algorithm>

namespace soft {

void ResponseSegments::reserve(std::size_t most) {
    owed_ = base::Ring<Response>{std::max<std::size_t>(most, 1)};
    pins_.reserve(Batch::max_segments);
    reads_.reserve(Batch::max_segments);
}

[[gnu::noinline]] Added ResponseSegments::add_next() {
    const Response &response = next();
    if (response.opcode == wire::Opcode::ReadResponse) {
        if (const Added added = add_read(response.read); added != Added::Yes) {
            return added;
        }
    } else {
        const auto atomic = wire::encode(response.atomic);
        const bool is_atomic = response.opcode == wire::Opcode::AtomicResponse;
        const auto body = std::span<const std::byte>{atomic}.first(is_atomic ? atomic.size() : 0);
        batch_.add_copied({.opcode = response.opcode,
                           .queue = wire::Queue::Response,
                           .msn = msn_++,
                           .payload_bytes = static_cast<std::uint16_t>(body.size())},
                          body);
    }
    if (offset_ == 0) {
        owed_.pop();
    }
    return Added::Yes;
}

Added ResponseSegments::add_read(const wire::ReadRequest &read) {
    const std::size_t size = std::min<std::size_t>(max_payload_bytes_, read.size - offset_);
    const wire::Segment segment{.opcode = wire::Opcode::ReadResponse,
                                .last = offset_ + size == read.size,
                                .stag = read.sink_stag,
                                .offset = read.sink_offset + offset_,
                                .payload_bytes = static_cast<std::uint16_t>(size)};
    if (size == 0) {
        batch_.add_copied(segment, {});
        return Added::Yes;
    }
    const Access access{.by = peer_,
                        .key = read.source_stag,
                        .address = read.source_offset + offset_,
                        .length = size,
                        .rights = IBV_ACCESS_REMOTE_READ};
    auto pin = Memory::instance().pin(access);
    if (!pin) {
        return Added::NotAllowed;  // the region was deregistered after the request
    }
    const iovec piece{.iov_base = pin->region().at(access.address), .iov_len = size};
    if (!batch_.add(segment, {&piece, 1})) {
        return Added::MemoryGone;
    }
    pins_.push_back(std::move(*pin));
    reads_.push_back({.access = access, .piece = batch_.payload_piece()});
    offset_ = segment.last ? 0 : offset_ + size;
    return Added::Yes;
}

void ResponseSegments::add_acknowledgement(const wire::Acknowledgement &placed) {
    const auto body = wire::encode(placed);
    batch_.add_copied({.opcode = wire::Opcode::Acknowledgement,
                       .queue = wire::Queue::Response,
                       .msn = msn_++,
                       .payload_bytes = static_cast<std::uint16_t>(body.size())},
                      body);
}

[[gnu::noinline]] bool ResponseSegments::pin_again() {
    for (const Read &read : reads_) {
        if (batch_.has_sent(read.piece)) {
            continue;
        }
        auto pin = Memory::instance().pin(read.access);
        if (!pin) {
            pins_.clear();  // nothing will be sent, so a thread that deregisters another region need not wait
            return false;
        }
        pins_.push_back(std::move(*pin));
    }
    return true;
}

}  // namespace soft
