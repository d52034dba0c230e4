// SPDX-License-Identifier: BSD-3-Clause
// soft/qp: reads and flushes that the peer asks for. What must become durable first, and would wait for
// storage, is done on a worker; until it is back the connection is parked, and only this connection.
#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstring>

#include "base/log.hpp"
#include "soft/qp.hpp"
#include "softrdma.h"

namespace soft {

namespace {

// Ranges kept apart; more are joined, and what lies between them is persisted too.
constexpr std::size_t max_dirty_ranges = 16;

// This thread is inside submit(), with the group's lock held.
thread_local bool submitting = false;

}  // namespace

bool QueuePair::next_request() {
    bool room = false;
    {
        const std::scoped_lock lock{send_mutex_};
        room = !responses_.full();
    }
    if (segment_.msn != next_request_msn_) {
        violate({"a request out of sequence", wire::terminate::untagged_msn});
        return false;
    }
    ++next_request_msn_;
    if (!room) {
        violate({"more reads and flushes open than were agreed on", wire::terminate::untagged_no_buffer});
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
    const auto pin = Memory::instance().pin({.pd = pd,
                                             .key = read->source_stag,
                                             .address = read->source_offset,
                                             .length = read->size,
                                             .rights = IBV_ACCESS_REMOTE_READ});
    if (!pin) {
        BASE_LOG(Warning, "%s reads %" PRIu32 " bytes at 0x%" PRIx64 " with key 0x%" PRIx32 ": %s",
                 name().c_str(), read->size, read->source_offset, read->source_stag, text_of(pin.error()));
        violate({"a read that is not allowed", rdmap_code(pin.error())});
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
        const auto pin =
            Memory::instance().pin({.pd = pd,
                                    .key = flush->stag,
                                    .address = flush->offset,
                                    .length = flush->length,
                                    .rights = persistent ? unsigned{SOFTRDMA_ACCESS_FLUSH_PERSISTENT}
                                                         : unsigned{SOFTRDMA_ACCESS_FLUSH_GLOBAL}});
        if (!pin) {
            BASE_LOG(Warning, "%s flushes %" PRIu32 " bytes at 0x%" PRIx64 " with key 0x%" PRIx32 ": %s",
                     name().c_str(), flush->length, flush->offset, flush->stag, text_of(pin.error()));
            violate({"a flush that is not allowed", rdmap_code(pin.error())});
            return;
        }
        if (persistent) {
            note_dirty(flush->stag, flush->offset, flush->length);
        }
    }
    const Response response{.opcode = wire::Opcode::FlushResponse};
    if (persistent) {
        respond_when_durable(response);
    } else {
        respond(response);
    }
}

void QueuePair::flush_answered() {
    const bool in_sequence = segment_.msn == next_response_msn_++;
    bool expected = false;
    {
        const std::scoped_lock lock{send_mutex_};
        SendRequest *const request = oldest_awaiting();
        expected = in_sequence && request != nullptr && request->opcode == SOFTRDMA_WR_FLUSH;
        if (expected) {
            request->state = SendRequest::State::Done;
            --awaiting_;
            retire();
            transmit();
        }
    }
    if (!expected) {
        violate({"an answer to a flush that nobody asked for", wire::terminate::untagged_msn});
    }
}

void QueuePair::respond(const Response &response) {
    const std::scoped_lock lock{send_mutex_};
    responses_.push() = response;
    responses_added_ = true;
}

void QueuePair::respond_when_durable(const Response &response) {
    if (!persist_blocks()) {
        if (persist_dirty() == 0) {
            respond(response);
        } else {
            violate({"memory cannot be made durable", wire::terminate::local_catastrophic});
        }
        return;
    }
    parked_ = true;
    parked_response_ = response;
    persisting_ = true;
    want_readable(false);
    persist_job_ = {.run = run_persist, .argument = this};
    submitting = true;
    persist::Worker::instance().submit(persist_job_);
    submitting = false;
}

void QueuePair::note_dirty(std::uint32_t key, std::uint64_t address, std::uint64_t size) {
    const std::uint64_t end = address + size;
    const auto same = [key](const Dirty &range) { return range.key == key; };
    for (Dirty &range : dirty_) {
        if (same(range) && address <= range.end && end >= range.begin) {
            range.begin = std::min(range.begin, address);
            range.end = std::max(range.end, end);
            return;
        }
    }
    const auto pin = Memory::instance().pin({.pd = pd,
                                             .key = key,
                                             .address = address,
                                             .length = size,
                                             .rights = SOFTRDMA_ACCESS_FLUSH_PERSISTENT});
    if (!pin) {
        return;  // a region that nobody flushes
    }
    if (std::ranges::count_if(dirty_, same) >= static_cast<std::ptrdiff_t>(max_dirty_ranges)) {
        Dirty &range = *std::ranges::find_if(dirty_, same);
        range.begin = std::min(range.begin, address);
        range.end = std::max(range.end, end);
        return;
    }
    dirty_.push_back({.key = key, .begin = address, .end = end});
}

bool QueuePair::persist_blocks() const {
    return std::ranges::any_of(dirty_, [this](const Dirty &range) {
        const auto pin = Memory::instance().pin(
            {.pd = pd, .key = range.key, .address = range.begin, .length = 0, .rights = 0});
        return pin && pin->region().durable->blocks();
    });
}

// An errno value. A region that was deregistered since is its owner's to make durable.
int QueuePair::persist_dirty() {
    int error = 0;
    for (const Dirty &range : dirty_) {
        const auto pin = Memory::instance().pin({.pd = pd,
                                                 .key = range.key,
                                                 .address = range.begin,
                                                 .length = range.end - range.begin,
                                                 .rights = SOFTRDMA_ACCESS_FLUSH_PERSISTENT});
        if (!pin) {
            continue;
        }
        const auto done =
            pin->region().durable->persist(pin->region().at(range.begin), range.end - range.begin);
        if (!done) {
            error = done.error().number;
            BASE_LOG(Error, "cannot make %" PRIu64 " bytes at 0x%" PRIx64 " durable: %s",
                     range.end - range.begin, range.begin, std::strerror(error));
        }
    }
    dirty_.clear();
    return error;
}

// On a worker. The connection is parked: nobody else touches dirty_.
void QueuePair::run_persist(void *queue_pair) {
    auto &self = *static_cast<QueuePair *>(queue_pair);
    const auto group = self.group_;  // outlives the queue pair here
    const int error = self.persist_dirty();
    if (submitting) {
        self.persisted(error);  // the system gave no thread: still in respond_when_durable()
    } else {
        const std::scoped_lock lock{group->mutex()};
        self.persisted(error);
    }
    persists_returned.fetch_add(1, std::memory_order_release);
    persists_returned.notify_all();
}

void QueuePair::persisted(int error) {
    persisting_ = false;
    parked_ = false;
    if (!connected()) {
        return;
    }
    if (error != 0) {
        violate({"memory cannot be made durable", wire::terminate::local_catastrophic});
        return;
    }
    respond(parked_response_);
    want_readable(true);
    parse();
    answer();
}

}  // namespace soft
