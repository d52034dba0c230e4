// SPDX-License-Identifier: BSD-3-Clause
// librpma/ep_cfg: the configuration of an endpoint.
#include "librpma/ep_cfg.hpp"

#include "librpma/accessor.hpp"

librpma::EndpointConfiguration librpma::configuration_of(const rpma_ep_cfg *cfg) {
    if (cfg == nullptr) {
        return {};
    }
    constexpr auto order = std::memory_order_relaxed;
    return {.backlog = cfg->backlog.load(order),
            .v6only = cfg->v6only.load(order),
            .reuseaddr = cfg->reuseaddr.load(order),
            .events = cfg->events.load(order),
            .tls = cfg->tls};
}

int rpma_ep_cfg_new(struct rpma_ep_cfg **cfg_ptr) {
    return librpma::new_configuration(cfg_ptr);
}

int rpma_ep_cfg_delete(struct rpma_ep_cfg **cfg_ptr) {
    return librpma::destroy(cfg_ptr);
}

int rpma_ep_cfg_set_backlog(struct rpma_ep_cfg *cfg, int backlog) {
    if (backlog < 0) {
        return librpma::invalid("backlog is negative");
    }
    return librpma::set(cfg, &rpma_ep_cfg::backlog, backlog);
}

int rpma_ep_cfg_get_backlog(const struct rpma_ep_cfg *cfg, int *backlog) {
    return librpma::get(cfg, &rpma_ep_cfg::backlog, backlog);
}

int rpma_ep_cfg_set_v6only(struct rpma_ep_cfg *cfg, bool v6only) {
    return librpma::set(cfg, &rpma_ep_cfg::v6only, v6only);
}

int rpma_ep_cfg_get_v6only(const struct rpma_ep_cfg *cfg, bool *v6only) {
    return librpma::get(cfg, &rpma_ep_cfg::v6only, v6only);
}

int rpma_ep_cfg_set_reuseaddr(struct rpma_ep_cfg *cfg, bool reuseaddr) {
    return librpma::set(cfg, &rpma_ep_cfg::reuseaddr, reuseaddr);
}

int rpma_ep_cfg_get_reuseaddr(const struct rpma_ep_cfg *cfg, bool *reuseaddr) {
    return librpma::get(cfg, &rpma_ep_cfg::reuseaddr, reuseaddr);
}

int rpma_ep_cfg_set_events(struct rpma_ep_cfg *cfg, struct rpma_events *events) {
    return librpma::set(cfg, &rpma_ep_cfg::events, events);
}

int rpma_ep_cfg_get_events(const struct rpma_ep_cfg *cfg, struct rpma_events **events_ptr) {
    return librpma::get(cfg, &rpma_ep_cfg::events, events_ptr);
}

int rpma_ep_cfg_set_tls(struct rpma_ep_cfg *cfg, const char *tls) {
    return librpma::set_tls(cfg, tls);
}

int rpma_ep_cfg_get_tls(const struct rpma_ep_cfg *cfg, const char **tls) {
    return librpma::get_tls(cfg, tls);
}
