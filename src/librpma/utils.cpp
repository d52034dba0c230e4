// SPDX-License-Identifier: BSD-3-Clause
// librpma/utils: finds a device, asks for its abilities, and has the texts of connection events.
#include <cerrno>

#include "librpma/api.hpp"
#include "librpma/peer.hpp"
#include "verbs/select.hpp"

int rpma_utils_get_ibv_context(const char *addr, enum rpma_util_ibv_context_type type,
                               struct ibv_context **ibv_ctx_ptr) {
    if (addr == nullptr || ibv_ctx_ptr == nullptr) {
        return librpma::invalid("addr or ibv_ctx_ptr is NULL");
    }
    if (type != RPMA_UTIL_IBV_CONTEXT_LOCAL && type != RPMA_UTIL_IBV_CONTEXT_REMOTE) {
        return librpma::invalid("type is unknown");
    }
    const auto side = type == RPMA_UTIL_IBV_CONTEXT_LOCAL ? verbs::Side::Local : verbs::Side::Remote;
    const auto context = verbs::find_context(addr, side);
    if (!context) {
        errno = context.error().number;
        return RPMA_E_PROVIDER;
    }
    *ibv_ctx_ptr = *context;
    return 0;
}

int rpma_utils_get_local_ibv_context(const char *addr, enum rpma_device_kind kind,
                                     struct ibv_context **ibv_ctx_ptr) {
    if (addr == nullptr || ibv_ctx_ptr == nullptr) {
        return librpma::invalid("addr or ibv_ctx_ptr is NULL");
    }
    if (kind != RPMA_DEVICE_KERNEL && kind != RPMA_DEVICE_SOFT) {
        return librpma::invalid("kind is unknown");
    }
    const auto wanted = kind == RPMA_DEVICE_KERNEL ? verbs::DeviceKind::Kernel : verbs::DeviceKind::Soft;
    const auto context = verbs::find_local_context(addr, wanted);
    if (!context) {
        errno = context.error().number;
        return RPMA_E_PROVIDER;
    }
    if (*context == nullptr) {
        return RPMA_E_NOSUPP;
    }
    *ibv_ctx_ptr = *context;
    return 0;
}

int rpma_utils_ibv_context_is_odp_capable(struct ibv_context *ibv_ctx, int *is_odp_capable) {
    if (ibv_ctx == nullptr || is_odp_capable == nullptr) {
        return librpma::invalid("ibv_ctx or is_odp_capable is NULL");
    }
    *is_odp_capable = 0;
    const verbs::Provider &provider = verbs::provider_of(ibv_ctx);
    const auto attributes = librpma::query_device(provider, ibv_ctx);
    if (!attributes) {
        return attributes.error();
    }
    *is_odp_capable = librpma::abilities_of(provider, *attributes).on_demand_paging ? 1 : 0;
    return 0;
}

const char *rpma_utils_conn_event_2str(enum rpma_conn_event conn_event) {
    switch (conn_event) {
        case RPMA_CONN_UNDEFINED:
            return "Undefined connection event";
        case RPMA_CONN_ESTABLISHED:
            return "Connection established";
        case RPMA_CONN_CLOSED:
            return "Connection closed";
        case RPMA_CONN_LOST:
            return "Connection lost";
        case RPMA_CONN_REJECTED:
            return "Connection rejected";
        case RPMA_CONN_UNREACHABLE:
            return "Connection unreachable";
        default:
            return "Unsupported connection event";
    }
}
