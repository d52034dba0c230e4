// SPDX-License-Identifier: BSD-3-Clause
#include "soft/memory/window.hpp"

#include <cerrno>
#include <cinttypes>
#include <memory>

#include "base/log.hpp"
#include "soft/memory/offers.hpp"
#include "softrdma.h"

namespace soft {

namespace {

constexpr std::uint32_t programs_bits = 0xff;  // of a key of type 2: those that ibv_inc_rkey changes

constexpr unsigned writes = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
constexpr unsigned of_peers = writes | IBV_ACCESS_REMOTE_READ;
constexpr unsigned of_flushes = SOFTRDMA_ACCESS_FLUSH_GLOBAL | SOFTRDMA_ACCESS_FLUSH_PERSISTENT;
// A window gives the program itself no rights.
constexpr unsigned known_rights = of_peers | of_flushes | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED;

bool is_inside(const MemoryRegion &region, std::uint64_t address, std::uint64_t length) {
    return address >= region.iova && length <= region.length &&
           address - region.iova <= region.length - length;
}

}  // namespace

constinit base::LastingMutex MemoryWindow::changes;
constinit base::LastingMutex MemoryWindow::mutex;
constinit MemoryWindow *MemoryWindow::first_shut = nullptr;
// The first is held while locks of the rooms from here on are taken, so a fork takes it before them.
const MemoryWindow::ChangesHeld MemoryWindow::changes_held_while_forking{base::ForkLevel::SoftDevice};
const MemoryWindow::Held MemoryWindow::held_while_forking{base::ForkLevel::SoftMemory};

MemoryWindow::MemoryWindow(ibv_pd &domain, ibv_mw_type its_type) : ibv_mw{} {
    context = domain.context;
    pd = &domain;
    type = its_type;
    bound_.context = domain.context;
    bound_.pd = &domain;
    bound_.domain = &domain_of(domain);
    bound_.window = this;
}

base::Result<MemoryWindow *> MemoryWindow::alloc(ibv_pd &pd, ibv_mw_type type) {
    if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2) {
        BASE_LOG(Error, "no memory window of type %d: there are types 1 and 2", type);
        return base::failure(EINVAL);
    }
    std::unique_ptr<MemoryWindow> window{new MemoryWindow{pd, type}};
    // It has no rights, and no key.
    if (const auto inserted = Memory::instance().insert(window->bound_); !inserted) {
        return std::unexpected{inserted.error()};
    }
    Memory::instance().close(window->bound_);
    window->rkey = window->handle = window->bound_.rkey;
    static_cast<ProtectionDomain &>(pd).users.fetch_add(1, std::memory_order_relaxed);
    return window.release();
}

base::Result<void> MemoryWindow::dealloc(MemoryWindow *window) {
    if (!window->inherited()) {
        // An access that is under way may wait for storage, and nobody else waits for it.
        window->shut();
        Memory::instance().close(window->bound_);
        const base::Lock changing{changes};
        if (const auto freed = window->free(); !freed) {
            return freed;
        }
    }
    Memory::instance().erase(window->bound_);
    static_cast<ProtectionDomain *>(window->pd)->users.fetch_sub(1, std::memory_order_release);
    delete window;
    return {};
}

// Returns what is wrong, or null.
const char *MemoryWindow::why_not(const Asker &by, const ibv_mw_bind_info &info, std::uint32_t key) const {
    const auto *const region = static_cast<const MemoryRegion *>(info.mr);
    const unsigned access = info.mw_access_flags;
    if (bound_.domain != by.pd) {
        return "the window and the queue pair are in different protection domains";
    }
    if (type == IBV_MW_TYPE_2 && ((key ^ rkey) & ~programs_bits) != 0) {
        return "only the lower 8 bits of a window's key may change (ibv_inc_rkey)";
    }
    if (type == IBV_MW_TYPE_2 && state_ == State::Bound) {
        return "a window of type 2 has to be invalidated before it is bound again";
    }
    if (info.length == 0) {
        return type == IBV_MW_TYPE_1 ? nullptr : "a window of type 2 has at least one byte";
    }
    if (region == nullptr || region->domain != by.pd) {
        return "the region is in another protection domain than the queue pair";
    }
    if ((region->access & IBV_ACCESS_MW_BIND) == 0) {
        return "the region was registered without IBV_ACCESS_MW_BIND";
    }
    if (!is_inside(*region, info.addr, info.length)) {
        return "the range is outside of the region";
    }
    if ((access & ~known_rights) != 0 ||
        ((access & writes) != 0 && (region->access & IBV_ACCESS_LOCAL_WRITE) == 0) ||
        (access & of_flushes & ~region->access) != 0) {
        return "the region cannot give these rights";
    }
    return nullptr;
}

