// SPDX-License-Identifier: BSD-3-Clause
// soft/connected/opened_queue_pair: another handle of a queue pair of type XRC_RECV (ibv_open_qp). The queue
// pair lives until its last handle is destroyed. Its events are told to the context that made it.
#pragma once

#include <infiniband/verbs.h>

#include "base/result.hpp"
#include "soft/connected/queue_pair.hpp"
#include "soft/queues/any_queue_pair.hpp"

namespace soft {

class OpenedQueuePair final : public AnyQueuePair {
public:
    // Opens the queue pair of this number in the handle's domain. Fails with EINVAL, logged, when there is
    // none in this process.
    [[nodiscard]] static base::Result<OpenedQueuePair *> open(XrcHandle &xrcd, std::uint32_t number,
                                                              void *qp_context);

    void release(CompletionQueue::WorkQueue, unsigned) override {}

private:
    OpenedQueuePair(XrcHandle &xrcd, QueuePair &target, const ibv_qp_init_attr &attributes);

    void leave() override { destroy(&target_); }
    int post_sends(ibv_send_wr *request, ibv_send_wr **bad, ChainPart) override;
    int post_receives(ibv_recv_wr *request, ibv_recv_wr **bad) override;
    int change_state(const ibv_qp_attr &attributes, int mask) override {
        return target_.modify(attributes, mask);
    }
    void query_state(ibv_qp_attr &attributes) const override {
        ibv_qp_init_attr same;
        (void)target_.query(attributes, same);
    }

    QueuePair &target_;
};

}  // namespace soft
