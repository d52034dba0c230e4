// SPDX-License-Identifier: BSD-3-Clause
// librpma/srq: a receive queue from which many connections take their receives.
#pragma once

#include "librpma/cq.hpp"
#include "librpma/peer.hpp"
#include "librpma/srq_cfg.hpp"

struct rpma_srq final {
public:
    [[nodiscard]] static librpma::Result<std::unique_ptr<rpma_srq>> create(const rpma_peer &peer,
                                                                           const rpma_srq_cfg &cfg);
    rpma_srq(verbs::SharedReceiveQueue srq, std::unique_ptr<rpma_cq> rcq)
        : srq_{std::move(srq)}, rcq_{std::move(rcq)} {}

    [[nodiscard]] ibv_srq *get() const { return srq_.get(); }
    // Returns nullptr when the queue has none of its own.
    [[nodiscard]] rpma_cq *rcq() const { return rcq_.get(); }
    [[nodiscard]] int close();

private:
    verbs::SharedReceiveQueue srq_;
    std::unique_ptr<rpma_cq> rcq_;
};
