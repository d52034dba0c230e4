// SPDX-License-Identifier: BSD-3-Clause
// soft/verbs_api: softrdma_ibv_X, the C face of devices, memory, completion and queue pairs. Here failures
// become errno values.
#include <arpa/inet.h>
#include <endian.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <type_traits>

#include "base/log.hpp"
#include "persist/guard.hpp"
#include "soft/cq.hpp"
#include "soft/device.hpp"
#include "soft/limits.hpp"
#include "soft/memory.hpp"
#include "soft/qp.hpp"
#include "softrdma.h"

namespace {

using soft::CompletionChannel;
using soft::CompletionQueue;
using soft::Device;
using soft::MemoryRegion;
using soft::ProtectionDomain;
using soft::QueuePair;

template <typename T>
T *failed(int error) {
    errno = error;
    return nullptr;
}

// Runs what may allocate: out of memory becomes ENOMEM.
template <typename Make>
std::invoke_result_t<Make> made(Make make) {
    try {
        return make();
    } catch (const std::bad_alloc &) {
        errno = ENOMEM;
        return nullptr;
    }
}

template <typename T>
T *value_of(const base::Result<T *> &result) {
    if (!result) {
        errno = result.error().number;
        return nullptr;
    }
    return *result;
}

constexpr unsigned known_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                  IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_HUGETLB |
                                  SOFTRDMA_ACCESS_FLUSH_GLOBAL | SOFTRDMA_ACCESS_FLUSH_PERSISTENT |
                                  IBV_ACCESS_OPTIONAL_RANGE;

ibv_mr *registered(ibv_pd *pd, void *address, std::size_t length, std::uint64_t iova, unsigned access) {
    if ((access & ~known_access) != 0 ||
        ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0 &&
         (access & IBV_ACCESS_LOCAL_WRITE) == 0)) {
        BASE_LOG(Error,
                 "cannot register memory with access 0x%x: a bit is unknown, or remote writing is asked for "
                 "without local writing",
                 access);
        return failed<ibv_mr>(EINVAL);
    }
    std::unique_ptr<persist::Region> durable;
    if ((access & SOFTRDMA_ACCESS_FLUSH_PERSISTENT) != 0) {
        auto opened = persist::Region::open(address, length);
        if (!opened) {
            return failed<ibv_mr>(opened.error().number);
        }
        durable = std::move(*opened);
    }
    persist::install_guard();
    auto *const region = new MemoryRegion{};
    region->context = pd->context;
    region->pd = pd;
    region->addr = address;
    region->length = length;
    region->access = access;
    region->iova = iova;
    region->durable = std::move(durable);
    if (const auto inserted = soft::Memory::instance().insert(*region); !inserted) {
        BASE_LOG(Error, "cannot register memory: %d regions are registered, the most there can be",
                 soft::limits::max_mr);
        delete region;
        return failed<ibv_mr>(inserted.error().number);
    }
    region->handle = region->lkey;
    static_cast<ProtectionDomain *>(pd)->users.fetch_add(1, std::memory_order_relaxed);
    return region;
}

}  // namespace

// ---- devices ----

ibv_device **softrdma_ibv_get_device_list(int *num_devices) {
    const auto all = soft::devices();
    auto **const list = new (std::nothrow) ibv_device *[all.size() + 1] {};
    if (list == nullptr) {
        return failed<ibv_device *>(ENOMEM);
    }
    std::ranges::copy(all, list);
    if (num_devices != nullptr) {
        *num_devices = static_cast<int>(all.size());
    }
    return list;
}

void softrdma_ibv_free_device_list(ibv_device **list) {
    delete[] list;
}

const char *softrdma_ibv_get_device_name(ibv_device *device) {
    return device->name;
}

// The interface's index: devices of one machine differ.
__be64 softrdma_ibv_get_device_guid(ibv_device *device) {
    const __be64 guid = htobe64(if_nametoindex(static_cast<Device *>(device)->interface.c_str()));
    return guid;
}

