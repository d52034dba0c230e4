// SPDX-License-Identifier: BSD-3-Clause
// soft/memory/durability: what one connection's peer wrote into durable regions and is not yet durable. A
// worker makes durable what would wait for storage. Until it is back, the connection waits, and only this
// connection.
#pragma once

#include <cassert>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/mutex.hpp"
#include "base/thread_safety.hpp"
#include "persist/worker.hpp"
#include "soft/memory/memory.hpp"

namespace soft {

// The owner locks. While persisting(), the worker alone uses the ranges.
class Durability {
public:
    // The worker calls back(argument) without a lock, with what run_on_worker() is for.
    Durability(void (*back)(void *), void *argument) : job_{.run = back, .argument = argument} {}

    // So many bytes were written, or are to be made durable.
    void note(const MemoryRegion &region, std::uint64_t address, std::uint64_t bytes);
    // Makes all that was noted durable. True when a worker has begun that: it will call back. False: it is
    // done, see error().
    [[nodiscard]] bool begin();
    // Returns 0, or an errno value of the last time.
    [[nodiscard]] int error() const { return error_; }
    [[nodiscard]] bool persisting() const { return persisting_; }

    // On the worker, in the call back: true when the rest is another worker's, who will call back again.
    [[nodiscard]] bool run_on_worker();
    // The worker is back, and the owner has locked.
    void worker_is_back() { persisting_ = false; }

private:
    struct Dirty {
        std::shared_ptr<persist::Region> region;
        std::byte *begin;
        std::byte *end;
    };

    void owns() const ASSERT_CAPABILITY(ranges_) { assert(!persisting_); }
    void persists() const ASSERT_CAPABILITY(ranges_) {}
    [[nodiscard]] persist::Worker *worker_to_wait_for() const REQUIRES(ranges_);
    [[nodiscard]] int persist_on(const persist::Worker *worker) REQUIRES(ranges_);
    [[nodiscard]] int persist_all() REQUIRES(ranges_);

    [[no_unique_address]] base::Role ranges_;
    std::vector<Dirty> dirty_ GUARDED_BY(ranges_);
    persist::Job job_ GUARDED_BY(ranges_);
    int error_ = 0;  // written by the thread that persists, before worker_is_back()
    bool persisting_ = false;
};

}  // namespace soft
