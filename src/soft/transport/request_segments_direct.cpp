// SPDX-License-Identifier: BSD-3-Clause
// soft/transport/request_segments: writes, reads and atomic operations that this process does itself, in
// memory that the peer on this host has offered (memory/offers). They are done when they return, so all later
// requests come after them. A write may overtake messages that the link still has, as RFC 5040 (section 5.5)
// allows; a read or an atomic operation comes after them. None overtakes a write, read or atomic operation,
// because programs look at memory to learn that bytes have come, nor a message that takes a key back.
#include <algorithm>

#include "persist/guard.hpp"
#include "soft/memory/memory.hpp"
#include "soft/memory/target.hpp"
#include "soft/transport/request_segments.hpp"

namespace soft {

namespace {

// In this time the number of a thread that has ended does not come again.
constexpr std::chrono::milliseconds seen_for{1};

// Returns whether an operation with eight bytes is one access, for which the memory has to be mapped here.
bool is_one_access(const SendRequest &request) {
    return (is_atomic(request.opcode) || request.opcode == IBV_WR_ATOMIC_WRITE) &&
           request.length == wire::atomic_bytes;
}

bool is_persistent_flush(const SendRequest &request) {
    return request.opcode == SOFTRDMA_WR_FLUSH && request.immediate == SOFTRDMA_FLUSH_PERSISTENT;
}

// Returns whether the request may be done before an earlier message is delivered.
bool may_overtake_messages(const SendRequest &request) {
    return request.opcode == IBV_WR_RDMA_WRITE || request.opcode == IBV_WR_ATOMIC_WRITE;
}

}  // namespace

void RequestSegments::leave_link() {
    direct_.end();
    link_ = nullptr;
}

// Returns whether a write goes through the link with the small requests around it: the link takes each in
// less time than the system call that the kernel's copy is.
inline bool RequestSegments::goes_with_others(const SendRequest &request) const {
    return in_burst_ && request.opcode == IBV_WR_RDMA_WRITE && request.length <= Batch::max_copied_bytes &&
           direct_.is_copied_by_kernel();
}

// Returns whether a write goes through the link with the message that was posted behind it. The link has to
// carry the message, so it carries a few bytes more in less time than an access takes. An access needs the
// peer's process to be looked at, with some system calls each time when the connection is used rarely. While
// larger writes have it looked at, few bytes go the same way, so that no larger write waits for them.
inline bool RequestSegments::goes_with_message(const SendRequest &request,
                                               base::Clock::time_point now) const {
    return request.opcode == IBV_WR_RDMA_WRITE && !queue_.next_is_youngest() &&
           is_message(queue_.youngest().opcode) && request.length < direct_.least_bytes_beside_message() &&
           !(direct_.has_mapping() && now - peer_seen_ <= seen_for);
}

inline bool RequestSegments::peer_is_there(base::Clock::time_point now) {
    direct_.set_time(now);
    if (now - peer_seen_ > seen_for) {
        if (link_->ready().ended || !direct_.look_again()) {
            return false;
        }
        peer_seen_ = now;
    }
    return true;
}

// The peer counts the bytes of a write with immediate data. A request that has begun in the link, or has
// failed, ends there. Each request looks at the mappings, so that one that is withdrawn does not stay.
[[gnu::hot]] bool RequestSegments::may_go_direct(const SendRequest &request) {
    const bool has_mapping = direct_.has_mapping();
    const auto now = has_mapping ? base::Clock::now() : base::Clock::time_point{};
    if (has_mapping && now - mappings_seen_ > seen_for) {
        direct_.unmap_withdrawn();
        mappings_seen_ = now;
    }
    if ((request.opcode != IBV_WR_RDMA_WRITE && request.opcode != IBV_WR_RDMA_READ &&
         !is_one_access(request) && !is_persistent_flush(request)) ||
        request.status != IBV_WC_SUCCESS) {
        return false;
    }
    if (request.length == 0 || (offset_ != 0 && !inside_direct_) || !direct_.may_reach(request.rkey) ||
        !queue_.nothing_awaits() || goes_with_others(request) || goes_with_message(request, now)) {
        return false;
    }
    if (ordered_in_link_ || (message_in_link_ && !may_overtake_messages(request))) {
        if (!batch_.empty() || link_->undelivered()) {
            return false;
        }
        ordered_in_link_ = false;
        message_in_link_ = false;
    }
    return peer_is_there(has_mapping ? now : base::Clock::now());
}

[[gnu::hot]] bool RequestSegments::go_direct(SendRequest &request) {
    const std::size_t bytes = std::min(request.length - offset_, DirectAccess::most_bytes);
    if (request.opcode == IBV_WR_RDMA_WRITE) {
        Pieces source;
        if (!gather(request, offset_, bytes, source) ||
            !direct_.write(request.rkey, request.remote_address + offset_, source.get(), bytes)) {
            return false;
        }
    } else if (request.opcode == SOFTRDMA_WR_FLUSH) {
        return flush_direct(request);
    } else if (request.opcode == IBV_WR_RDMA_READ) {
        if (!read_direct(request, bytes)) {
            return false;
        }
    } else if (is_atomic(request.opcode)) {
        if (!operate_direct(request)) {
            return false;
        }
    } else if (!store_direct(request)) {
        return false;
    }
    direct_bytes_ += bytes;
    offset_ += bytes;
    inside_direct_ = offset_ != request.length;
    if (!inside_direct_) {
        offset_ = 0;
        queue_.done(request);
    }
    return true;
}

// A thread that sleeps for the completion makes the memory durable in less time than the threads take to wake
// that would do it otherwise. When that fails at once, the peer tries, and knows how to refuse.
[[gnu::noinline]] bool RequestSegments::flush_direct(SendRequest &request) {
    if (!direct_.note_for_flush(request.rkey, request.remote_address, request.length, flush_.ranges())) {
        return false;
    }
    if (queue_.expects_sleeper() && flush_.ranges().waits_for_storage()) {
        flush_.leave_to_sleeper(request);
    } else if (!flush_.begin(request)) {
        if (flush_.ranges().error() != 0) {
            return false;
        }
        queue_.done(request);
        return true;
    }
    queue_.persists(request);
    return true;
}

[[gnu::noinline]] bool RequestSegments::read_direct(const SendRequest &request, std::size_t bytes) {
    Target sink;
    return sink.aim_at(&local_.domain(), queue_.sges_of(request), offset_, bytes) == IBV_WC_SUCCESS &&
           sink.bytes == bytes &&
           direct_.read(request.rkey, request.remote_address + offset_,
                        std::span{sink.pieces}.first(sink.count), bytes);
}

// The place of the old value is checked before the operation, which cannot be taken back. The program may
// have unmapped that place all the same; then the request fails, as after an answer of the peer.
[[gnu::noinline]] bool RequestSegments::operate_direct(SendRequest &request) {
    using Atomic = DirectAccess::Atomic;
    Target sink;
    if (sink.aim_at(&local_.domain(), queue_.sges_of(request), 0, wire::atomic_bytes) != IBV_WC_SUCCESS ||
        sink.bytes != wire::atomic_bytes) {
        return false;
    }
    const bool adds = request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
    std::uint64_t original = 0;
    if (!direct_.atomic(request.rkey, request.remote_address,
                        {.kind = adds ? Atomic::Kind::Add : Atomic::Kind::CompareAndSwap,
                         .value = adds ? request.compare_add : request.swap,
                         .compare = adds ? 0 : request.compare_add},
                        original)) {
        return false;
    }
    if (sink.fill(reinterpret_cast<const std::byte *>(&original)) != sink.count) {
        request.status = IBV_WC_LOC_PROT_ERR;
        return false;
    }
    return true;
}

[[gnu::noinline]] bool RequestSegments::store_direct(const SendRequest &request) {
    Pieces source;
    std::uint64_t value = 0;
    if (!gather(request, 0, wire::atomic_bytes, source) ||
        !persist::guarded_gather(reinterpret_cast<std::byte *>(&value), source.get())) {
        return false;
    }
    std::uint64_t original = 0;
    return direct_.atomic(request.rkey, request.remote_address,
                          {.kind = DirectAccess::Atomic::Kind::Store, .value = value}, original);
}

}  // namespace soft
