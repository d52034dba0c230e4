// SPDX-License-Identifier: BSD-3-Clause
// librpma/srq_cfg: the configuration of a shared receive queue.
#include "librpma/srq_cfg.hpp"

#include "librpma/accessor.hpp"

int rpma_srq_cfg_new(struct rpma_srq_cfg **cfg_ptr) {
    return librpma::new_configuration(cfg_ptr);
}

int rpma_srq_cfg_delete(struct rpma_srq_cfg **cfg_ptr) {
    return librpma::destroy(cfg_ptr);
}

int rpma_srq_cfg_set_rq_size(struct rpma_srq_cfg *cfg, uint32_t rq_size) {
    return librpma::set(cfg, &rpma_srq_cfg::rq_size, rq_size);
}

int rpma_srq_cfg_get_rq_size(const struct rpma_srq_cfg *cfg, uint32_t *rq_size) {
    return librpma::get(cfg, &rpma_srq_cfg::rq_size, rq_size);
}

int rpma_srq_cfg_set_rcq_size(struct rpma_srq_cfg *cfg, uint32_t rcq_size) {
    return librpma::set(cfg, &rpma_srq_cfg::rcq_size, rcq_size);
}

int rpma_srq_cfg_get_rcq_size(const struct rpma_srq_cfg *cfg, uint32_t *rcq_size) {
    return librpma::get(cfg, &rpma_srq_cfg::rcq_size, rcq_size);
}
