// SPDX-License-Identifier: BSD-3-Clause
// soft/queues/work_requests: the requests that a program prepares between ibv_wr_start and ibv_wr_complete,
// which posts them as one chain, as ibv_post_send does.
#pragma once

#include <infiniband/verbs.h>

#include <span>
#include <vector>

#include "base/mutex.hpp"
#include "soft/queues/any_queue_pair.hpp"

namespace soft {

class WorkRequests {
public:
    // Fills in the table of the queue pair, to which the object belongs.
    WorkRequests(AnyQueuePair &queue_pair, const ibv_qp_cap &cap);

    // Until complete() or abort() no other thread gets past start(). In a child of the process that made the
    // queue pair it waits for no thread, and complete() returns EINVAL.
    void start();
    [[nodiscard]] int complete();
    void abort();

    // Adds the next request, with the queue pair's wr_id and wr_flags. Returns null when there was an error.
    [[nodiscard]] ibv_send_wr *add(ibv_wr_opcode opcode);
    void set_sges(std::span<const ibv_sge> sges);
    void set_copied(std::span<const ibv_data_buf> buffers);
    void set_address(ibv_ah *handle, std::uint32_t remote_qpn, std::uint32_t remote_qkey);
    void set_shared_queue(std::uint32_t number);
    // Makes complete() return the first such error, and post nothing.
    void fail(int error) {
        held();
        error_ = error_ != 0 ? error_ : error;
    }

private:
    // In a child of the process that made the queue pair no thread has the lock.
    void held() const ASSERT_CAPABILITY(mutex_) {}

    AnyQueuePair &queue_pair_;
    const std::size_t max_sge_;
    const std::size_t max_copied_;
    base::Mutex mutex_;  // from start() to complete() or abort(), which the program calls
    std::vector<ibv_send_wr> requests_ GUARDED_BY(mutex_);
    std::vector<ibv_sge> sges_ GUARDED_BY(mutex_);                   // max_sge_ for each request
    std::vector<std::vector<std::byte>> copied_ GUARDED_BY(mutex_);  // a request's inline data
    std::size_t count_ GUARDED_BY(mutex_) = 0;
    int error_ GUARDED_BY(mutex_) = 0;
};

}  // namespace soft
