// SPDX-License-Identifier: BSD-3-Clause
// soft/memory/durability: the ranges of durable regions that one connection's peer wrote and that are not yet
// durable. A worker makes those durable that wait for storage. Meanwhile this connection waits, and no other.
#pragma once

#include <cassert>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/mutex.hpp"
#include "base/thread_safety.hpp"
#include "persist/portion.hpp"
#include "persist/worker.hpp"
#include "soft/memory/memory.hpp"

namespace soft {

// The owner locks. While persisting() is true, only the worker uses the ranges.
class Durability {
public:
    // done(owner, *this) is called without a lock by the thread that has made all ranges durable, if it was
    // not in begin().
    Durability(void (*done)(void *, Durability &), void *owner)
        : done_{done}, owner_{owner}, job_{.run = run, .argument = this} {}

    // Adds a range that was written, or is to be made durable.
    void note(const MemoryRegion &region, std::uint64_t address, std::uint64_t bytes) {
        note(region.durable, region.at(address), region.at(address) + bytes);
    }
    void note(const std::shared_ptr<persist::Region> &region, std::byte *begin, std::byte *end);
    // Returns whether a noted range waits for storage; others become durable at once.
    [[nodiscard]] bool waits_for_storage() const {
        owns();
        return worker_to_wait_for() != nullptr;
    }
    // Makes all noted ranges durable. Returns true when a worker has begun that. Returns false when it is
    // done; error() then has the result.
    [[nodiscard]] bool begin();
    // Returns the work of begin(), for a thread of the owner that does it instead.
    [[nodiscard]] persist::Job &job() { return job_; }
    // Returns 0, or the errno value of the last time.
    [[nodiscard]] int error() const { return error_; }
    [[nodiscard]] bool persisting() const { return persisting_; }

    // Is called by the owner, which has locked, when that thread has finished.
    void worker_is_back() { persisting_ = false; }

private:
    struct Dirty {
        std::shared_ptr<persist::Region> region;
        std::byte *begin;
        std::byte *end;
    };

    void owns() const ASSERT_CAPABILITY(ranges_) { assert(!persisting_); }
    void persists() const ASSERT_CAPABILITY(ranges_) {}
    static void run(void *durability);
    [[nodiscard]] bool persist_now();
    [[nodiscard]] persist::Worker *worker_to_wait_for() const REQUIRES(ranges_);
    [[nodiscard]] int persist_portion(const persist::Worker *worker) REQUIRES(ranges_);
    [[nodiscard]] int persist_all() REQUIRES(ranges_);

    void (*const done_)(void *, Durability &);
    void *const owner_;
    [[no_unique_address]] base::Role ranges_;
    std::vector<Dirty> dirty_ GUARDED_BY(ranges_);
    persist::Job job_;
    persist::Portion portion_ GUARDED_BY(ranges_);
    int error_ = 0;  // written by the thread that persists, before worker_is_back()
    bool persisting_ = false;
};

}  // namespace soft
