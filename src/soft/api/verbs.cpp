// SPDX-License-Identifier: BSD-3-Clause
// soft/api/verbs: softrdma_ibv_X, the C functions of devices and memory. Here failures become errno values.
#include <net/if.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/log.hpp"
#include "base/shared_value.hpp"
#include "persist/guard.hpp"
#include "persist/mapping.hpp"
#include "soft/api/made.hpp"
#include "soft/device/device.hpp"
#include "soft/ground/faults.hpp"
#include "soft/ground/limits.hpp"
#include "soft/memory/memory.hpp"
#include "soft/memory/offers.hpp"
#include "soft/queues/any_queue_pair.hpp"
#include "softrdma.h"

namespace {

using soft::AnyQueuePair;
using soft::Device;
using soft::error_of;
using soft::failed;
using soft::made;
using soft::MemoryRegion;
using soft::ProtectionDomain;

constexpr unsigned known_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                  IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_HUGETLB |
                                  SOFTRDMA_ACCESS_FLUSH_GLOBAL | SOFTRDMA_ACCESS_FLUSH_PERSISTENT |
                                  IBV_ACCESS_ON_DEMAND | IBV_ACCESS_OPTIONAL_RANGE;

// The access flags of verbs that this device does not support.
constexpr unsigned lacking_access = IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED;

// Queue pairs of each type do this with such memory, and those of RC do more.
constexpr std::uint32_t on_demand =
    IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_SRQ_RECV;

// Returns 0 or an errno value.
int why_not(std::uintptr_t address, std::size_t length, std::uint64_t iova, unsigned access) {
    const bool writes = (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0;
    if ((access & ~(known_access | lacking_access)) != 0 ||
        (writes && (access & IBV_ACCESS_LOCAL_WRITE) == 0)) {
        BASE_LOG(Error,
                 "cannot register memory with access 0x%x: a bit is unknown, or remote writing is asked for "
                 "without local writing",
                 access);
        return EINVAL;
    }
    if ((access & lacking_access) != 0) {
        BASE_LOG(Error, "cannot register memory with access 0x%x: this device has nothing of 0x%x", access,
                 lacking_access);
        return EOPNOTSUPP;
    }
    if (address + length < address || iova + length < iova) {
        BASE_LOG(Error, "cannot register %zu bytes at 0x%zx: the range wraps around the address space",
                 length, address);
        return EINVAL;
    }
    if (!persist::is_mapped(address, length)) {
        BASE_LOG(Error, "cannot register %zu bytes at 0x%zx: not all of it is mapped", length, address);
        return EFAULT;
    }
    return 0;
}

// Registers memory. Only the peer of `queue_pair` reaches it (AnyQueuePair::creation); 0 stands for all
// peers.
ibv_mr *registered(ibv_pd *pd, void *address, std::size_t length, std::uint64_t iova, unsigned access,
                   std::uint64_t queue_pair = 0) {
    if (const int error = why_not(reinterpret_cast<std::uintptr_t>(address), length, iova, access)) {
        return failed<ibv_mr>(error);
    }
    // Memory for all peers is not checked, because that would allocate two of its pages before a peer writes
    // there.
    if (queue_pair != 0 && (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0 &&
        !persist::is_writable(reinterpret_cast<std::uintptr_t>(address), length)) {
        BASE_LOG(Error,
                 "cannot register %zu bytes at %p for a peer to write: this process may only read them",
                 length, address);
        return failed<ibv_mr>(EFAULT);
    }
    if (const soft::Faults *const faults = soft::Faults::active();
        faults != nullptr && faults->fails_registration()) {
        return failed<ibv_mr>(ENOMEM);
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
    auto region = std::make_unique<MemoryRegion>();
    region->context = pd->context;
    region->pd = pd;
    region->queue_pair = queue_pair;
    region->addr = address;
    region->length = length;
    region->access = access;
    region->iova = iova;
    region->durable = std::move(durable);
    if (const auto inserted = soft::Memory::instance().insert(*region); !inserted) {
        BASE_LOG(Error, "cannot register memory: %d regions are registered, the most there can be",
                 soft::limits::max_mr);
        return failed<ibv_mr>(inserted.error().number);
    }
    region->handle = region->lkey;
    static_cast<ProtectionDomain *>(pd)->users.fetch_add(1, std::memory_order_relaxed);
    return region.release();
}

const Device &device_of(const ibv_context &context) {
    return *static_cast<const Device *>(context.device);
}

std::vector<ibv_gid_entry> gid_table(const ibv_context &context) {
    std::vector<ibv_gid_entry> table;
    for (const soft::GidRow &row : soft::gids_of(device_of(context))) {
        table.push_back({.gid = row.gid,
                         .gid_index = static_cast<std::uint32_t>(table.size()),
                         .port_num = 1,
                         .gid_type = static_cast<std::uint32_t>(row.type),
                         .ndev_ifindex = if_nametoindex(device_of(context).interface.c_str())});
    }
    return table;
}

constexpr __be16 default_partition = 0xffff;  // the same in either byte order

}  // namespace

// ---- devices ----

ibv_device **softrdma_ibv_get_device_list(int *num_devices) {
    return made([&] {
        const auto all = soft::devices();
        auto **const list = new ibv_device *[all.size() + 1] {};
        std::ranges::copy(all, list);
        if (num_devices != nullptr) {
            *num_devices = static_cast<int>(all.size());
        }
        return list;
    });
}

void softrdma_ibv_free_device_list(ibv_device **list) {
    delete[] list;
}

const char *softrdma_ibv_get_device_name(ibv_device *device) {
    return device->name;
}

__be64 softrdma_ibv_get_device_guid(ibv_device *device) {
    return soft::guid_of(*static_cast<Device *>(device));
}

ibv_context *softrdma_ibv_open_device(ibv_device *device) {
    return made([&] { return soft::value_of(soft::open_context(*static_cast<Device *>(device))); });
}

int softrdma_ibv_close_device(ibv_context *context) {
    soft::close_context(*context);
    return 0;
}

int softrdma_ibv_query_device(ibv_context *context, ibv_device_attr *attributes) {
    soft::query(device_of(*context), *attributes);
    return 0;
}

int softrdma_ibv_query_device_ex(ibv_context *context, const ibv_query_device_ex_input *,
                                 ibv_device_attr_ex *attributes) {
    *attributes = {};
    soft::query(device_of(*context), attributes->orig_attr);
    attributes->phys_port_cnt_ex = attributes->orig_attr.phys_port_cnt;
    // No memory is pinned, so any region is on demand. There is none for the whole address space (implicit).
    attributes->odp_caps = {
        .general_caps = IBV_ODP_SUPPORT,
        .per_transport_caps = {
            .rc_odp_caps = on_demand | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC,
            .uc_odp_caps = on_demand,
            .ud_odp_caps = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV}};
    return 0;
}

int softrdma_ibv_query_port(ibv_context *context, uint8_t port_num, ibv_port_attr *port_attr) {
    if (port_num != 1) {
        return EINVAL;
    }
    return error_of([&] {
        soft::query(device_of(*context), *port_attr);
        return 0;
    });
}

int softrdma_ibv_query_gid(ibv_context *context, uint8_t port_num, int index, ibv_gid *gid) {
    ibv_gid_entry entry;
    if (const int error =
            softrdma_ibv_query_gid_ex(context, port_num, static_cast<std::uint32_t>(index), &entry, 0);
        error != 0) {
        errno = error;
        return -1;
    }
    *gid = entry.gid;
    return 0;
}

int softrdma_ibv_query_gid_ex(ibv_context *context, uint32_t port_num, uint32_t gid_index,
                              ibv_gid_entry *entry, uint32_t flags) {
    if (port_num != 1 || flags != 0) {
        return EINVAL;
    }
    return error_of([&] {
        const auto table = gid_table(*context);
        if (gid_index >= table.size()) {
            return EINVAL;
        }
        *entry = table[gid_index];
        return 0;
    });
}

ssize_t softrdma_ibv_query_gid_table(ibv_context *context, ibv_gid_entry *entries, size_t max_entries,
                                     uint32_t flags) {
    std::size_t found = 0;
    const int error = error_of([&] {
        const auto table = gid_table(*context);
        if (flags != 0 || table.size() > max_entries) {
            return EINVAL;
        }
        std::ranges::copy(table, entries);
        found = table.size();
        return 0;
    });
    return error != 0 ? -error : static_cast<ssize_t>(found);
}

int softrdma_ibv_query_pkey(ibv_context *, uint8_t port_num, int index, __be16 *pkey) {
    if (port_num != 1 || index != 0) {
        errno = EINVAL;
        return -1;
    }
    *pkey = default_partition;
    return 0;
}

int softrdma_ibv_get_pkey_index(ibv_context *, uint8_t port_num, __be16 pkey) {
    if (port_num != 1 || pkey != default_partition) {
        errno = EINVAL;
        return -1;
    }
    return 0;
}

// ---- memory ----

ibv_pd *softrdma_ibv_alloc_pd(ibv_context *context) {
    return made([&] {
        auto *const pd = new ProtectionDomain{};
        pd->context = context;
        soft::Context::of(*context).uses.fetch_add(1, std::memory_order_relaxed);
        return pd;
    });
}

int softrdma_ibv_dealloc_pd(ibv_pd *pd) {
    auto *const domain = static_cast<ProtectionDomain *>(pd);
    if (domain->users.load(std::memory_order_acquire) != 0) {
        return EBUSY;
    }
    soft::Context::of(*pd->context).uses.fetch_sub(1, std::memory_order_release);
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

ibv_mr *softrdma_reg_mr_for_qp(ibv_qp *qp, void *addr, size_t length, int access) {
    const auto *const queue_pair = AnyQueuePair::of(qp);
    if (queue_pair == nullptr || qp->qp_type != IBV_QPT_RC || queue_pair->inherited()) {
        BASE_LOG(Error, "cannot register memory for one queue pair: that is none of type RC of this process");
        return failed<ibv_mr>(EINVAL);
    }
    return made([&] {
        return registered(qp->pd, addr, length, reinterpret_cast<std::uintptr_t>(addr),
                          static_cast<unsigned>(access), queue_pair->creation());
    });
}

int softrdma_ibv_dereg_mr(ibv_mr *mr) {
    auto *const region = static_cast<MemoryRegion *>(mr);
    soft::Memory::instance().close(*region);
    if (!soft::Offers::withdraw_region(*region)) {
        return EBUSY;
    }
    soft::Memory::instance().erase(*region);
    // Connections that wrote here hold the persist::Region until a flush, and the memory may be unmapped
    // before that.
    if (region->durable.use_count() > 1 && !region->inherited()) {
        region->durable->close();
    }
    static_cast<ProtectionDomain *>(region->pd)->users.fetch_sub(1, std::memory_order_release);
    delete region;
    return 0;
}

// The advice has no effect, because pages are found when they are touched. Ranges are checked as by a device
// with on-demand paging.
int softrdma_ibv_advise_mr(ibv_pd *pd, ibv_advise_mr_advice advice, uint32_t, ibv_sge *sg_list,
                           uint32_t num_sge) {
    if (advice > IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT) {
        return EOPNOTSUPP;
    }
    for (uint32_t i = 0; i < num_sge; ++i) {
        if (!soft::Memory::instance().pin({.by = {pd},
                                           .key = sg_list[i].lkey,
                                           .address = sg_list[i].addr,
                                           .length = sg_list[i].length,
                                           .rights = 0})) {
            return EFAULT;
        }
    }
    return 0;
}

// This sets base's log, of which this library has its own copy.
void softrdma_set_log(softrdma_log_function log_function, int threshold) {
    base::set_log_sink(log_function);
    base::set_shared(base::log_threshold, threshold);
}
