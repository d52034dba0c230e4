// SPDX-License-Identifier: BSD-3-Clause
// soft/transport/direct_flush: a flush of memory of the peer, a process of this host, that this process makes
// durable itself (memory/direct_access). The thread that is about to sleep for the connection does it, or a
// worker. There is one at a time.
#pragma once

#include <atomic>

#include "soft/memory/durability.hpp"
#include "soft/progress/progress.hpp"
#include "soft/progress/source.hpp"
#include "soft/queues/send_request.hpp"

namespace soft {

class DirectFlush {
public:
    // `done` is called as Durability's. The group serves the source.
    DirectFlush(void (*done)(void *, Durability &), void *owner, Group &group, Source &source)
        : durability_{done, owner}, group_{group}, source_{source} {}

    // Returns whether one is under way. Meanwhile the ranges belong to the thread that makes them durable.
    [[nodiscard]] bool under_way() const { return request_.load(std::memory_order_acquire) != nullptr; }
    [[nodiscard]] Durability &ranges() { return durability_; }

    // ---- for the sender, which has locked; none is under way ----
    // Leaves the flush to the thread that will sleep.
    void leave_to_sleeper(SendRequest &request) {
        request_.store(&request, std::memory_order_relaxed);
        source_.leave_to_sleeper(durability_.job());
        group_.nudge(source_);
    }
    // Has a worker do it. Returns false when it is done already; error() then has the result.
    [[nodiscard]] bool begin(SendRequest &request) {
        request_.store(&request, std::memory_order_relaxed);
        const bool begun = durability_.begin();
        if (!begun) {
            request_.store(nullptr, std::memory_order_relaxed);
        }
        return begun;
    }

    // ---- for the queue pair, which has the group's lock ----
    // Has a worker do what no thread that sleeps has taken. Returns false when it is done already.
    [[nodiscard]] bool go_on() {
        return source_.group_keeps_left() || source_.take_left() == nullptr || durability_.begin();
    }
    // Ends the flush, and returns its request.
    SendRequest *end() { return request_.exchange(nullptr, std::memory_order_acq_rel); }
    // Forgets the flush if no thread has begun with it.
    void cancel() {
        if (source_.take_left() != nullptr) {
            end();
        }
    }

private:
    Durability durability_;
    std::atomic<SendRequest *> request_{nullptr};
    Group &group_;
    Source &source_;
};

}  // namespace soft
