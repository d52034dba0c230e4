// SPDX-License-Identifier: BSD-3-Clause
// librpma/peer: a protection domain on one device, and the access that each usage of memory needs.
#include "librpma/peer.hpp"

#include <sys/resource.h>

#include <cerrno>

#include "librpma/mr_descriptor.hpp"
#include "verbs/select.hpp"

namespace librpma {

Result<ibv_device_attr_ex> query_device(const verbs::Provider &provider, ibv_context *context) {
    ibv_device_attr_ex attributes{};
    const int result = provider.device.query_device_ex(context, nullptr, &attributes);
    if (result != 0) {
        const int number = result == -1 ? errno : result;
        BASE_LOG(Error, "ibv_query_device_ex(%s) failed: %s", context->device->name, error_text(number));
        return Failure{RPMA_E_PROVIDER};
    }
    return attributes;
}

DeviceAbilities abilities_of(const verbs::Provider &provider, const ibv_device_attr_ex &attributes) {
    constexpr std::uint32_t needed = IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ;
    const ibv_odp_caps &odp = attributes.odp_caps;
    return {.on_demand_paging = (odp.general_caps & IBV_ODP_SUPPORT) != 0 &&
                                (odp.per_transport_caps.rc_odp_caps & needed) == needed,
            .native_operations = provider.native.of_device(attributes)};
}

void log_queue_limits(const verbs::Provider &provider, ibv_context *context) {
    const int number = errno;
    const auto attributes = query_device(provider, context);
    errno = number;
    if (!attributes || number == EMFILE || number == ENFILE) {
        return;
    }
    const ibv_device_attr &most = attributes->orig_attr;
    BASE_LOG(Error,
             "%s: a completion queue has 1 to %d completions (rpma_conn_cfg_set_cq_size, _set_rcq_size, "
             "rpma_srq_cfg_set_rcq_size), a send or receive queue at most %d requests "
             "(rpma_conn_cfg_set_sq_size, _set_rq_size), a shared receive queue at most %d receives "
             "(rpma_srq_cfg_set_rq_size)",
             context->device->name, most.max_cqe, most.max_qp_wr, most.max_srq_wr);
}

namespace {

// Logs the reason of a refused registration, when the device's error does not explain it.
void explain_refused_registration(const verbs::Provider &provider, std::size_t size, bool on_demand_paging,
                                  int number) {
    if (!provider.capabilities.pins_memory) {  // then the device has logged the reason
        return;
    }
    rlimit limit{};
    if (number == ENOMEM && getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        BASE_LOG(
            Error,
            "%zu bytes are to be pinned, and this process may pin %llu in all (RLIMIT_MEMLOCK): raise it "
            "with ulimit -l, LimitMEMLOCK= of its systemd unit, or memlock in /etc/security/limits.conf",
            size, static_cast<unsigned long long>(limit.rlim_cur));
    }
    // Linux returns EOPNOTSUPP for a file on a file system with DAX, and EFAULT (since 6.5) for one in the
    // page cache.
    if ((number == EOPNOTSUPP || number == EFAULT) && !on_demand_paging) {
        BASE_LOG(
            Error,
            "if this is memory of a file: this device has no on-demand paging, and pages of a file system, "
            "with DAX or without, cannot be pinned: use a device with on-demand paging "
            "(rpma_utils_ibv_context_is_odp_capable), device DAX, or memory that is no file's, from which "
            "the "
            "program here makes durable what arrives");
    }
}

// Returns whether the descriptor of a region with this usage says that it takes native flush and atomic
// write.
bool takes_native(int usage, unsigned native_operations) {
    constexpr unsigned both = verbs::native_flush | verbs::native_atomic_write;
    return (usage & flush_usages) != 0 && (usage & RPMA_MR_USAGE_WRITE_DST) != 0 &&
           (native_operations & both) == both;
}

}  // namespace

}  // namespace librpma

librpma::Result<std::unique_ptr<rpma_peer>> rpma_peer::create(ibv_context *context) {
    const verbs::Provider &provider = verbs::provider_of(context);
    const auto attributes = librpma::query_device(provider, context);
    if (!attributes) {
        return librpma::Failure{attributes.error()};
    }
    errno = 0;
    verbs::ProtectionDomain pd{provider, provider.domain.alloc_pd(context)};
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
    const librpma::DeviceAbilities abilities = librpma::abilities_of(provider, *attributes);
    auto peer = librpma::make<rpma_peer>(provider, std::move(pd), abilities);
    if (peer == nullptr) {
        return librpma::Failure{RPMA_E_NOMEM};
    }
    const auto whether = [&](unsigned operation) {
        return (abilities.native_operations & operation) != 0 ? "has" : "has no";
    };
    BASE_LOG(Info, "the %s device %s %s native flush and %s native atomic write", provider.name,
             context->device->name, whether(verbs::native_flush), whether(verbs::native_atomic_write));
    return peer;
}

