// SPDX-License-Identifier: BSD-3-Clause
// librpma/conn_cfg: the configuration of a connection.
#include "librpma/conn_cfg.hpp"

#include <netinet/in.h>

#include <cstring>

#include "librpma/accessor.hpp"

namespace {

// rdma_conn_param has room for this many.
constexpr std::uint8_t most_retries = 7;
constexpr std::uint8_t longest_ack_timeout = 31;

}  // namespace

librpma::ConnectionConfiguration librpma::configuration_of(const rpma_conn_cfg *cfg) {
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
            .srq = cfg->srq.load(order),
            .cq = cfg->cq.load(order),
            .rcq = cfg->rcq.load(order),
            .events = cfg->events.load(order),
            .retry_count = cfg->retry_count.load(order),
            .rnr_retry_count = cfg->rnr_retry_count.load(order),
            .ack_timeout = cfg->ack_timeout.load(order),
            .inline_size = cfg->inline_size.load(order),
            .bounds_check = cfg->bounds_check.load(order),
            .source = cfg->source,
            .tls = cfg->tls};
}

int rpma_conn_cfg_new(struct rpma_conn_cfg **cfg_ptr) {
    return librpma::new_configuration(cfg_ptr);
}

int rpma_conn_cfg_delete(struct rpma_conn_cfg **cfg_ptr) {
    return librpma::destroy(cfg_ptr);
}

int rpma_conn_cfg_set_timeout(struct rpma_conn_cfg *cfg, int timeout_ms) {
    if (timeout_ms < 0) {
        return librpma::invalid("timeout_ms is negative");
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
        return librpma::invalid("srq is NULL");
    }
    return librpma::set(cfg, &rpma_conn_cfg::srq, srq);
}

int rpma_conn_cfg_get_srq(const struct rpma_conn_cfg *cfg, struct rpma_srq **srq_ptr) {
    return librpma::get(cfg, &rpma_conn_cfg::srq, srq_ptr);
}

int rpma_conn_cfg_set_cq(struct rpma_conn_cfg *cfg, struct rpma_cq *cq) {
    return librpma::set(cfg, &rpma_conn_cfg::cq, cq);
}

int rpma_conn_cfg_get_cq(const struct rpma_conn_cfg *cfg, struct rpma_cq **cq_ptr) {
    return librpma::get(cfg, &rpma_conn_cfg::cq, cq_ptr);
}

int rpma_conn_cfg_set_rcq(struct rpma_conn_cfg *cfg, struct rpma_cq *rcq) {
    return librpma::set(cfg, &rpma_conn_cfg::rcq, rcq);
}

int rpma_conn_cfg_get_rcq(const struct rpma_conn_cfg *cfg, struct rpma_cq **rcq_ptr) {
    return librpma::get(cfg, &rpma_conn_cfg::rcq, rcq_ptr);
}

int rpma_conn_cfg_set_events(struct rpma_conn_cfg *cfg, struct rpma_events *events) {
    return librpma::set(cfg, &rpma_conn_cfg::events, events);
}

int rpma_conn_cfg_get_events(const struct rpma_conn_cfg *cfg, struct rpma_events **events_ptr) {
    return librpma::get(cfg, &rpma_conn_cfg::events, events_ptr);
}

int rpma_conn_cfg_set_retry_count(struct rpma_conn_cfg *cfg, uint8_t retry_count) {
    if (retry_count > most_retries) {
        return librpma::invalid("retry_count is above 7");
    }
    return librpma::set(cfg, &rpma_conn_cfg::retry_count, retry_count);
}

int rpma_conn_cfg_get_retry_count(const struct rpma_conn_cfg *cfg, uint8_t *retry_count) {
    return librpma::get(cfg, &rpma_conn_cfg::retry_count, retry_count);
}

int rpma_conn_cfg_set_rnr_retry_count(struct rpma_conn_cfg *cfg, uint8_t rnr_retry_count) {
    if (rnr_retry_count > most_retries) {
        return librpma::invalid("rnr_retry_count is above 7");
    }
    return librpma::set(cfg, &rpma_conn_cfg::rnr_retry_count, rnr_retry_count);
}

int rpma_conn_cfg_get_rnr_retry_count(const struct rpma_conn_cfg *cfg, uint8_t *rnr_retry_count) {
    return librpma::get(cfg, &rpma_conn_cfg::rnr_retry_count, rnr_retry_count);
}

int rpma_conn_cfg_set_ack_timeout(struct rpma_conn_cfg *cfg, uint8_t ack_timeout) {
    if (ack_timeout > longest_ack_timeout) {
        return librpma::invalid("ack_timeout is above 31");
    }
    return librpma::set(cfg, &rpma_conn_cfg::ack_timeout, ack_timeout);
}

int rpma_conn_cfg_get_ack_timeout(const struct rpma_conn_cfg *cfg, uint8_t *ack_timeout) {
    return librpma::get(cfg, &rpma_conn_cfg::ack_timeout, ack_timeout);
}

int rpma_conn_cfg_set_inline_size(struct rpma_conn_cfg *cfg, uint32_t inline_size) {
    return librpma::set(cfg, &rpma_conn_cfg::inline_size, inline_size);
}

int rpma_conn_cfg_get_inline_size(const struct rpma_conn_cfg *cfg, uint32_t *inline_size) {
    return librpma::get(cfg, &rpma_conn_cfg::inline_size, inline_size);
}

int rpma_conn_cfg_set_bounds_check(struct rpma_conn_cfg *cfg, bool bounds_check) {
    return librpma::set(cfg, &rpma_conn_cfg::bounds_check, bounds_check);
}

int rpma_conn_cfg_get_bounds_check(const struct rpma_conn_cfg *cfg, bool *bounds_check) {
    return librpma::get(cfg, &rpma_conn_cfg::bounds_check, bounds_check);
}

int rpma_conn_cfg_set_source_addr(struct rpma_conn_cfg *cfg, const struct sockaddr *addr) {
    if (cfg == nullptr) {
        return librpma::invalid("cfg is NULL");
    }
    if (addr == nullptr) {
        cfg->source = {};
        return 0;
    }
    if (addr->sa_family != AF_INET && addr->sa_family != AF_INET6) {
        return librpma::invalid("addr is neither IPv4 nor IPv6");
    }
    std::memcpy(&cfg->source, addr, addr->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    return 0;
}

int rpma_conn_cfg_get_source_addr(const struct rpma_conn_cfg *cfg, struct sockaddr_storage *addr) {
    if (cfg == nullptr || addr == nullptr) {
        return librpma::invalid("cfg or addr is NULL");
    }
    *addr = cfg->source;
    return 0;
}

int rpma_conn_cfg_set_tls(struct rpma_conn_cfg *cfg, const char *tls) {
    return librpma::set_tls(cfg, tls);
}

int rpma_conn_cfg_get_tls(const struct rpma_conn_cfg *cfg, const char **tls) {
    return librpma::get_tls(cfg, tls);
}
