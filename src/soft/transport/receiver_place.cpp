// SPDX-License-Identifier: BSD-3-Clause
// soft/transport/receiver: places payload: writes and atomic writes go into regions, answers to reads and
// atomic operations to their sinks, messages into receives.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "persist/guard.hpp"
#include "soft/transport/receiver.hpp"

namespace soft {

namespace {

constexpr char refused_write[] = "a write that is not allowed";

}  // namespace

// Drops only the write that was refused, if its queue pair is unreliable: a card tells nobody of such a
// write. An address that guesses keys loses the connection too.
OrRefusal<> Receiver::lose_write(const Refusal &refusal) {
    const bool unreliable = parameters_.by_number && !parameters_.acknowledged;
    lost_ = unreliable && refusal.of == Refusal::Of::Access && !parts_.access.guesses_keys();
    return lost_ ? OrRefusal<>{} : std::unexpected{refusal};
}

// Finds up to most_bytes of memory for the next payload.
OrRefusal<> Receiver::aim(Target &target, std::size_t most_bytes) {
    const wire::Segment &segment = incoming_.segment();
    if (segment.opcode == wire::Opcode::ReadResponse) {
        return answers_.aim(target, place_at_, most_bytes);
    }
    if (wire::is_send(segment.opcode)) {
        return parts_.inbox.aim(target, place_at_, most_bytes);
    }
    auto pin = parts_.access.pin(write_of(place_at_, most_bytes), refused_write);
    if (!pin) {
        return std::unexpected{pin.error()};
    }
    target.aim_at(std::move(*pin), place_at_, most_bytes);
    return {};
}

Access Receiver::write_of(std::uint64_t address, std::size_t bytes) const {
    return {.by = parts_.access.peer(),
            .key = incoming_.segment().stag,
            .address = address,
            .length = bytes,
            .rights = IBV_ACCESS_REMOTE_WRITE};
}

// Places the payload of a write that is in the buffer.
[[gnu::hot]] OrRefusal<> Receiver::place_write(std::span<const std::byte> bytes) {
    const auto pinned = parts_.access.pin_for_writes(write_of(place_at_, bytes.size()), refused_write);
    if (!pinned) {
        return lose_write(pinned.error());
    }
    const MemoryRegion &region = **pinned;
    std::byte *const to = region.at(place_at_);
    if (!persist::guarded_copy(to, bytes.data(), bytes.size())) {
        return memory_vanished(parts_.access, region, to);
    }
    incoming_.drop(bytes.size());
    placed(bytes.size(), region.durable != nullptr ? &region : nullptr);
    return {};
}

// Receives payload straight into its place.
OrRefusal<Link::Received> Receiver::fill_target() {
    Target target;
    if (const auto aimed = aim(target, incoming_.payload_left()); !aimed) {
        const bool is_write = incoming_.segment().opcode == wire::Opcode::Write;
        const auto lost = is_write ? lose_write(aimed.error()) : aimed;
        return lost ? OrRefusal<Link::Received>{Link::Received{.state = Link::Received::State::More}}
                    : std::unexpected{lost.error()};
    }
    const Link::Received got = incoming_.fill(*link_, target);
    if (got.bytes > 0) {
        placed(std::min(got.bytes, target.bytes), target.durable);
    } else if (got.error == EFAULT) {
        return memory_vanished(parts_.access, target.pins[0].region(), target.pieces[0].iov_base);
    }
    return got;
}

// Places the payload that is in the buffer already.
[[gnu::hot]] OrRefusal<> Receiver::place_buffered() {
    Inbox &inbox = parts_.inbox;
    while (incoming_.payload_left() != 0 && !incoming_.is_empty()) {
        const auto bytes = incoming_.buffered_payload();
        if (incoming_.segment().opcode == wire::Opcode::Write) {
            if (lost_) [[unlikely]] {
                incoming_.drop(bytes.size());
                incoming_.placed(bytes.size());
            } else if (const auto placed = place_write(bytes); !placed) {
                return placed;
            }
            continue;
        }
        if (inbox.keeps() && wire::is_send(incoming_.segment().opcode)) {
            if (!inbox.keep(bytes)) {
                stall();
                return {};
            }
            incoming_.drop(bytes.size());
            placed(bytes.size(), nullptr);
            if (inbox.shares()) {
                if (const auto delivered = inbox.deliver(); !delivered) {
                    return delivered;
                }
            }
            continue;
        }
        Target target;
        if (const auto aimed = aim(target, bytes.size()); !aimed) {
            return aimed;
        }
        if (const std::size_t filled = target.fill(bytes.data()); filled != target.count) {
            return memory_vanished(parts_.access, target.pins[filled].region(),
                                   target.pieces[filled].iov_base);
        }
        incoming_.drop(target.bytes);
        placed(target.bytes, target.durable);
    }
    return {};
}

void Receiver::placed(std::size_t bytes, const MemoryRegion *durable) {
    if (durable != nullptr) {
        parts_.durability.note(*durable, place_at_, bytes);
    }
    incoming_.placed(bytes);
    place_at_ += bytes;
}

[[gnu::hot]] OrRefusal<> Receiver::begin_write() {
    const wire::Segment &segment = incoming_.segment();
    place_at_ = segment.offset;
    lost_ = lost_ && in_write_;
    write_bytes_ = (in_write_ ? write_bytes_ : 0) + segment.payload_bytes;
    in_write_ = !segment.last;
    const std::size_t payload = incoming_.payload_left();
    if (payload == 0 || lost_ || payload <= incoming_.buffered().size()) {
        // An empty write touches no memory, and no key is checked. place_buffered() checks one whose payload
        // is in the buffer.
        return {};
    }
    // The key is checked before the payload comes, so that a peer is told of a wrong one at once.
    Target target;
    const auto aimed = aim(target, payload);
    return aimed ? aimed : lose_write(aimed.error());
}

OrRefusal<> Receiver::atomic_write(std::span<const std::byte> payload) {
    const wire::Segment &segment = incoming_.segment();
    if (payload.size() != wire::atomic_write_bytes || segment.offset % wire::atomic_write_bytes != 0) {
        return make_refusal(
            {"ATOMIC WRITE that is not 8 aligned bytes", wire::terminate::operation_unspecified});
    }
    const auto pin = parts_.access.pin(write_of(segment.offset, payload.size()), refused_write);
    if (!pin) {
        return std::unexpected{pin.error()};
    }
    const MemoryRegion &region = pin->region();
    std::uint64_t value = 0;
    std::memcpy(&value, payload.data(), sizeof(value));
    std::byte *const to = region.at(segment.offset);
    if (reinterpret_cast<std::uintptr_t>(to) % sizeof(value) != 0) {
        return make_refusal(
            {"ATOMIC WRITE to memory that is not aligned", wire::terminate::operation_unspecified});
    }
    if (!persist::guarded_store(reinterpret_cast<std::uint64_t *>(to), value)) {
        return memory_vanished(parts_.access, region, to);
    }
    if (region.durable != nullptr) {
        parts_.durability.note(region, segment.offset, sizeof(value));
    }
    parts_.placed.write();
    return {};
}

}  // namespace soft
