// SPDX-License-Identifier: BSD-3-Clause
// librpma/conn_cfg: what a connection is to be like.
#include "librpma/conn_cfg.hpp"

#include "librpma/accessor.hpp"

librpma::ConnectionParameters librpma::parameters_of(const rpma_conn_cfg *cfg) {
    if (cfg == nullptr) {
        return {};
    }
    constexpr auto order = std::memory_order_relaxed;
    return {.timeout_ms = cfg->timeout_ms.load(order),
            .cq_size = cfg->cq_size.load(order),
            .rcq_size = cfg->rcq_size.load(order),
            .sq_size = cfg->sq_size.load(order),
            .rq_size = cfg->rq_size.load(order),
            .shared_channel = cfg->shared_channel.load(order),
            .srq = cfg->srq.load(order)};
}

int rpma_conn_cfg_new(struct rpma_conn_cfg **cfg_ptr) {
    return librpma::new_configuration(cfg_ptr);
}

int rpma_conn_cfg_delete(struct rpma_conn_cfg **cfg_ptr) {
    return librpma::destroy(cfg_ptr);
}

int rpma_conn_cfg_set_timeout(struct rpma_conn_cfg *cfg, int timeout_ms) {
    if (timeout_ms < 0) {
        return RPMA_E_INVAL;
    }
    return librpma::set(cfg, &rpma_conn_cfg::timeout_ms, timeout_ms);
}

int rpma_conn_cfg_get_timeout(const struct rpma_conn_cfg *cfg, int *timeout_ms) {
    return librpma::get(cfg, &rpma_conn_cfg::timeout_ms, timeout_ms);
}

int rpma_conn_cfg_set_cq_size(struct rpma_conn_cfg *cfg, uint32_t cq_size) {
    return librpma::set(cfg, &rpma_conn_cfg::cq_size, cq_size);
}

int rpma_conn_cfg_get_cq_size(const struct rpma_conn_cfg *cfg, uint32_t *cq_size) {
    return librpma::get(cfg, &rpma_conn_cfg::cq_size, cq_size);
}

int rpma_conn_cfg_set_rcq_size(struct rpma_conn_cfg *cfg, uint32_t rcq_size) {
    return librpma::set(cfg, &rpma_conn_cfg::rcq_size, rcq_size);
}

int rpma_conn_cfg_get_rcq_size(const struct rpma_conn_cfg *cfg, uint32_t *rcq_size) {
    return librpma::get(cfg, &rpma_conn_cfg::rcq_size, rcq_size);
}

int rpma_conn_cfg_set_sq_size(struct rpma_conn_cfg *cfg, uint32_t sq_size) {
    return librpma::set(cfg, &rpma_conn_cfg::sq_size, sq_size);
}

int rpma_conn_cfg_get_sq_size(const struct rpma_conn_cfg *cfg, uint32_t *sq_size) {
    return librpma::get(cfg, &rpma_conn_cfg::sq_size, sq_size);
}

int rpma_conn_cfg_set_rq_size(struct rpma_conn_cfg *cfg, uint32_t rq_size) {
    return librpma::set(cfg, &rpma_conn_cfg::rq_size, rq_size);
}

int rpma_conn_cfg_get_rq_size(const struct rpma_conn_cfg *cfg, uint32_t *rq_size) {
    return librpma::get(cfg, &rpma_conn_cfg::rq_size, rq_size);
}

int rpma_conn_cfg_set_compl_channel(struct rpma_conn_cfg *cfg, bool shared) {
    return librpma::set(cfg, &rpma_conn_cfg::shared_channel, shared);
}

int rpma_conn_cfg_get_compl_channel(const struct rpma_conn_cfg *cfg, bool *shared) {
    return librpma::get(cfg, &rpma_conn_cfg::shared_channel, shared);
}

int rpma_conn_cfg_set_srq(struct rpma_conn_cfg *cfg, struct rpma_srq *srq) {
    if (srq == nullptr) {
        return RPMA_E_INVAL;
    }
    return librpma::set(cfg, &rpma_conn_cfg::srq, srq);
}

int rpma_conn_cfg_get_srq(const struct rpma_conn_cfg *cfg, struct rpma_srq **srq_ptr) {
    return librpma::get(cfg, &rpma_conn_cfg::srq, srq_ptr);
}
