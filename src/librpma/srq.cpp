// SPDX-License-Identifier: BSD-3-Clause
// librpma/srq: a receive queue from which many connections take their receives.
#include "librpma/srq.hpp"

#include <cerrno>

librpma::Result<std::unique_ptr<rpma_srq>> rpma_srq::create(const rpma_peer &peer, const rpma_srq_cfg &cfg) {
    const verbs::Provider &provider = peer.provider();
    ibv_srq_init_attr attributes{};
    attributes.attr.max_wr = cfg.rq_size.load(std::memory_order_relaxed);
    attributes.attr.max_sge = 1;
    verbs::SharedReceiveQueue queue{provider, provider.domain.create_srq(peer.pd(), &attributes)};
    if (!queue) {
        BASE_LOG(Error, "ibv_create_srq(%u receives) on a %s device failed: %s", attributes.attr.max_wr,
                 provider.name, librpma::error_text(errno));
        librpma::log_queue_limits(provider, peer.pd()->context);
        return librpma::Failure{RPMA_E_PROVIDER};
    }
    std::unique_ptr<rpma_cq> rcq;
    if (const auto rcq_size = cfg.rcq_size.load(std::memory_order_relaxed); rcq_size > 0) {
        auto made = rpma_cq::create(provider, peer.pd()->context, rcq_size, rpma_cq::Channel::Own);
        if (!made) {
            return librpma::Failure{made.error()};
        }
        rcq = std::move(*made);
    }
    auto srq = librpma::make<rpma_srq>(std::move(queue), std::move(rcq));
    if (srq == nullptr) {
        return librpma::Failure{RPMA_E_NOMEM};
    }
    return srq;
}

int rpma_srq::close() {
    librpma::FirstError error;
    if (rcq_ != nullptr) {
        error.add_code(rcq_->close());
    }
    error.add(srq_.reset(), "ibv_destroy_srq (does a connection still use it?)");
    return error.code();
}

int rpma_srq_new(struct rpma_peer *peer, struct rpma_srq_cfg *cfg, struct rpma_srq **srq_ptr) {
    if (peer == nullptr || srq_ptr == nullptr) {
        return librpma::invalid("peer or srq_ptr is NULL");
    }
    static const rpma_srq_cfg defaults;
    return librpma::give(rpma_srq::create(*peer, cfg != nullptr ? *cfg : defaults), srq_ptr);
}

int rpma_srq_delete(struct rpma_srq **srq_ptr) {
    return librpma::destroy(srq_ptr);
}

int rpma_srq_get_rcq(const struct rpma_srq *srq, struct rpma_cq **rcq_ptr) {
    if (srq == nullptr || rcq_ptr == nullptr) {
        return librpma::invalid("srq or rcq_ptr is NULL");
    }
    *rcq_ptr = srq->rcq();
    return 0;
}
