// SPDX-License-Identifier: BSD-3-Clause
// soft/qp: where payload goes: writes and atomic writes into regions, read responses to their sinks, sends
// into receives.
#include <algorithm>
#include <cinttypes>
#include <cstring>

#include "base/log.hpp"
#include "persist/guard.hpp"
#include "soft/connected/qp.hpp"
#include "soft/ground/wrong_keys.hpp"

namespace soft {

void QueuePair::begin_write() {
    place_at_ = segment_.offset;
    write_bytes_ = (in_write_ ? write_bytes_ : 0) + segment_.payload_bytes;
    in_write_ = !segment_.last;
    if (payload_left_ == 0 || payload_left_ <= buffered().size()) {
        return;  // touches nothing, and no key is checked; or is placed, and checked, at once
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
    payload_left_ = payload.size();
    Target target;
    if (!aim(target, payload.size())) {
        return;
    }
    std::uint64_t value = 0;
    std::memcpy(&value, payload.data(), sizeof(value));
    auto *const to = static_cast<std::uint64_t *>(target.pieces[0].iov_base);
    if (reinterpret_cast<std::uintptr_t>(to) % sizeof(value) != 0) {
        violate({"ATOMIC WRITE to memory that is not aligned", wire::terminate::operation_unspecified});
    } else if (!persist::guarded_store(to, value)) {
        memory_vanished(target.pins[0].region(), to);
    } else {
        placed(sizeof(value), target.durable);
    }
}

void QueuePair::begin_read_response() {
    bool fits = false;
    {
        const base::Lock lock{send_mutex_};
        SendRequest *const request = oldest_awaiting();
        if (request != nullptr && request->opcode == IBV_WR_RDMA_READ) {
            const auto sink = requests_.sges_of(*request);
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
    const base::Lock lock{send_mutex_};
    reading_->received += segment_.payload_bytes;
    if (segment_.last) {
        retire_answered(*reading_);
    }
}

// Up to most_bytes of memory for the next payload.
bool QueuePair::aim(Target &target, std::size_t most_bytes) {
    if (segment_.opcode == wire::Opcode::ReadResponse) {
        uses_what_stays();
        if (aim_at(qp_base.pd, target, requests_.sges_of(*reading_), place_at_, most_bytes) !=
            IBV_WC_SUCCESS) {
            violate({"the memory of a read was deregistered", wire::terminate::local_catastrophic});
        }
        return connected();
    }
    if (wire::is_send(segment_.opcode)) {
        const ibv_wc_status status = aim_at_receive(target, place_at_, most_bytes);
        if (status != IBV_WC_SUCCESS) {
            receive_failed(status);
        }
        return connected();
    }
    auto pin = pin_for_peer({.by = peer(),
                             .key = segment_.stag,
                             .address = place_at_,
                             .length = most_bytes,
                             .rights = IBV_ACCESS_REMOTE_WRITE},
                            "a write that is not allowed");
    if (!pin) {
        return false;
    }
    target.durable = pin->region().durable != nullptr ? &pin->region() : nullptr;
    target.pieces[0] = {.iov_base = pin->region().at(place_at_), .iov_len = most_bytes};
    target.pins[0] = std::move(*pin);
    target.count = 1;
    target.bytes = most_bytes;
    return true;
}

std::optional<Pin> QueuePair::pin_for_peer(const Access &access, const char *refusal,
                                           std::span<const std::byte> read_request) {
    serves();
    Memory::instance().see_registrations(registrations_seen_);
    const unsigned withheld = governed_access & ~granted_.load(std::memory_order_relaxed);
    const bool given_back = !invalidated_.empty() && invalidated_.contains(access.by, access.key);
    auto pin = (access.rights & withheld) != 0 ? std::unexpected{Fault::QueuePairAccess}
               : given_back                    ? std::unexpected{Fault::InvalidKey}
                                               : Memory::instance().pin(access);
    if (pin) {
        return std::move(*pin);
    }
    const Fault fault = pin.error();
    BASE_LOG_PEER(Warning, "%s: %s: %" PRIu64 " bytes at 0x%" PRIx64 " with key 0x%" PRIx32 ": %s",
                  peer_.c_str(), refusal, access.length, access.address, access.key, text_of(fault));
    if (fault == Fault::InvalidKey || fault == Fault::ProtectionDomain || fault == Fault::QueuePair) {
        WrongKeys::instance().note(origin_, base::Clock::now());
    }
    if (only_has_to_send()) {
        ignore_peer();
        return std::nullopt;
    }
    violate({refusal, access.rights == IBV_ACCESS_REMOTE_WRITE ? tagged_code(fault) : rdmap_code(fault)},
            read_request);
    return std::nullopt;
}

// A program that disconnects when all is sent may deregister memory at once, which the peer does not know
// yet. All that the program sent before arrives all the same. Nothing of the peer's is looked at any more, so
// that it cannot guess keys.
void QueuePair::ignore_peer() {
    ignores_peer_ = true;
    in_segment_ = false;
    payload_left_ = 0;
    buffer_begin_ = buffer_end_ = 0;
    group_->clear_deadline(*this);
}

// A shared receive queue's receives are in memory of its own protection domain.
ibv_wc_status QueuePair::aim_at_receive(Target &target, std::size_t offset, std::size_t most_bytes) const {
    return aim_at(qp_base.srq != nullptr ? qp_base.srq->pd : qp_base.pd, target, receive_.sges, offset,
                  most_bytes);
}

ibv_wc_status QueuePair::aim_at(const ibv_pd *domain, Target &target, std::span<const ibv_sge> sges,
                                std::size_t offset, std::size_t most_bytes) {
    for (const ibv_sge &sge : sges) {
        if (target.bytes == most_bytes) {
            break;
        }
        if (offset >= sge.length) {
            offset -= sge.length;
            continue;
        }
        const std::size_t bytes = std::min<std::size_t>(sge.length - offset, most_bytes - target.bytes);
        auto pin = Memory::instance().pin({.by = {domain},
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
    while (payload_left_ != 0 && buffer_begin_ != buffer_end_) {
        const auto bytes = buffered().first(std::min(payload_left_, buffered().size()));
        if (message_ == Message::Kept && wire::is_send(segment_.opcode)) {
            if (!keep_unexpected(bytes)) {
                return false;
            }
            buffer_begin_ += bytes.size();
            placed(bytes.size(), nullptr);
            if (shared_receives_ != nullptr) {
                deliver_unexpected();
                if (!connected()) {
                    return false;
                }
            }
            continue;
        }
        Target target;
        if (!aim(target, bytes.size())) {
            return false;
        }
        for (std::size_t i = 0; i < target.count; ++i) {
            if (!persist::guarded_copy(target.pieces[i].iov_base, buffer_.bytes.get() + buffer_begin_,
                                       target.pieces[i].iov_len)) {
                memory_vanished(target.pins[i].region(), target.pieces[i].iov_base);
                return false;
            }
            buffer_begin_ += target.pieces[i].iov_len;
        }
        placed(target.bytes, target.durable);
    }
    return true;
}

void QueuePair::placed(std::size_t bytes, const MemoryRegion *durable) {
    if (durable != nullptr) {
        note_dirty(*durable, place_at_, bytes);
    }
    payload_left_ -= bytes;
    place_at_ += bytes;
}

}  // namespace soft
