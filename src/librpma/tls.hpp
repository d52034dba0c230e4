// SPDX-License-Identifier: BSD-3-Clause
// librpma/tls: the TLS that a configuration asks of a connection, or of those of an endpoint.
#pragma once

#include <cerrno>
#include <memory>
#include <new>
#include <string>

#include "base/log.hpp"
#include "base/tls.hpp"
#include "librpma/api.hpp"
#include "librpma/event_channel.hpp"
#include "verbs/provider.hpp"

namespace librpma {

// psk:FILE or x509:FILE; null: RPMA_TLS decides.
using TlsText = std::shared_ptr<const std::string>;

template <typename Configuration>
int set_tls(Configuration *cfg, const char *tls, const char *function = __builtin_FUNCTION()) {
    if (cfg == nullptr) {
        return invalid("cfg is NULL", function);
    }
    try {
        if (tls != nullptr && !base::TlsAsked::parse(tls)) {
            return invalid("tls is neither psk:FILE nor x509:FILE with the whole path of FILE", function);
        }
        cfg->tls = tls != nullptr ? std::make_shared<const std::string>(tls) : nullptr;
    } catch (const std::bad_alloc &) {
        return RPMA_E_NOMEM;
    }
    return 0;
}

template <typename Configuration>
int get_tls(const Configuration *cfg, const char **tls, const char *function = __builtin_FUNCTION()) {
    if (cfg == nullptr || tls == nullptr) {
        return invalid("cfg or tls is NULL", function);
    }
    *tls = cfg->tls != nullptr ? cfg->tls->c_str() : nullptr;
    return 0;
}

// Makes an id that has not begun use that TLS.
[[nodiscard]] inline int use_tls(const verbs::Provider &provider, rdma_cm_id *id, const TlsText &tls) {
    if (tls == nullptr) {
        return 0;
    }
    if (!provider.capabilities.authenticates) {
        BASE_LOG(Error,
                 "a kernel's device has no TLS, which the configuration asks for: the soft device has");
        return RPMA_E_NOSUPP;
    }
    return provider.beyond.set_tls(id, tls->c_str()) == 0 ? 0
                                                          : log_provider_failure("softrdma_set_tls", errno);
}

// Returns whether the id of a peer's request uses that TLS.
[[nodiscard]] inline bool uses_tls(const verbs::Provider &provider, rdma_cm_id *id, const TlsText &tls) {
    return provider.capabilities.authenticates && provider.beyond.set_tls(id, tls->c_str()) == 0;
}

}  // namespace librpma
