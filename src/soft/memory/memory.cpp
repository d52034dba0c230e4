// SPDX-License-Identifier: BSD-3-Clause
#include "soft/memory/memory.hpp"

#include <cerrno>

#include "base/shared_value.hpp"
#include "soft/ground/limits.hpp"
#include "softrdma.h"

namespace soft {

// The upper bits of a key are its slot's number. A key from the key source is used when that slot is free.
struct Pin::Slot {
    std::atomic<std::uint32_t> key{0};  // 0: empty
    std::atomic<std::uint32_t> users{0};
    std::atomic<MemoryRegion *> region{nullptr};  // null: the slot is free
};

Pin::~Pin() {
    // Release makes all accesses through the pin come before erase() sees the last user leave.
    if (slot_ != nullptr && slot_->users.fetch_sub(1, std::memory_order_release) == 1) {
        slot_->users.notify_all();
    }
}

const MemoryRegion &Pin::region() const {
    return *slot_->region.load(std::memory_order_relaxed);  // the key was stored after it
}

Memory &Memory::instance() {
    static Memory &memory =
        *new Memory;  // never destroyed, because the engine may use it while the process ends
    return memory;
}

Pin::Slot *Memory::slot(std::uint32_t key) const {
    const std::uint32_t number = key >> key_bits_in_slot;
    // Acquire makes the initialised slots of a chunk visible.
    Pin::Slot *const chunk = chunks_[number / chunk_slots].load(std::memory_order_acquire);
    return chunk == nullptr ? nullptr : chunk + number % chunk_slots;
}

Pin::Slot &Memory::slot_for(std::uint32_t key) {
    auto &chunk = chunks_[(key >> key_bits_in_slot) / chunk_slots];
    if (chunk.load(std::memory_order_relaxed) == nullptr) {
        chunk.store(new Pin::Slot[chunk_slots], std::memory_order_release);
    }
    return *slot(key);
}

// Gives the region a slot that is free. At least half of the slots are, so it takes two keys on average.
std::uint32_t Memory::take_slot(MemoryRegion &region) {
    Pin::Slot *place = nullptr;
    std::uint32_t key = 0;
    do {
        key = keys_.next();
        place = key > last_of_nobody ? &slot_for(key) : nullptr;
    } while (place == nullptr || place->region.load(std::memory_order_relaxed) != nullptr);
    base::set_shared(place->region, &region);
    return key;
}

base::Result<void> Memory::insert(MemoryRegion &region) {
    const base::Lock lock{mutex};
    if (used_ == limits::max_mr) {
        return base::failure(ENOMEM);
    }
    region.lkey = region.rkey = take_slot(region);
    ++used_;
    region.registration = all_changes.fetch_add(1, std::memory_order_release) + 1;
    slot(region.lkey)->key.store(region.lkey, std::memory_order_seq_cst);
    return {};
}

void Memory::open(MemoryRegion &region, std::uint32_t key) {
    const base::Lock lock{mutex};
    region.lkey = region.rkey = key;
    region.registration = all_changes.fetch_add(1, std::memory_order_release) + 1;
    slot(key)->key.store(key, std::memory_order_seq_cst);
}

void Memory::change_key(MemoryRegion &region) {
    const base::Lock lock{mutex};
    const std::uint32_t key = take_slot(region);
    base::set_shared(slot(region.lkey)->region, nullptr);
    region.lkey = region.rkey = key;
}

// The order with pin() is sequentially consistent: either the pinning thread sees that the key is gone, or
// this thread sees that thread as a user.
void Memory::shut(const MemoryRegion &region) const {
    slot(region.lkey)->key.store(0, std::memory_order_seq_cst);
    all_changes.fetch_add(1, std::memory_order_release);
}

void Memory::close(const MemoryRegion &region) const {
    shut(region);
    const Pin::Slot &place = *slot(region.lkey);
    for (auto users = place.users.load(std::memory_order_seq_cst); users != 0;
         users = place.users.load(std::memory_order_seq_cst)) {
        place.users.wait(users, std::memory_order_seq_cst);
    }
}

void Memory::erase(const MemoryRegion &region) {
    close(region);
    const base::Lock lock{mutex};
    base::set_shared(slot(region.lkey)->region, nullptr);
    --used_;
}

void Memory::take_lock(std::uint64_t &seen) {
    const base::Lock lock{mutex};
    seen = all_changes.load(std::memory_order_relaxed);
}

// The threads that held pins exist only in the parent.
void Memory::after_fork_in_child() {
    mutex.assert_held();
    Memory &all = instance();
    all.keys_.renew();
    for (const auto &chunk : all.chunks_) {
        Pin::Slot *const slots = chunk.load(std::memory_order_relaxed);
        for (std::uint32_t i = 0; slots != nullptr && i < chunk_slots; ++i) {
            slots[i].users.store(0, std::memory_order_relaxed);
        }
    }
}

constinit base::LastingMutex Memory::mutex;
constinit std::atomic<std::uint64_t> Memory::all_changes{0};

const Memory::Held Memory::held_while_forking{base::ForkLevel::SoftMemory};

namespace {

// Returns whether a peer of `by`, which is another domain than the region's, reaches the region.
[[gnu::cold]] bool reaches(const ibv_pd *by, const ibv_pd &domain) {
    const DomainSet *const domains =
        by != nullptr ? static_cast<const ProtectionDomain *>(by)->of_xrc : nullptr;
    return domains != nullptr && domains->contains(domain);
}

// This is initialized when the library is loaded, so that no fork comes before it.
[[maybe_unused]] const Memory &made_when_loaded = Memory::instance();

}  // namespace

void DomainSet::add(const ibv_pd &domain) {
    const base::Lock lock{mutex_};
    domains_.push_back(&domain);
}

void DomainSet::remove(const ibv_pd &domain) {
    const base::Lock lock{mutex_};
    domains_.erase(std::ranges::find(domains_, &domain));
}

bool DomainSet::contains(const ibv_pd &domain) const {
    const base::Lock lock{mutex_};
    return std::ranges::find(domains_, &domain) != domains_.end();
}

[[gnu::always_inline]] inline std::expected<Pin, Fault> Memory::hold(const Asker &by,
                                                                     std::uint32_t key) const {
    Pin::Slot *const place = slot(key);
    if (place == nullptr || key == 0) {
        return std::unexpected{Fault::InvalidKey};
    }
    place->users.fetch_add(1, std::memory_order_seq_cst);
    Pin pin{place};
    if (place->key.load(std::memory_order_seq_cst) != key) {
        return std::unexpected{Fault::InvalidKey};
    }
    const MemoryRegion &region = pin.region();
    if (region.domain != by.pd && !reaches(by.pd, *region.domain)) {
        return std::unexpected{Fault::ProtectionDomain};
    }
    if (region.queue_pair != 0 && by.queue_pair != 0 && region.queue_pair != by.queue_pair) {
        return std::unexpected{Fault::QueuePair};
    }
    return pin;
}

[[gnu::hot]] std::expected<Pin, Fault> Memory::pin(const Access &access) {
    auto pin = hold(access.by, access.key);
    if (!pin) {
        return pin;
    }
    const MemoryRegion &region = pin->region();
    if ((region.access & access.rights) != access.rights) {
        return std::unexpected{Fault::Access};
    }
    if (access.address + access.length < access.address) {
        return std::unexpected{Fault::Wrap};
    }
    if (!region.contains(access.address, access.length)) {
        return std::unexpected{Fault::Bounds};
    }
    return pin;
}

std::optional<Pin> Memory::pin_window(const Asker &by, std::uint32_t key) const {
    auto pin = hold(by, key);
    return pin && pin->region().window != nullptr ? std::optional{std::move(*pin)} : std::nullopt;
}

std::optional<std::uint64_t> Memory::registration_for(const Asker &peer, std::uint32_t key) const {
    constexpr unsigned of_peers = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                  IBV_ACCESS_REMOTE_ATOMIC | SOFTRDMA_ACCESS_FLUSH_GLOBAL |
                                  SOFTRDMA_ACCESS_FLUSH_PERSISTENT;
    const auto pin = hold(peer, key);
    if (!pin || (pin->region().access & of_peers) == 0) {
        return std::nullopt;
    }
    return pin->region().registration;
}

namespace {

// DDP has no access rights, so a write without the right has RDMAP's code (RFC 5040 section 7.2). The code
// does not tell whether another connection has the key, so a peer that guesses keys learns nothing from a
// refusal.
constexpr struct {  // the entries are in the order of Fault
    const char *text;
    wire::TerminateCode of_reads;
    wire::TerminateCode of_writes;
} faults[] = {
    {"no region has this key", wire::terminate::invalid_stag, wire::terminate::tagged_invalid_stag},
    {"outside of the region", wire::terminate::bounds, wire::terminate::tagged_bounds},
    {"the region was not registered for this access", wire::terminate::access, wire::terminate::access},
    {"the region belongs to another protection domain", wire::terminate::invalid_stag,
     wire::terminate::tagged_invalid_stag},
    {"the region was registered for another connection", wire::terminate::invalid_stag,
     wire::terminate::tagged_invalid_stag},
    {"the queue pair does not grant this access (qp_access_flags)", wire::terminate::access,
     wire::terminate::access},
    {"the range wraps around the address space", wire::terminate::wrap, wire::terminate::tagged_wrap}};

}  // namespace

const char *text_of(Fault fault) {
    return faults[std::to_underlying(fault)].text;
}

wire::TerminateCode rdmap_code(Fault fault) {
    return faults[std::to_underlying(fault)].of_reads;
}

wire::TerminateCode tagged_code(Fault fault) {
    return faults[std::to_underlying(fault)].of_writes;
}

}  // namespace soft