ibv_context *softrdma_ibv_open_device(ibv_device *device) {
    return made([&] { return soft::context_of(*static_cast<Device *>(device)); });
}

int softrdma_ibv_close_device(ibv_context *) {
    return 0;
}  // a device's only context lives as long as the process

int softrdma_ibv_query_device(ibv_context *, ibv_device_attr *attributes) {
    soft::query(*attributes);
    return 0;
}

int softrdma_ibv_query_device_ex(ibv_context *, const ibv_query_device_ex_input *,
                                 ibv_device_attr_ex *attributes) {
    *attributes = {};
    soft::query(attributes->orig_attr);
    return 0;
}

int softrdma_ibv_query_port(ibv_context *context, uint8_t port_num, ibv_port_attr *port_attr) {
    if (port_num != 1) {
        return EINVAL;
    }
    soft::query(*static_cast<const Device *>(context->device), *port_attr);
    return 0;
}

// The addresses of the interface, IPv4 ones mapped into IPv6.
int softrdma_ibv_query_gid(ibv_context *context, uint8_t port_num, int index, ibv_gid *gid) {
    const auto addresses = soft::addresses_of(*static_cast<const Device *>(context->device));
    if (port_num != 1 || index < 0 || static_cast<std::size_t>(index) >= addresses.size()) {
        errno = EINVAL;
        return -1;
    }
    const auto &address = addresses[static_cast<std::size_t>(index)];
    *gid = {};
    if (address.ss_family == AF_INET6) {
        std::memcpy(gid->raw, &reinterpret_cast<const sockaddr_in6 &>(address).sin6_addr, sizeof(gid->raw));
    } else {
        gid->raw[10] = gid->raw[11] = 0xff;
        std::memcpy(gid->raw + 12, &reinterpret_cast<const sockaddr_in &>(address).sin_addr, sizeof(in_addr));
    }
    return 0;
}

bool softrdma_owns(const ibv_context *context) {
    return soft::is_soft(context);
}

// ---- memory ----

ibv_pd *softrdma_ibv_alloc_pd(ibv_context *context) {
    return made([&] {
        auto *const pd = new ProtectionDomain{};
        pd->context = context;
        return pd;
    });
}

int softrdma_ibv_dealloc_pd(ibv_pd *pd) {
    auto *const domain = static_cast<ProtectionDomain *>(pd);
    if (domain->users.load(std::memory_order_acquire) != 0) {
        return EBUSY;
    }
    delete domain;
    return 0;
}

ibv_mr *(softrdma_ibv_reg_mr)(ibv_pd *pd, void *addr, size_t length, int access) {
    return made([&] {
        return registered(pd, addr, length, reinterpret_cast<std::uintptr_t>(addr),
                          static_cast<unsigned>(access));
    });
}

ibv_mr *softrdma_ibv_reg_mr_iova2(ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned access) {
    return made([&] { return registered(pd, addr, length, iova, access); });
}

int softrdma_ibv_dereg_mr(ibv_mr *mr) {
    auto *const region = static_cast<MemoryRegion *>(mr);
    soft::Memory::instance().erase(*region);
    static_cast<ProtectionDomain *>(region->pd)->users.fetch_sub(1, std::memory_order_release);
    delete region;
    return 0;
}

// Nothing to advise: pages are found when they are touched. Ranges are checked as a device with on-demand
// paging does.
int softrdma_ibv_advise_mr(ibv_pd *pd, ibv_advise_mr_advice advice, uint32_t, ibv_sge *sg_list,
                           uint32_t num_sge) {
    if (advice > IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT) {
        return EOPNOTSUPP;
    }
    for (uint32_t i = 0; i < num_sge; ++i) {
        if (!soft::Memory::instance().pin({.pd = pd,
                                           .key = sg_list[i].lkey,
                                           .address = sg_list[i].addr,
                                           .length = sg_list[i].length,
                                           .rights = 0})) {
            return EFAULT;
        }
    }
    return 0;
}

// ---- completion ----

ibv_comp_channel *softrdma_ibv_create_comp_channel(ibv_context *context) {
    return made([&]() -> ibv_comp_channel * { return value_of(CompletionChannel::create(context)); });
}

