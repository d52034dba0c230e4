// SPDX-License-Identifier: BSD-3-Clause
// soft/transport/request_segments: makes segments of the requests of a send queue. A message's segments stay
// together.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/clock.hpp"
#include "soft/ground/faults.hpp"
#include "soft/memory/direct_access.hpp"
#include "soft/memory/local_memory.hpp"
#include "soft/queues/send_queue.hpp"
#include "soft/transport/batch.hpp"
#include "soft/transport/direct_flush.hpp"
#include "soft/transport/response.hpp"

namespace soft {

// It is not thread-safe: its owner locks.
class RequestSegments {
public:
    // `domain` is the queue pair's; its keys name local memory.
    RequestSegments(const ibv_pd &domain, SendQueue &queue, Batch &batch, DirectFlush &flush)
        : local_{domain}, queue_{queue}, batch_{batch}, flush_{flush} {}

    // Asks SOFTRDMA_FAULTS for failures of this queue pair's requests.
    void use_faults(const Faults &faults, std::uint32_t queue_pair) {
        faults_ = std::make_unique<RequestFaults>(faults, queue_pair);
    }
    [[nodiscard]] RequestFaults *faults() const { return faults_.get(); }
    // Begins a connection. The arguments are its link, the most bytes of payload in a segment, the most
    // requests that wait for answers, and whether to use CRC32C.
    void begin(const Link &link, std::size_t max_payload_bytes, unsigned most_awaiting, bool crc);
    // Is called before the link is destroyed.
    void leave_link();
    void set_most_awaiting(unsigned most) { most_awaiting_ = most; }
    // Tells whether the next requests are small ones of a burst.
    void set_in_burst(bool in_burst) { in_burst_ = in_burst; }

    // Returns true in the middle of a message.
    [[nodiscard]] bool inside() const { return offset_ != 0; }
    // Returns true when a request of `bytes` is one segment.
    [[nodiscard]] bool is_whole(std::size_t bytes) const {
        return bytes <= max_payload_bytes_ && faults_ == nullptr;
    }
    [[nodiscard]] bool has_next() const { return queue_.has_next(); }
    // Adds the next segment of the send queue's next request to the batch, or does it, or a part of it,
    // without the link (request_segments_direct.cpp). There is such a request.
    [[nodiscard]] Added add_next();
    // Adds flushes, at the end of the connection, of each object of the peer that this process could flush.
    void add_last_flushes();
    // Returns how many bytes were copied without the link since the last call.
    [[nodiscard]] std::size_t take_direct_bytes() { return std::exchange(direct_bytes_, 0); }
    // Returns whether it is time to do something else than copy without the link.
    [[nodiscard]] bool has_copied_enough() const { return direct_bytes_ >= DirectAccess::most_bytes; }
    // Is called when the connection has ended.
    void forget() {
        offset_ = 0;
        inside_direct_ = false;
    }

private:
    [[nodiscard]] Added fault_stops(const SendRequest &request);
    [[nodiscard]] Added fail_in_turn() const;
    [[nodiscard]] std::size_t next_segment_bytes(const SendRequest &request) const;
    [[nodiscard]] bool is_lent(const SendRequest &request, std::size_t bytes) const;
    template <typename Use>
    [[nodiscard]] bool use_pieces(const SendRequest &request, std::size_t offset, std::size_t size, Use use);
    // Pieces of local memory.
    struct Pieces {
        std::array<iovec, Batch::max_payload_pieces> all;
        std::size_t count = 0;
        [[nodiscard]] std::span<const iovec> get() const { return std::span{all}.first(count); }
    };
    [[nodiscard]] bool gather(const SendRequest &request, std::size_t offset, std::size_t size, Pieces &to);
    [[nodiscard]] bool add_data(SendRequest &request, std::size_t size);
    [[nodiscard]] bool add_large(const SendRequest &request, const wire::Segment &segment);
    void add_immediate(const SendRequest &request);
    void add_request(wire::Opcode opcode, std::span<const std::byte> body);
    [[nodiscard]] bool add_answered(SendRequest &request);

    // request_segments_direct.cpp
    [[nodiscard]] bool may_go_direct(const SendRequest &request);
    [[nodiscard]] bool goes_with_others(const SendRequest &request) const;
    [[nodiscard]] bool goes_with_message(const SendRequest &request, base::Clock::time_point now) const;
    [[nodiscard]] bool peer_is_there(base::Clock::time_point now);
    [[nodiscard]] bool go_direct(SendRequest &request);
    [[nodiscard]] bool read_direct(const SendRequest &request, std::size_t bytes);
    [[nodiscard]] bool operate_direct(SendRequest &request);
    [[nodiscard]] bool store_direct(const SendRequest &request);
    [[nodiscard]] bool flush_direct(SendRequest &request);

    LocalMemory local_;
    SendQueue &queue_;
    Batch &batch_;
    DirectFlush &flush_;
    std::unique_ptr<RequestFaults> faults_;
    const Link *link_ = nullptr;
    DirectAccess direct_;
    std::size_t direct_bytes_ = 0;
    bool in_burst_ = false;
    bool inside_direct_ = false;  // the bytes of the current request up to offset_ were copied
    // The link may have a request that must come before any direct access, or a message, that must come
    // before a direct read or atomic operation.
    bool ordered_in_link_ = false;
    bool message_in_link_ = false;
    base::Clock::time_point peer_seen_;      // when the peer's process was last there
    base::Clock::time_point mappings_seen_;  // when the withdrawn ones were last unmapped
    std::size_t max_payload_bytes_ = 0;
    unsigned most_awaiting_ = 0;
    bool crc_ = false;
    std::size_t offset_ = 0;  // in the current message
    std::uint32_t send_msn_ = 1;
    std::uint32_t request_msn_ = 1;
};

// Calls use(place, bytes) for each piece of local memory with `size` bytes of the request from `offset` on.
// Returns false when use() does, or when a key does not allow the access. When a message begins, all of its
// memory is checked, so that a refused request has sent nothing, and waits for its turn.
template <typename Use>
[[gnu::always_inline]] inline bool RequestSegments::use_pieces(const SendRequest &request, std::size_t offset,
                                                               std::size_t size, Use use) {
    const unsigned rights = request.needs_answer ? unsigned{IBV_ACCESS_LOCAL_WRITE} : 0U;
    const bool begins = offset == 0;
    for (const ibv_sge &sge : queue_.sges_of(request)) {
        if (offset >= sge.length) {
            offset -= sge.length;
            continue;
        }
        const std::size_t bytes = std::min<std::size_t>(sge.length - offset, size);
        if (bytes == 0 && !begins) {
            break;
        }
        const auto place =
            request.is(IBV_SEND_INLINE) ? SendQueue::address_of(sge) : local_.find(sge, rights);
        if (!place || !use(*place + offset, bytes)) {
            return false;
        }
        size -= bytes;
        offset = 0;
    }
    return true;
}

// Stores those pieces.
[[gnu::always_inline]] inline bool RequestSegments::gather(const SendRequest &request, std::size_t offset,
                                                           std::size_t size, Pieces &to) {
    return use_pieces(request, offset, size, [&to](std::byte *place, std::size_t bytes) {
        to.all[to.count++] = {.iov_base = place, .iov_len = bytes};
        return true;
    });
}

}  // namespace soft