base::Result<void> MemoryWindow::bind(const Asker &by, const ibv_mw_bind_info &info, std::uint32_t key) {
    if (inherited()) {
        return base::failure(EINVAL);
    }
    const base::Lock changing{changes};
    {
        const base::Lock lock{mutex};
        if (const char *const reason = why_not(by, info, key)) {
            BASE_LOG(Error,
                     "memory window 0x%" PRIx32 " of type %d is not bound to %" PRIu64 " bytes at 0x%" PRIx64
                     " with access 0x%x: %s",
                     rkey, type, info.length, info.addr, info.mw_access_flags, reason);
            return base::failure(EINVAL);
        }
    }
    shut();
    if (const auto freed = free(); !freed) {
        return freed;
    }
    if (info.length == 0) {
        return {};
    }
    auto *const region = static_cast<MemoryRegion *>(info.mr);
    if (type == IBV_MW_TYPE_1) {
        Memory::instance().change_key(bound_);
        key = bound_.rkey;
    }
    bound_.addr = region->at(info.addr);
    bound_.length = info.length;
    bound_.iova = (info.mw_access_flags & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : info.addr;
    bound_.access = info.mw_access_flags & (of_peers | of_flushes);
    bound_.queue_pair = type == IBV_MW_TYPE_2 ? by.queue_pair : 0;
    bound_.durable = region->durable;
    {
        const base::Lock lock{mutex};
        region->windows.fetch_add(1, std::memory_order_relaxed);
        over_ = region;
        state_ = State::Bound;
    }
    rkey = key;
    Memory::instance().open(bound_, key);
    return {};
}

base::Result<void> MemoryWindow::invalidate(const Asker &by, std::uint32_t key) {
    const base::Lock changing{changes};
    MemoryWindow *window = nullptr;
    {
        const auto pin = Memory::instance().pin_window(by, key);
        window = pin ? pin->region().window : nullptr;  // it is not deallocated meanwhile
    }
    if (window == nullptr || window->type != IBV_MW_TYPE_2) {
        BASE_LOG(Error,
                 "key 0x%" PRIx32 " is of no memory window of type 2 that is bound for this queue pair", key);
        return base::failure(EINVAL);
    }
    window->shut();
    return window->free();
}

void MemoryWindow::free_shut(const MemoryRegion &region) {
    const base::Lock changing{changes};
    while (true) {
        MemoryWindow *window = nullptr;
        {
            const base::Lock lock{mutex};
            window = first_shut;
            while (window != nullptr && window->over_ != &region) {
                window = window->next_shut_;
            }
        }
        if (window == nullptr || !window->free()) {
            return;
        }
    }
}

void MemoryWindow::give_back(const Asker &peer, std::uint32_t key) {
    // The window is not freed while it is pinned.
    const auto pin = Memory::instance().pin_window(peer, key);
    if (pin && pin->region().window->type == IBV_MW_TYPE_2) {
        pin->region().window->shut();
    }
}

void MemoryWindow::shut() {
    const base::Lock lock{mutex};
    if (state_ == State::Bound) {
        state_ = State::Shut;
        next_shut_ = first_shut;
        first_shut = this;
        Memory::instance().shut(bound_);
    }
}

base::Result<void> MemoryWindow::free() {
    Memory::instance().close(bound_);
    if (!Offers::withdraw_region(bound_)) {
        return base::failure(EBUSY);
    }
    const base::Lock lock{mutex};
    if (state_ == State::Shut) {
        MemoryWindow **place = &first_shut;
        while (*place != this) {
            place = &(*place)->next_shut_;
        }
        *place = next_shut_;
        over_->windows.fetch_sub(1, std::memory_order_release);
        over_ = nullptr;
        state_ = State::Free;
        bound_.durable.reset();
    }
    return {};
}

}  // namespace soft
