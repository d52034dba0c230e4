// SPDX-License-Identifier: BSD-3-Clause
#include "soft/memory/durability.hpp"

#include <algorithm>
#include <cstring>

#include "base/log.hpp"

namespace soft {

namespace {

// The number of ranges that are kept apart. More are joined, and the bytes between them are persisted too.
constexpr std::size_t max_dirty_ranges = 16;

}  // namespace

void Durability::note(const std::shared_ptr<persist::Region> &region, std::byte *begin, std::byte *end) {
    owns();
    const auto same_region = [&](const Dirty &known) { return known.region == region; };
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
    dirty_.push_back({region, begin, end});
}

bool Durability::begin() {
    owns();
    if (persist::Worker *const worker = worker_to_wait_for()) {
        persisting_ = true;
        if (worker->submit(job_)) {
            return true;
        }
        persisting_ = false;  // the system gives no thread: this thread persists, and others wait
    }
    error_ = persist_all();
    return false;
}

void Durability::run(void *durability) {
    if (auto &self = *static_cast<Durability *>(durability); self.persist_now()) {
        self.done_(self.owner_, self);
    }
}

// Returns false when the rest waits for another worker, or for other jobs of this one. A long flush gives its
// thread to the jobs that wait, after each portion, and continues behind them.
bool Durability::persist_now() {
    persists();
    for (;;) {
        persist::Worker *const worker = worker_to_wait_for();
        error_ = persist_portion(worker);
        persist::Worker *const next = worker_to_wait_for();
        if (next == nullptr || error_ != 0) {
            break;
        }
        if ((next != worker || next->has_waiting()) && next->submit(job_)) {
            return false;
        }
    }
    if (error_ == 0) {
        error_ = persist_all();
    }
    return true;
}

// Returns the worker of the first range that waits for storage; nullptr when there is none.
persist::Worker *Durability::worker_to_wait_for() const {
    const auto waits =
        std::ranges::find_if(dirty_, [](const Dirty &range) { return range.region->worker() != nullptr; });
    return waits != dirty_.end() ? waits->region->worker() : nullptr;
}

// Persists a portion of the first range that belongs to this worker, and returns an errno value. No region is
// pinned meanwhile, so deregistering a region does not wait for the storage of others. After a failure the
// connection ends, and no range is left.
int Durability::persist_portion(const persist::Worker *worker) {
    const auto range =
        std::ranges::find_if(dirty_, [&](const Dirty &one) { return one.region->worker() == worker; });
    const auto done = range->region->persist_portion(
        range->begin, static_cast<std::size_t>(range->end - range->begin), portion_);
    if (!done) {
        const int error = done.error().number;
        BASE_LOG(Error, "cannot make %td bytes at %p durable: %s", range->end - range->begin,
                 static_cast<void *>(range->begin), std::strerror(error));
        dirty_.clear();
        return error;
    }
    range->begin += *done;
    if (range->begin == range->end) {
        dirty_.erase(range);
    }
    return 0;
}

// Persists all ranges, up to the first error.
int Durability::persist_all() {
    int error = 0;
    while (error == 0 && !dirty_.empty()) {
        error = persist_portion(dirty_.front().region->worker());
    }
    return error;
}

}  // namespace soft
