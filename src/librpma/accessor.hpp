// SPDX-License-Identifier: BSD-3-Clause
// librpma/accessor: sets and gets one atomic value of a configuration, and gets an address or an identity.
#pragma once

#include <atomic>
#include <cerrno>

#include "base/shared_value.hpp"
#include "librpma/api.hpp"
#include "librpma/event_channel.hpp"
#include "verbs/provider.hpp"

namespace librpma {

template <typename Configuration, typename T>
int set(Configuration *cfg, std::atomic<T> Configuration::*member, T value,
        const char *function = __builtin_FUNCTION()) {
    if (cfg == nullptr) {
        return invalid("cfg is NULL", function);
    }
    base::set_shared(cfg->*member, value);
    return 0;
}

template <typename Configuration, typename T>
int get(const Configuration *cfg, std::atomic<T> Configuration::*member, T *value,
        const char *function = __builtin_FUNCTION()) {
    if (cfg == nullptr || value == nullptr) {
        return invalid("cfg or value is NULL", function);
    }
    *value = (cfg->*member).load(std::memory_order_relaxed);
    return 0;
}

// Gets the address of one end of an object that has a connection manager's id.
template <typename Object>
int get_address(const Object *object, sockaddr_storage rdma_addr::*end, sockaddr_storage *address,
                const char *function = __builtin_FUNCTION()) {
    if (object == nullptr || address == nullptr) {
        return invalid("the object or addr is NULL", function);
    }
    *address = object->id().route.addr.*end;
    return 0;
}

// Returns the identity with which the peer of an id has authenticated itself, or nullptr.
inline const char *identity_of(const verbs::Provider &provider, const rdma_cm_id &id) {
    return provider.capabilities.authenticates ? provider.beyond.identity(&id) : nullptr;
}

// Tells whether the peer of an id, which has authenticated itself, would be let in now too.
inline int check_identity(const verbs::Provider &provider, const rdma_cm_id &id, bool *known) {
    if (identity_of(provider, id) == nullptr) {
        return RPMA_E_NOSUPP;
    }
    const rdma_cm_id *const one = &id;
    return provider.beyond.peers_are_known(&one, 1, known) == 0
               ? 0
               : log_provider_failure("softrdma_peers_are_known", errno);
}

// Unlike other "new" functions, those of configurations store NULL when there is no memory.
template <typename Configuration>
int new_configuration(Configuration **cfg_ptr, const char *function = __builtin_FUNCTION()) {
    if (cfg_ptr == nullptr) {
        return invalid("cfg_ptr is NULL", function);
    }
    *cfg_ptr = make<Configuration>().release();
    return *cfg_ptr != nullptr ? 0 : RPMA_E_NOMEM;
}

}  // namespace librpma
