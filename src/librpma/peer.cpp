// SPDX-License-Identifier: BSD-3-Clause
// librpma/peer: a protection domain on one device, and the access that each usage of memory needs.
#include "librpma/peer.hpp"

#include <sys/resource.h>

#include <cerrno>

#include "verbs/select.hpp"

namespace librpma {

Result<bool> is_odp_capable(const verbs::Provider &provider, ibv_context *context) {
    ibv_device_attr_ex attributes{};
    const int result = provider.query_device_ex(context, nullptr, &attributes);
    if (result != 0) {
        const int number = result == -1 ? errno : result;
        BASE_LOG(Error, "ibv_query_device_ex(%s) failed: %s", context->device->name, error_text(number));
        return Failure{RPMA_E_PROVIDER};
    }
    constexpr std::uint32_t needed = IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ;
    const ibv_odp_caps &odp = attributes.odp_caps;
    return (odp.general_caps & IBV_ODP_SUPPORT) != 0 &&
           (odp.per_transport_caps.rc_odp_caps & needed) == needed;
}

namespace {

void log_refused_registration(const verbs::Provider &provider, const void *address, std::size_t size,
                              int access, int number) {
    BASE_LOG(Error, "ibv_reg_mr(address %p, %zu bytes, access 0x%x) on a %s device failed: %s", address, size,
             static_cast<unsigned>(access), provider.name, error_text(number));
    rlimit limit{};
    if (number == ENOMEM && getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        BASE_LOG(Error, "%zu bytes are to be pinned and RLIMIT_MEMLOCK is %llu: raise it (ulimit -l)", size,
                 static_cast<unsigned long long>(limit.rlim_cur));
    }
}

}  // namespace

}  // namespace librpma

librpma::Result<std::unique_ptr<rpma_peer>> rpma_peer::create(ibv_context *context) {
    const verbs::Provider &provider = verbs::provider_of(context);
    const auto odp_capable = librpma::is_odp_capable(provider, context);
    if (!odp_capable) {
        return librpma::Failure{odp_capable.error()};
    }
    errno = 0;
    verbs::ProtectionDomain pd{provider, provider.alloc_pd(context)};
    if (!pd) {
        const int number = errno;
        BASE_LOG(Error, "ibv_alloc_pd(%s) failed: %s", context->device->name, librpma::error_text(number));
        switch (number) {
            case 0:
                return librpma::Failure{RPMA_E_UNKNOWN};
            case ENOMEM:
                return librpma::Failure{RPMA_E_NOMEM};
            default:
                return librpma::Failure{RPMA_E_PROVIDER};
        }
    }
    auto peer = librpma::make<rpma_peer>(provider, std::move(pd), *odp_capable);
    if (peer == nullptr) {
        return librpma::Failure{RPMA_E_NOMEM};
    }
    BASE_LOG(Info, "peer on the %s device %s: flush and atomic write are native %s", provider.name,
             context->device->name, &provider == &verbs::soft ? "where the other end has them" : "nowhere");
    return peer;
}

int rpma_peer::access_for(int usage) const {
    int access = 0;
    if ((usage & RPMA_MR_USAGE_READ_SRC) != 0) {
        access |= IBV_ACCESS_REMOTE_READ;
    }
    if ((usage & RPMA_MR_USAGE_READ_DST) != 0) {
        access |= IBV_ACCESS_LOCAL_WRITE;
        if (pd_->context->device->transport_type == IBV_TRANSPORT_IWARP) {
            // RFC 5040, 5.2: a read's answer is placed as a remote write is.
            access |= IBV_ACCESS_REMOTE_WRITE;
        }
    }
    if ((usage & RPMA_MR_USAGE_WRITE_DST) != 0) {
        access |= IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE;
    }
    if ((usage & RPMA_MR_USAGE_RECV) != 0) {
        access |= IBV_ACCESS_LOCAL_WRITE;
    }
    if ((usage & RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY) != 0) {
        access |= provider_.flush_visibility_access;
    }
    if ((usage & RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT) != 0) {
        access |= provider_.flush_persistent_access;
    }
    // SEND and WRITE_SRC need none: a device may always read, so a read-only mapping will do.
    return access;
}

librpma::Result<verbs::MemoryRegion> rpma_peer::register_memory(void *address, std::size_t size,
                                                                int usage) const {
    const int access = access_for(usage);
    errno = 0;
    verbs::MemoryRegion region{provider_, provider_.reg_mr(pd(), address, size, access)};
    if (!region && errno == EOPNOTSUPP && odp_capable_) {
        // Memory of a file system with DAX cannot be pinned.
        region = {provider_, provider_.reg_mr(pd(), address, size, access | IBV_ACCESS_ON_DEMAND)};
    }
    if (!region) {
        librpma::log_refused_registration(provider_, address, size, access, errno);
        return librpma::Failure{RPMA_E_PROVIDER};
    }
    return region;
}

int rpma_peer::close() {
    librpma::FirstError error;
    error.add(pd_.reset(), "ibv_dealloc_pd (is a memory region or connection of the peer still there?)");
    return error.code();
}

int rpma_peer_new(struct ibv_context *ibv_ctx, struct rpma_peer **peer_ptr) {
    if (ibv_ctx == nullptr || peer_ptr == nullptr) {
        return RPMA_E_INVAL;
    }
    return librpma::give(rpma_peer::create(ibv_ctx), peer_ptr);
}

int rpma_peer_delete(struct rpma_peer **peer_ptr) {
    return librpma::destroy(peer_ptr);
}
