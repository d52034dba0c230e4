// SPDX-License-Identifier: BSD-3-Clause
// soft/qp: atomic operations (RFC 7306 section 5): what the peer asks for, and what it answers.
#include <atomic>

#include "persist/guard.hpp"
#include "soft/connected/qp.hpp"

namespace soft {

namespace {

// Returns what was there before. The processor runs it, so that its other atomic operations on the same
// memory are atomic with it too (IBV_ATOMIC_GLOB).
std::uint64_t run(const wire::AtomicRequest &request, std::uint64_t &memory) {
    const std::atomic_ref<std::uint64_t> target{memory};
    // Looked at as what will be written: memory that vanished faults here, and not inside what
    // ThreadSanitizer does under a lock of its own.
    std::uint64_t original = target.fetch_add(0, std::memory_order_relaxed);
    // Acquire and release: pairs with what the target's program does on either side of it.
    while (!target.compare_exchange_weak(original, wire::result_of(request, original),
                                         std::memory_order_acq_rel, std::memory_order_relaxed)) {
    }
    return original;
}

}  // namespace

void QueuePair::atomic_requested(std::span<const std::byte> body) {
    const auto request = wire::decode_atomic_request(body);
    if (!request) {
        violate(request.error());
        return;
    }
    if (!next_request()) {
        return;
    }
    const auto pin = pin_for_peer({.by = peer(),
                                   .key = request->stag,
                                   .address = request->offset,
                                   .length = wire::atomic_bytes,
                                   .rights = IBV_ACCESS_REMOTE_ATOMIC},
                                  "an atomic operation that is not allowed");
    if (!pin) {
        return;
    }
    std::byte *const at = pin->region().at(request->offset);
    if (request->offset % wire::atomic_bytes != 0 ||
        reinterpret_cast<std::uintptr_t>(at) % wire::atomic_bytes != 0) {
        violate({"an atomic operation on memory that is not aligned", wire::terminate::catastrophic_stream});
        return;
    }
    std::uint64_t original = 0;
    if (!persist::guarded(at, wire::atomic_bytes,
                          [&] { original = run(*request, *reinterpret_cast<std::uint64_t *>(at)); })) {
        memory_vanished(pin->region(), at);
        return;
    }
    if (pin->region().durable) {
        note_dirty(pin->region(), request->offset, wire::atomic_bytes);
    }
    respond({.opcode = wire::Opcode::AtomicResponse,
             .atomic = {.identifier = request->identifier, .original = original}});
}

void QueuePair::atomic_answered(std::span<const std::byte> body) {
    const auto response = wire::decode_atomic_response(body);
    if (!response) {
        violate(response.error());
        return;
    }
    const bool in_sequence = segment_.msn == next_response_msn_++;
    bool expected = false;
    Target target;
    ibv_wc_status status = IBV_WC_SUCCESS;
    {
        const base::Lock lock{send_mutex_};
        SendRequest *const request = oldest_awaiting();
        expected = in_sequence && request != nullptr && is_atomic(request->opcode) &&
                   request->immediate == response->identifier;
        if (expected) {
            status = aim_at(qp_base.pd, target, requests_.sges_of(*request), 0, wire::atomic_bytes);
        }
        if (expected && status == IBV_WC_SUCCESS) {
            const auto *from = reinterpret_cast<const std::byte *>(&response->original);
            for (std::size_t i = 0; i < target.count; ++i) {
                if (!persist::guarded_copy(target.pieces[i].iov_base, from, target.pieces[i].iov_len)) {
                    status = IBV_WC_LOC_PROT_ERR;
                }
                from += target.pieces[i].iov_len;
            }
            if (status == IBV_WC_SUCCESS) {
                retire_answered(*request);
            }
        }
    }
    if (!expected) {
        violate({"an answer to an atomic operation that nobody asked for", wire::terminate::untagged_msn});
    } else if (status != IBV_WC_SUCCESS) {
        violate({"the memory for the answer to an atomic operation is not there",
                 wire::terminate::local_catastrophic});
    }
}

}  // namespace soft
