// SPDX-License-Identifier: BSD-3-Clause
// soft/qp: reads and flushes that the peer asks for. A worker makes durable what would
// wait for storage; until it is back the connection is parked, and only this connection.
#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <utility>

#include "base/log.hpp"
#include "soft/connected/qp.hpp"
#include "softrdma.h"

namespace soft {

namespace {

// Ranges kept apart; more are joined, and what lies between them is persisted too.
constexpr std::size_t max_dirty_ranges = 16;

}  // namespace

bool QueuePair::next_request() {
    bool room = false;
    {
        const base::Lock lock{send_mutex_};
        room = !responses_.full();
    }
    if (segment_.msn != next_request_msn_) {
        violate({"a request out of sequence", wire::terminate::untagged_msn});
        return false;
    }
    ++next_request_msn_;
    if (!room) {
        violate({"more reads, flushes and atomic operations open than were agreed on",
                 wire::terminate::untagged_no_buffer});
        return false;
    }
    return true;
}

void QueuePair::read_requested(std::span<const std::byte> body) {
    const auto read = wire::decode_read_request(body);
    if (!read) {
        violate(read.error());
        return;
    }
    if (!next_request()) {
        return;
    }
    const Response response{.opcode = wire::Opcode::ReadResponse, .read = *read};
    if (read->size == 0) {
        respond(response);  // touches nothing: no key is checked
        return;
    }
    const auto pin = pin_for_peer({.by = peer(),
                                   .key = read->source_stag,
                                   .address = read->source_offset,
                                   .length = read->size,
                                   .rights = IBV_ACCESS_REMOTE_READ},
                                  "a read that is not allowed", body);
    if (!pin) {
        return;
    }
    // A read behind writes is how a peer without FLUSH asks for durability.
    if (pin->region().durable) {
        respond_when_durable(response);
    } else {
        respond(response);
    }
}

void QueuePair::flush_requested(std::span<const std::byte> body) {
    const auto flush = wire::decode_flush_request(body);
    if (!flush) {
        violate(flush.error());
        return;
    }
    if (!next_request()) {
        return;
    }
    const bool persistent = flush->level == wire::FlushLevel::Persistent;
    if (flush->length != 0) {
        const auto pin = pin_for_peer({.by = peer(),
                                       .key = flush->stag,
                                       .address = flush->offset,
                                       .length = flush->length,
                                       .rights = persistent ? unsigned{SOFTRDMA_ACCESS_FLUSH_PERSISTENT}
                                                            : unsigned{SOFTRDMA_ACCESS_FLUSH_GLOBAL}},
                                      "a flush that is not allowed");
        if (!pin) {
            return;
        }
        if (persistent) {
            note_dirty(pin->region(), flush->offset, flush->length);
        }
    }
    const Response response{.opcode = wire::Opcode::FlushResponse};
    if (persistent) {
        respond_when_durable(response);
    } else {
        respond(response);
    }
}

void QueuePair::flush_answered(std::span<const std::byte> body) {
    if (!body.empty()) {
        violate({"a FLUSH RESPONSE with a body", wire::terminate::untagged_too_long});
        return;
    }
    const bool in_sequence = segment_.msn == next_response_msn_++;
    bool expected = false;
    {
        const base::Lock lock{send_mutex_};
        SendRequest *const request = oldest_awaiting();
        expected = in_sequence && request != nullptr && request->opcode == SOFTRDMA_WR_FLUSH;
        if (expected) {
            retire_answered(*request);
        }
    }
    if (!expected) {
        violate({"an answer to a flush that nobody asked for", wire::terminate::untagged_msn});
    }
}

void QueuePair::retire_answered(SendRequest &request) {
    request.state = SendRequest::State::Done;
    --awaiting_;
    retire();
    transmit();
}

void QueuePair::respond(const Response &response) {
    const base::Lock lock{send_mutex_};
    responses_.push(response);
    answer_due_ = true;
}

void QueuePair::respond_when_durable(const Response &response) {
    owns_dirty();
    parked_response_ = response;
    if (persist::Worker *const worker = worker_to_wait_for()) {
        parked_ = true;
        persisting_ = true;
        want_readable(false);
        persist_job_ = {.run = run_persist, .argument = this};
        if (worker->submit(persist_job_)) {
            return;
        }
        // The system gives no thread: here and now, while others wait.
    }
    persisted(persist_dirty());
}

void QueuePair::note_dirty(const MemoryRegion &region, std::uint64_t address, std::uint64_t bytes) {
    owns_dirty();
    std::byte *const begin = region.at(address);
    std::byte *const end = begin + bytes;
    const auto same_region = [&](const Dirty &known) { return known.region == region.durable; };
    const auto join = [&](Dirty &known) {
        known.begin = std::min(known.begin, begin);
        known.end = std::max(known.end, end);
    };
    const auto touching = std::ranges::find_if(dirty_, [&](const Dirty &known) {
        return same_region(known) && begin <= known.end && end >= known.begin;
    });
    if (touching != dirty_.end()) {
        join(*touching);
        return;
    }
    if (dirty_.size() >= max_dirty_ranges) {
        std::erase_if(dirty_, [](const Dirty &known) { return known.region->closed_durable(); });
        const auto near = std::ranges::find_if(dirty_, same_region);
        if (near != dirty_.end()) {
            join(*near);
            return;
        }
    }
    dirty_.push_back({region.durable, begin, end});
}

// That of the first range that waits for storage; nullptr when there is none.
persist::Worker *QueuePair::worker_to_wait_for() const {
    const auto waits =
        std::ranges::find_if(dirty_, [](const Dirty &range) { return range.region->worker() != nullptr; });
    return waits != dirty_.end() ? waits->region->worker() : nullptr;
}

// The ranges that belong on this worker. An errno value. No region is pinned meanwhile: deregistering one
// does not wait for storage that others need.
int QueuePair::persist_dirty(const persist::Worker *worker) {
    int error = 0;
    std::erase_if(dirty_, [&](const Dirty &range) {
        if (range.region->worker() != worker) {
            return false;
        }
        const auto done =
            range.region->persist(range.begin, static_cast<std::size_t>(range.end - range.begin));
        if (!done) {
            error = done.error().number;
            BASE_LOG(Error, "cannot make %td bytes at %p durable: %s", range.end - range.begin,
                     static_cast<void *>(range.begin), std::strerror(error));
        }
        return true;
    });
    return error;
}

// All there are, up to the first error.
int QueuePair::persist_dirty() {
    int error = 0;
    while (error == 0 && !dirty_.empty()) {
        error = persist_dirty(dirty_.front().region->worker());
    }
    dirty_.clear();
    return error;
}

// On a worker, for what belongs there; then on the next one's. The connection is parked: nobody else touches
// dirty_.
void QueuePair::run_persist(void *queue_pair) {
    auto &self = *static_cast<QueuePair *>(queue_pair);
    const auto group = self.group_;  // outlives the queue pair here
    self.persists();
    int error = self.persist_dirty(self.worker_to_wait_for());
    if (persist::Worker *const next = self.worker_to_wait_for(); next != nullptr && error == 0) {
        if (next->submit(self.persist_job_)) {
            return;
        }
    }
    error = error != 0 ? error : self.persist_dirty();
    {
        const base::Lock lock{self.group_->mutex()};
        self.persisted(error);
        self.resume();
    }
    // Release: pairs with the destructor's acquire; it looks again under the lock.
    persists_returned.fetch_add(1, std::memory_order_release);
    persists_returned.notify_all();
}

void QueuePair::persisted(int error) {
    const bool was_parked = std::exchange(parked_, false);
    persisting_ = false;
    if (!connected()) {
        return;
    }
    if (error != 0) {
        violate({"memory cannot be made durable", wire::terminate::local_catastrophic});
        return;
    }
    respond(parked_response_);
    if (was_parked) {
        want_readable(true);
    }
}

}  // namespace soft
