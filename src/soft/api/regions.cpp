// SPDX-License-Identifier: BSD-3-Clause
// soft/api/regions: softrdma_ibv_X, the C functions of memory regions. Here failures become errno values.
#include "soft/api/regions.hpp"

#include <cerrno>
#include <memory>
#include <utility>

#include "base/log.hpp"
#include "persist/guard.hpp"
#include "persist/mapping.hpp"
#include "soft/api/made.hpp"
#include "soft/ground/faults.hpp"
#include "soft/ground/limits.hpp"
#include "soft/memory/memory.hpp"
#include "soft/memory/offers.hpp"
#include "soft/memory/window.hpp"
#include "soft/progress/engines.hpp"
#include "soft/queues/any_queue_pair.hpp"
#include "softrdma.h"

namespace soft {

namespace {

constexpr unsigned known_access =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
    IBV_ACCESS_HUGETLB | SOFTRDMA_ACCESS_FLUSH_GLOBAL | SOFTRDMA_ACCESS_FLUSH_PERSISTENT |
    IBV_ACCESS_ON_DEMAND | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_MW_BIND | IBV_ACCESS_OPTIONAL_RANGE;

// The whole address space, which is registered without looking at it (implicit on-demand paging).
bool is_implicit(std::uintptr_t address, std::size_t length, unsigned access) {
    return address == 0 && length == SIZE_MAX && (access & IBV_ACCESS_ON_DEMAND) != 0;
}

// Returns 0 or an errno value.
int why_not(std::uintptr_t address, std::size_t length, std::uint64_t iova, unsigned access) {
    const bool writes = (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0;
    if ((access & ~known_access) != 0 || (writes && (access & IBV_ACCESS_LOCAL_WRITE) == 0)) {
        BASE_LOG(Error,
                 "cannot register memory with access 0x%x: a bit is unknown, or remote writing is asked for "
                 "without local writing",
                 access);
        return EINVAL;
    }
    if (address + length < address || iova + length < iova) {
        BASE_LOG(Error, "cannot register %zu bytes at 0x%zx: the range wraps around the address space",
                 length, address);
        return EINVAL;
    }
    if (!is_implicit(address, length, access) && !persist::is_mapped(address, length)) {
        BASE_LOG(Error, "cannot register %zu bytes at 0x%zx: not all of it is mapped", length, address);
        return EFAULT;
    }
    return 0;
}

// Returns null when the access asks for no durability.
base::Result<std::unique_ptr<persist::Region>> durable_of(void *address, std::size_t length,
                                                          unsigned access) {
    if ((access & SOFTRDMA_ACCESS_FLUSH_PERSISTENT) == 0) {
        return nullptr;
    }
    return persist::Region::open(address, length);
}

// Has a thread stand by for each engine when it may have to wait for storage to touch the memory.
void watch(std::uintptr_t address, std::size_t length, unsigned access) {
    Engines &engines = Engines::instance();
    if (!engines.is_watched() &&
        (is_implicit(address, length, access) || persist::is_of_file(address, length))) {
        engines.watch();
    }
}

// Connections that wrote here hold the persist::Region until a flush, and the memory may be unmapped before
// that.
void let_go(const std::shared_ptr<persist::Region> &durable) {
    if (durable.use_count() > 1) {
        durable->close();
    }
}

void count(std::atomic<int> &users) {
    users.fetch_add(1, std::memory_order_relaxed);
}
void uncount(std::atomic<int> &users) {
    users.fetch_sub(1, std::memory_order_release);
}

}  // namespace

ibv_mr *register_region(ibv_pd &pd, void *address, std::size_t length, std::uint64_t iova, unsigned access,
                        const RegionIsOf &of) {
    if (const int error = why_not(reinterpret_cast<std::uintptr_t>(address), length, iova, access)) {
        return failed<ibv_mr>(error);
    }
    // Memory for all peers is not checked, because that would allocate two of its pages before a peer writes
    // there.
    if (of.queue_pair != 0 && (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0 &&
        !persist::is_writable(reinterpret_cast<std::uintptr_t>(address), length)) {
        BASE_LOG(Error,
                 "cannot register %zu bytes at %p for a peer to write: this process may only read them",
                 length, address);
        return failed<ibv_mr>(EFAULT);
    }
    if (const Faults *const faults = Faults::active(); faults != nullptr && faults->fails_registration()) {
        return failed<ibv_mr>(ENOMEM);
    }
    auto durable = durable_of(address, length, access);
    if (!durable) {
        return failed<ibv_mr>(durable.error().number);
    }
    persist::install_guard();
    auto region = std::make_unique<MemoryRegion>();
    region->context = pd.context;
    region->pd = &pd;
    region->domain = &domain_of(pd);
    region->queue_pair = of.queue_pair;
    region->holds = of.holds;
    region->addr = address;
    region->length = length;
    region->access = access;
    region->iova = iova;
    region->durable = *std::move(durable);
    if (const auto inserted = Memory::instance().insert(*region); !inserted) {
        BASE_LOG(Error, "cannot register memory: %d regions are registered, the most there can be",
                 limits::max_mr);
        return failed<ibv_mr>(inserted.error().number);
    }
    watch(reinterpret_cast<std::uintptr_t>(address), length, access);
    region->handle = region->lkey;
    count(static_cast<ProtectionDomain &>(pd).users);
    if (of.holds != nullptr) {
        count(*of.holds);
    }
    return region.release();
}

// The bounds and rights of a region.
struct Registered {
    void *address;
    std::size_t length;
    std::uint64_t iova;
    unsigned access;
};

namespace {

// Returns whether memory windows are bound to the region.
bool has_windows(const MemoryRegion &region) {
    if (region.windows.load(std::memory_order_acquire) != 0) {
        MemoryWindow::free_shut(region);
    }
    return region.windows.load(std::memory_order_acquire) != 0;
}

// Returns 0, or an errno value; then nothing has changed.
int change(MemoryRegion &region, const Registered &to, ibv_pd *pd) {
    if (const int error =
            why_not(reinterpret_cast<std::uintptr_t>(to.address), to.length, to.iova, to.access)) {
        return error;
    }
    auto durable = durable_of(to.address, to.length, to.access);
    if (!durable) {
        return durable.error().number;
    }
    if (has_windows(region)) {
        return EBUSY;
    }
    Memory::instance().close(region);
    if (!Offers::withdraw_region(region)) {
        Memory::instance().open(region, region.lkey);
        return EBUSY;
    }
    watch(reinterpret_cast<std::uintptr_t>(to.address), to.length, to.access);
    let_go(region.durable);
    region.durable = *std::move(durable);
    count(static_cast<ProtectionDomain *>(pd)->users);
    uncount(static_cast<ProtectionDomain *>(region.pd)->users);
    region.pd = pd;
    region.domain = &domain_of(*pd);
    region.addr = to.address;
    region.length = to.length;
    region.iova = to.iova;
    region.access = to.access;
    Memory::instance().open(region, region.lkey);
    return 0;
}

}  // namespace

}  // namespace soft

namespace {

using soft::AnyQueuePair;
using soft::failed;
using soft::made;
using soft::MemoryRegion;
using soft::ProtectionDomain;

ibv_mr *at_its_address(ibv_pd &pd, void *address, std::size_t length, int access,
                       const soft::RegionIsOf &of = {}) {
    const auto rights = static_cast<unsigned>(access);
    const std::uint64_t iova =
        (rights & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : reinterpret_cast<std::uintptr_t>(address);
    return soft::register_region(pd, address, length, iova, rights, of);
}

}  // namespace

ibv_mr *(softrdma_ibv_reg_mr)(ibv_pd *pd, void *addr, size_t length, int access) {
    return made([&] { return at_its_address(*pd, addr, length, access); });
}

ibv_mr *softrdma_ibv_reg_mr_iova2(ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned access) {
    return made([&] { return soft::register_region(*pd, addr, length, iova, access); });
}

ibv_mr *softrdma_reg_mr_for_qp(ibv_qp *qp, void *addr, size_t length, int access) {
    const auto *const queue_pair = AnyQueuePair::of(qp);
    if (queue_pair == nullptr || qp->qp_type != IBV_QPT_RC || queue_pair->inherited()) {
        BASE_LOG(Error, "cannot register memory for one queue pair: that is none of type RC of this process");
        return failed<ibv_mr>(EINVAL);
    }
    return made([&] {
        return at_its_address(*qp->pd, addr, length, access, {.queue_pair = queue_pair->creation()});
    });
}

int softrdma_ibv_dereg_mr(ibv_mr *mr) {
    auto *const region = static_cast<MemoryRegion *>(mr);
    if (!region->inherited() && soft::has_windows(*region)) {
        BASE_LOG(Error, "memory with key 0x%x is not deregistered: a memory window is bound to it", mr->rkey);
        return EBUSY;
    }
    soft::Memory::instance().close(*region);
    if (!soft::Offers::withdraw_region(*region)) {
        return EBUSY;
    }
    soft::Memory::instance().erase(*region);
    if (!region->inherited()) {
        soft::let_go(region->durable);
    }
    soft::uncount(static_cast<ProtectionDomain *>(region->pd)->users);
    if (region->holds != nullptr) {
        soft::uncount(*region->holds);
    }
    delete region;
    return 0;
}

// The keys stay. A peer's access is refused while the region changes, and one that is under way ends before.
int softrdma_ibv_rereg_mr(ibv_mr *mr, int flags, ibv_pd *pd, void *addr, size_t length, int access) {
    const auto has = [flags](int flag) { return (flags & flag) != 0; };
    auto *const region = static_cast<MemoryRegion *>(mr);
    const auto refused = [](int error) {
        errno = error;
        return int{IBV_REREG_MR_ERR_INPUT};
    };
    if (flags == 0 || has(~int{IBV_REREG_MR_FLAGS_SUPPORTED}) ||
        (has(IBV_REREG_MR_CHANGE_PD) && (pd == nullptr || pd->context != mr->context)) ||
        (has(IBV_REREG_MR_CHANGE_TRANSLATION) && region->holds != nullptr) || region->queue_pair != 0 ||
        region->inherited()) {
        return refused(EINVAL);
    }
    soft::Registered to{
        .address = region->addr,
        .length = region->length,
        .iova = region->iova,
        .access = has(IBV_REREG_MR_CHANGE_ACCESS) ? static_cast<unsigned>(access) : region->access};
    if (has(IBV_REREG_MR_CHANGE_TRANSLATION)) {
        to.address = addr;
        to.length = length;
        to.iova = (to.access & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : reinterpret_cast<std::uintptr_t>(addr);
    }
    const int error =
        soft::error_of([&] { return soft::change(*region, to, has(IBV_REREG_MR_CHANGE_PD) ? pd : mr->pd); });
    return error == 0 ? 0 : refused(error);
}

// The advice has no effect, because pages are found when they are touched. Ranges are checked as by a device
// with on-demand paging.
int softrdma_ibv_advise_mr(ibv_pd *pd, ibv_advise_mr_advice advice, uint32_t, ibv_sge *sg_list,
                           uint32_t num_sge) {
    if (advice > IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT) {
        return EOPNOTSUPP;
    }
    for (uint32_t i = 0; i < num_sge; ++i) {
        if (!soft::Memory::instance().pin({.by = {&soft::domain_of(*pd)},
                                           .key = sg_list[i].lkey,
                                           .address = sg_list[i].addr,
                                           .length = sg_list[i].length,
                                           .rights = 0})) {
            return EFAULT;
        }
    }
    return 0;
}
