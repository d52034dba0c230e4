// SPDX-License-Identifier: BSD-3-Clause
// soft/queues/receive_queue: the receives that were posted to one queue pair.
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "base/ring.hpp"
#include "base/watched_mutex.hpp"

namespace soft {

// A posted receive, taken out of its queue.
struct Receive {
    std::uint64_t wr_id = 0;
    std::vector<ibv_sge> sges;  // reserved once for the queue's max_sge
};

// Posted receives in their order. It is not thread-safe: its owner locks.
class PostedReceives {
public:
    PostedReceives(std::size_t max_wr, std::size_t max_sge)
        : slots_{max_wr},
          sges_{std::make_unique_for_overwrite<ibv_sge[]>(max_wr * max_sge)},
          max_sge_{max_sge} {}

    [[nodiscard]] std::size_t size() const { return slots_.size(); }
    [[nodiscard]] std::size_t max_wr() const { return slots_.capacity(); }
    [[nodiscard]] std::size_t max_sge() const { return max_sge_; }

    // The caller has checked that there is room, and that the scatter list is not too long.
    void push(const ibv_recv_wr &request) {
        const auto count = static_cast<std::size_t>(request.num_sge);
        slots_.push({.wr_id = request.wr_id, .place = next_, .sges = static_cast<std::uint32_t>(count)});
        std::copy_n(request.sg_list, count, sges_.get() + next_ * max_sge_);
        next_ = next_ + 1 == slots_.capacity() ? 0 : next_ + 1;
    }

    // Takes the oldest receive; returns false when there is none.
    [[nodiscard]] bool pop(Receive &receive) {
        if (slots_.empty()) {
            return false;
        }
        const Slot &slot = slots_.front();
        receive.wr_id = slot.wr_id;
        const ibv_sge *const first = sges_.get() + slot.place * max_sge_;
        receive.sges.assign(first, first + slot.sges);
        slots_.pop();
        return true;
    }

private:
    struct Slot {
        std::uint64_t wr_id = 0;
        std::uint32_t place = 0;  // of its scatter list
        std::uint32_t sges = 0;
    };

    base::Ring<Slot> slots_;
    std::unique_ptr<ibv_sge[]> sges_;  // max_sge_ for each place; touched only where a receive has used it
    std::size_t max_sge_;
    std::uint32_t next_ = 0;
};

class ReceiveQueue {
public:
    ReceiveQueue(std::size_t max_wr, std::size_t max_sge) : posted_{max_wr, max_sge} {}

    // Fails with ENOMEM when max_wr receives are posted and their completions not yet polled. Sets `starved`
    // when take() had found nothing before.
    [[nodiscard]] base::Result<void> post(const ibv_recv_wr &request, bool &starved) {
        const base::Lock lock{mutex_};
        if (used_ == posted_.max_wr()) {
            return base::failure(ENOMEM);
        }
        ++used_;
        posted_.push(request);
        starved = std::exchange(starved_, false);
        return {};
    }

    // Takes the oldest receive. When there is none, it returns false, and the next post() sets `starved`.
    [[nodiscard]] bool take(Receive &receive) {
        const base::Lock lock{mutex_};
        starved_ = !posted_.pop(receive);
        return !starved_;
    }

    [[nodiscard]] bool is_empty() const {
        const base::Lock lock{mutex_};
        return posted_.size() == 0;
    }

    // Frees `count` places; the program has polled their completions.
    void release(unsigned count) {
        const base::Lock lock{mutex_};
        used_ -= count;
    }

    // Removes all receives, and frees every place.
    void clear() {
        const base::Lock lock{mutex_};
        for (Receive forgotten; posted_.pop(forgotten);) {
        }
        used_ = 0;
        starved_ = false;
    }

private:
    mutable base::WatchedMutex mutex_;  // taken with a group's or completion queue's lock held
    PostedReceives posted_ GUARDED_BY(mutex_);
    std::size_t used_ GUARDED_BY(mutex_) = 0;
    bool starved_ GUARDED_BY(mutex_) = false;
};

}  // namespace soft