int softrdma_ibv_destroy_comp_channel(ibv_comp_channel *channel) {
    auto *const events = static_cast<CompletionChannel *>(channel);
    if (events->busy()) {
        return EBUSY;
    }
    delete events;
    return 0;
}

ibv_cq *softrdma_ibv_create_cq(ibv_context *context, int cqe, void *cq_context, ibv_comp_channel *channel,
                               int comp_vector) {
    if (cqe < 1 || cqe > soft::limits::max_cqe || comp_vector < 0 ||
        comp_vector >= context->num_comp_vectors) {
        BASE_LOG(Error,
                 "completion queue of %d entries on vector %d: 1 to %d entries and vector 0 are possible",
                 cqe, comp_vector, soft::limits::max_cqe);
        return failed<ibv_cq>(EINVAL);
    }
    return made(
        [&]() -> ibv_cq * { return value_of(CompletionQueue::create(context, cqe, cq_context, channel)); });
}

int softrdma_ibv_destroy_cq(ibv_cq *cq) {
    auto *const queue = static_cast<CompletionQueue *>(cq);
    if (queue->users.load(std::memory_order_acquire) != 0) {
        return EBUSY;
    }
    queue->leave_channel();
    delete queue;
    return 0;
}

int softrdma_ibv_get_cq_event(ibv_comp_channel *channel, ibv_cq **cq, void **cq_context) {
    CompletionQueue *const queue =
        made([&] { return value_of(static_cast<CompletionChannel *>(channel)->next_event()); });
    if (queue == nullptr) {
        return -1;
    }
    *cq = queue;
    *cq_context = queue->cq_context;
    return 0;
}

void softrdma_ibv_ack_cq_events(ibv_cq *cq, unsigned nevents) {
    static_cast<CompletionQueue *>(cq)->acknowledge(nevents);
}

// ---- queue pairs ----

ibv_qp *softrdma_ibv_create_qp(ibv_pd *pd, ibv_qp_init_attr *attributes) {
    return made([&]() -> ibv_qp * { return value_of(QueuePair::create(*pd, *attributes)); });
}

ibv_qp *softrdma_ibv_create_qp_ex(ibv_context *context, ibv_qp_init_attr_ex *attributes) {
    if ((attributes->comp_mask & IBV_QP_INIT_ATTR_PD) == 0 || attributes->pd == nullptr ||
        attributes->pd->context != context ||
        (attributes->comp_mask & ~static_cast<std::uint32_t>(IBV_QP_INIT_ATTR_PD)) != 0) {
        return failed<ibv_qp>(EOPNOTSUPP);
    }
    // The members up to sq_sig_all are those of ibv_qp_init_attr.
    return softrdma_ibv_create_qp(attributes->pd, reinterpret_cast<ibv_qp_init_attr *>(attributes));
}

int softrdma_ibv_destroy_qp(ibv_qp *qp) {
    delete static_cast<QueuePair *>(qp);
    return 0;
}

int softrdma_ibv_query_qp(ibv_qp *qp, ibv_qp_attr *attributes, int, ibv_qp_init_attr *init) {
    static_cast<QueuePair *>(qp)->query(*attributes, *init);
    return 0;
}

// A queue pair's states are the connection manager's to change; a program may give it up.
int softrdma_ibv_modify_qp(ibv_qp *qp, ibv_qp_attr *attributes, int mask) {
    if (mask != IBV_QP_STATE || attributes->qp_state != IBV_QPS_ERR) {
        return EOPNOTSUPP;
    }
    static_cast<QueuePair *>(qp)->disconnect();
    return 0;
}

unsigned softrdma_peer_operations(const ibv_qp *qp) {
    return static_cast<const QueuePair *>(qp)->peer_operations();
}

// The log of base, with this library's own copy of it.
void softrdma_set_log(softrdma_log_function log_function, int threshold) {
    base::set_log_sink(log_function);
    base::log_threshold.store(threshold, std::memory_order_relaxed);
}
