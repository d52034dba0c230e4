// SPDX-License-Identifier: BSD-3-Clause
#include "soft/transport/responder.hpp"

#include <cinttypes>
#include <utility>

#include "base/log.hpp"
#include "persist/guard.hpp"
#include "persist/mapping.hpp"
#include "softrdma.h"

namespace soft {

std::unexpected<Refusal> memory_vanished(const PeerAccess &access, const MemoryRegion &region,
                                         const void *place) {
    // A file system that copies on write needs room for a page that is written, although the file has it
    // already.
    const bool is_mapped = persist::is_mapped(reinterpret_cast<std::uintptr_t>(place), 1);
    BASE_LOG_PEER(
        Error,
        "%s: %s at offset %td of the %zu bytes at %p that were registered with key 0x%" PRIx32
        ": the connection ends",
        access.text().c_str(),
        is_mapped
            ? "a page of a file cannot be had, because the file was truncated or its file system has no "
              "room,"
            : "nothing is mapped any more",
        static_cast<const char *>(place) - static_cast<const char *>(region.addr), region.length, region.addr,
        region.rkey);
    return make_refusal({"the memory of a region has vanished", wire::terminate::local_catastrophic});
}

OrRefusal<> Responder::take_turn(std::uint32_t msn) {
    const bool room = !sender_.owes_all_it_may();
    if (msn != next_msn_) {
        return make_refusal({"a request out of sequence", wire::terminate::untagged_msn});
    }
    ++next_msn_;
    if (!room) {
        return make_refusal({"more reads, flushes and atomic operations open than were agreed on",
                             wire::terminate::untagged_no_buffer});
    }
    return {};
}

OrRefusal<> Responder::read_requested(std::uint32_t msn, std::span<const std::byte> body) {
    const auto read = wire::decode_read_request(body);
    if (!read) {
        return make_refusal(read.error());
    }
    if (const auto turn = take_turn(msn); !turn) {
        return turn;
    }
    const Response response{.opcode = wire::Opcode::ReadResponse, .read = *read};
    if (read->size == 0) {
        respond(response);  // it touches no memory, so no key is checked
        return {};
    }
    const auto pin = access_.pin({.by = access_.peer(),
                                  .key = read->source_stag,
                                  .address = read->source_offset,
                                  .length = read->size,
                                  .rights = IBV_ACCESS_REMOTE_READ},
                                 "a read that is not allowed", body);
    if (!pin) {
        return std::unexpected{pin.error()};
    }
    // A peer without FLUSH asks for durability by a read after its writes.
    if (pin->region().durable) {
        return respond_when_durable(response);
    }
    respond(response);
    return {};
}

OrRefusal<> Responder::flush_requested(std::uint32_t msn, std::span<const std::byte> body) {
    const auto flush = wire::decode_flush_request(body);
    if (!flush) {
        return make_refusal(flush.error());
    }
    if (const auto turn = take_turn(msn); !turn) {
        return turn;
    }
    const bool persistent = flush->level == wire::FlushLevel::Persistent;
    if (flush->length != 0) {
        const auto pin = access_.pin({.by = access_.peer(),
                                      .key = flush->stag,
                                      .address = flush->offset,
                                      .length = flush->length,
                                      .rights = persistent ? unsigned{SOFTRDMA_ACCESS_FLUSH_PERSISTENT}
                                                           : unsigned{SOFTRDMA_ACCESS_FLUSH_GLOBAL}},
                                     "a flush that is not allowed");
        if (!pin) {
            return std::unexpected{pin.error()};
        }
        if (persistent) {
            durability_.note(pin->region(), flush->offset, flush->length);
        }
    }
    const Response response{.opcode = wire::Opcode::FlushResponse};
    if (persistent) {
        return respond_when_durable(response);
    }
    respond(response);
    return {};
}

OrRefusal<> Responder::atomic_requested(std::uint32_t msn, std::span<const std::byte> body) {
    const auto request = wire::decode_atomic_request(body);
    if (!request) {
        return make_refusal(request.error());
    }
    if (const auto turn = take_turn(msn); !turn) {
        return turn;
    }
    const auto pin = access_.pin({.by = access_.peer(),
                                  .key = request->stag,
                                  .address = request->offset,
                                  .length = wire::atomic_bytes,
                                  .rights = IBV_ACCESS_REMOTE_ATOMIC},
                                 "an atomic operation that is not allowed");
    if (!pin) {
        return std::unexpected{pin.error()};
    }
    std::byte *const at = pin->region().at(request->offset);
    if (request->offset % wire::atomic_bytes != 0 ||
        reinterpret_cast<std::uintptr_t>(at) % wire::atomic_bytes != 0) {
        return make_refusal(
            {"an atomic operation on memory that is not aligned", wire::terminate::catastrophic_stream});
    }
    std::uint64_t original = 0;
    if (!persist::guarded_exchange(reinterpret_cast<std::uint64_t *>(at), original,
                                   [&](std::uint64_t found) { return wire::result_of(*request, found); })) {
        return memory_vanished(access_, pin->region(), at);
    }
    if (pin->region().durable) {
        durability_.note(pin->region(), request->offset, wire::atomic_bytes);
    }
    respond({.opcode = wire::Opcode::AtomicResponse,
             .atomic = {.identifier = request->identifier, .original = original}});
    return {};
}

void Responder::respond(const Response &response) {
    sender_.owe(response);
    answer_due_ = true;
}

OrRefusal<> Responder::respond_when_durable(const Response &response) {
    access_.note_written(durability_);
    if (durability_.begin()) {
        parked_ = response;
        sender_.want_readable(false, false);
        return {};
    }
    return respond_if_durable(response);
}

OrRefusal<> Responder::unpark() {
    const auto responded = respond_if_durable(*std::exchange(parked_, std::nullopt));
    if (responded) {
        sender_.want_readable(true, false);
    }
    return responded;
}

OrRefusal<> Responder::respond_if_durable(const Response &response) {
    if (durability_.error() != 0) {
        return make_refusal({"memory cannot be made durable", wire::terminate::local_catastrophic});
    }
    respond(response);
    return {};
}

}  // namespace soft