int rpma_peer::access_for(int usage, unsigned native_operations) const {
    int access = 0;
    if ((usage & RPMA_MR_USAGE_READ_SRC) != 0) {
        access |= IBV_ACCESS_REMOTE_READ;
    }
    if ((usage & RPMA_MR_USAGE_READ_DST) != 0) {
        access |= IBV_ACCESS_LOCAL_WRITE;
        if (pd_->context->device->transport_type == IBV_TRANSPORT_IWARP) {
            // RFC 5040, 5.2: a read's answer is placed like a remote write.
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
        access |= verbs::flush_access(native_operations, verbs::Flush::Visibility);
    }
    if ((usage & RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT) != 0) {
        access |= verbs::flush_access(native_operations, verbs::Flush::Persistent);
    }
    // SEND and WRITE_SRC need no access flag: a device may always read, so a read-only mapping is enough.
    return access;
}

librpma::Result<librpma::RegisteredMemory> rpma_peer::register_memory(void *address, std::size_t size,
                                                                      int usage, ibv_qp *only_for) const {
    if (only_for != nullptr && !provider_.capabilities.registers_for_qp) {
        BASE_LOG(Error, "the %s device %s registers memory for all connections of a peer only",
                 provider_.name, pd()->context->device->name);
        return librpma::Failure{RPMA_E_NOSUPP};
    }
    const auto reg_mr = [&](int with_access) {
        return verbs::MemoryRegion{provider_,
                                   only_for != nullptr
                                       ? provider_.beyond.reg_mr_for_qp(only_for, address, size, with_access)
                                       : provider_.domain.reg_mr(pd(), address, size, with_access)};
    };
    unsigned native = native_operations();
    int access = access_for(usage, native);
    errno = 0;
    verbs::MemoryRegion region = reg_mr(access);
    if (!region && errno == EOPNOTSUPP && provider_.capabilities.pins_memory && abilities_.on_demand_paging) {
        // Memory of a file system with DAX cannot be pinned.
        access |= IBV_ACCESS_ON_DEMAND;
        region = reg_mr(access);
    }
    if (!region && errno == EOPNOTSUPP && provider_.capabilities.checks_durability &&
        (usage & RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT) != 0) {
        // The memory cannot be durable, as the log says. Peers flush it to visibility, and its descriptor
        // says so.
        usage = (usage & ~RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT) | RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY;
        access = access_for(usage, native);
        region = reg_mr(access);
    }
    if (!region && errno == EINVAL && !provider_.capabilities.checks_durability &&
        (native & verbs::native_flush) != 0 && (usage & RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT) != 0) {
        BASE_LOG(Notice,
                 "%s does not flush the memory at %p (%zu bytes) to persistence; peers read after they write",
                 pd()->context->device->name, address, size);
        native &= ~verbs::native_flush;
        access = access_for(usage, native);
        region = reg_mr(access);
    }
    if (!region) {
        const int number = errno;
        BASE_LOG(Error, "ibv_reg_mr(address %p, %zu bytes, access 0x%x) on the %s device %s failed: %s",
                 address, size, static_cast<unsigned>(access), provider_.name, pd()->context->device->name,
                 librpma::error_text(number));
        librpma::explain_refused_registration(provider_, size, abilities_.on_demand_paging, number);
        return librpma::Failure{RPMA_E_PROVIDER};
    }
    return librpma::RegisteredMemory{
        .region = std::move(region), .usage = usage, .takes_native = librpma::takes_native(usage, native)};
}

int rpma_peer::close() {
    librpma::FirstError error;
    error.add(pd_.reset(), "ibv_dealloc_pd (is a memory region or connection of the peer still there?)");
    return error.code();
}

int rpma_peer_new(struct ibv_context *ibv_ctx, struct rpma_peer **peer_ptr) {
    if (ibv_ctx == nullptr || peer_ptr == nullptr) {
        return librpma::invalid("ibv_ctx or peer_ptr is NULL");
    }
    return librpma::give(rpma_peer::create(ibv_ctx), peer_ptr);
}

int rpma_peer_delete(struct rpma_peer **peer_ptr) {
    return librpma::destroy(peer_ptr);
}

int rpma_peer_get_limits(const struct rpma_peer *peer, struct rpma_peer_limits *limits) {
    if (peer == nullptr || limits == nullptr) {
        return RPMA_E_INVAL;
    }
    const auto attributes = librpma::query_device(peer->provider(), peer->pd()->context);
    if (!attributes) {
        return attributes.error();
    }
    const ibv_device_attr &most = attributes->orig_attr;
    *limits = {};
    limits->max_cq_size = static_cast<uint32_t>(most.max_cqe);
    limits->max_sq_size = limits->max_rq_size = static_cast<uint32_t>(most.max_qp_wr);
    limits->max_srq_size = static_cast<uint32_t>(most.max_srq_wr);
    limits->max_inline_size = peer->provider().capabilities.most_inline_size;
    limits->max_mr = static_cast<uint32_t>(most.max_mr);
    limits->max_mr_size = most.max_mr_size;
    return 0;
}
