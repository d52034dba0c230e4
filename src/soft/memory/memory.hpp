// SPDX-License-Identifier: BSD-3-Clause
// soft/memory/memory: protection domains, memory regions and their keys (STags). Every access of a peer goes
// through Memory::pin().
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <expected>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/fork.hpp"
#include "base/mutex.hpp"
#include "base/result.hpp"
#include "persist/region.hpp"
#include "soft/memory/key_source.hpp"
#include "soft/wire/violation.hpp"

namespace soft {

// The protection domains whose memory the peers of an XRC domain reach. Any thread may call it.
class DomainSet {
public:
    // Adds a domain as often as it is called. Throws std::bad_alloc.
    void add(const ibv_pd &domain) EXCLUDES(mutex_);
    void remove(const ibv_pd &domain) EXCLUDES(mutex_);
    [[nodiscard]] bool contains(const ibv_pd &domain) const EXCLUDES(mutex_);

private:
    mutable base::Mutex mutex_;  // no other lock is taken with it
    std::vector<const ibv_pd *> domains_ GUARDED_BY(mutex_);
};

struct ProtectionDomain : ibv_pd {
    std::atomic<int> users{0};  // regions, queue pairs, shared receive queues, parent domains
    // A parent domain has the protection domain that it stands for, and a thread domain, or null.
    ProtectionDomain *inner = nullptr;
    ibv_td *thread_domain = nullptr;
    const DomainSet *of_xrc = nullptr;  // an XRC domain's own has it, and no regions
};
// Returns the protection domain that decides about keys: that of a parent domain, or else itself.
[[nodiscard]] inline const ibv_pd &domain_of(const ibv_pd &pd) {
    const auto &domain = static_cast<const ProtectionDomain &>(pd);
    return domain.inner != nullptr ? *domain.inner : domain;
}

class MemoryWindow;

struct MemoryRegion : ibv_mr, base::Inheritable {
    const ibv_pd *domain = nullptr;  // domain_of(*pd)
    unsigned access = 0;
    std::uint64_t registration = 0;  // no other registration ever has this number
    std::uint64_t queue_pair =
        0;                   // only this one's peer reaches the region (AnyQueuePair::creation); 0: all peers
    std::uint64_t iova = 0;  // the address that peers and scatter lists use for `addr`
    // Is set when registered for persistent flush. Connections with writes that are not durable yet share it.
    std::shared_ptr<persist::Region> durable;
    mutable std::atomic<bool> offered{false};  // a peer on this host may have accessed it itself (Offers)
    std::atomic<int> windows{0};               // that are bound to it
    MemoryWindow *window = nullptr;            // whose part of another region this is
    std::atomic<int> *holds = nullptr;         // counts the regions of the device memory that this one is in

    [[nodiscard]] bool contains(std::uint64_t address, std::uint64_t bytes) const {
        const std::uint64_t offset = address - iova;
        return address >= iova && offset <= length && bytes <= length - offset;
    }
    [[nodiscard]] std::byte *at(std::uint64_t address) const {
        // A number, because a region of the whole address space begins at null.
        // NOLINTNEXTLINE(performance-no-int-to-ptr)
        return reinterpret_cast<std::byte *>(reinterpret_cast<std::uintptr_t>(addr) + (address - iova));
    }
};

// The reason why an access is refused. The functions give its text, and its codes in RFC 5040 and 5041.
enum class Fault { InvalidKey, Bounds, Access, ProtectionDomain, QueuePair, QueuePairAccess, Wrap };
[[nodiscard]] const char *text_of(Fault fault);
[[nodiscard]] wire::TerminateCode rdmap_code(Fault fault);   // for requests
[[nodiscard]] wire::TerminateCode tagged_code(Fault fault);  // for writes

// The peer of a queue pair (AnyQueuePair::creation), or the program itself, which reaches its whole
// protection domain.
struct Asker {
    const ibv_pd *pd;              // domain_of() that of the queue pair
    std::uint64_t queue_pair = 0;  // 0: the program
};

// The properties of an access.
struct Access {
    Asker by;
    std::uint32_t key;
    std::uint64_t address;
    std::uint64_t length;
    unsigned rights;  // IBV_ACCESS_ and SOFTRDMA_ACCESS_ bits, which are all needed; 0 for local reading
};

// A region that cannot be deregistered while this lives.
class Pin {
public:
    Pin() = default;
    Pin(Pin &&other) noexcept : slot_{std::exchange(other.slot_, nullptr)} {}
    Pin &operator=(Pin &&other) noexcept {
        std::swap(slot_, other.slot_);
        return *this;
    }
    Pin(const Pin &) = delete;
    Pin &operator=(const Pin &) = delete;
    ~Pin();

    [[nodiscard]] const MemoryRegion &region() const;

private:
    friend class Memory;
    struct Slot;
    explicit Pin(Slot *slot) : slot_{slot} {}

    Slot *slot_ = nullptr;
};

// The table of all regions of the process. Pinning takes no lock, but for a peer of an XRC domain.
class Memory {
public:
    static Memory &instance();

    // Gives the region its key, and puts it into the table. Fails with ENOMEM when limits::max_mr are
    // registered.
    [[nodiscard]] base::Result<void> insert(MemoryRegion &region) EXCLUDES(mutex);
    // Gives a region that is closed a key, which is in the same slot as its last one: it has the same upper
    // bits (key_bits_in_slot).
    void open(MemoryRegion &region, std::uint32_t key) EXCLUDES(mutex);
    // Gives a region that is closed another key, and leaves it closed. Throws std::bad_alloc; then nothing
    // has changed.
    void change_key(MemoryRegion &region) EXCLUDES(mutex);
    // Takes the region's key away: no access to it begins. It may be called again.
    void shut(const MemoryRegion &region) const;
    // Does the same, and returns when this process has no access to the region under way and none
    // can begin.
    void close(const MemoryRegion &region) const;
    // Takes a region out of the table, and closes it before.
    void erase(const MemoryRegion &region) EXCLUDES(mutex);

    [[nodiscard]] std::expected<Pin, Fault> pin(const Access &access);
    // Pins what a window with this key is bound to; nothing when the key is of no window that the asker
    // reaches.
    [[nodiscard]] std::optional<Pin> pin_window(const Asker &by, std::uint32_t key) const;

    // Returns a number that is another one as soon as a key begins or ceases to name a region.
    [[nodiscard]] static std::uint64_t changes() { return all_changes.load(std::memory_order_acquire); }

    // Is called for the peer of a connection, to which `seen` belongs. Takes insert()'s lock when keys have
    // changed since the last call. The key already orders a registration before each access, but
    // Valgrind's race detectors see that order only by the lock.
    void see_registrations(std::uint64_t &seen) {
        if (all_changes.load(std::memory_order_relaxed) != seen) {
            take_lock(seen);
        }
    }

    // Returns the registration of the region that has the key now, if this peer has any right to it.
    [[nodiscard]] std::optional<std::uint64_t> registration_for(const Asker &peer, std::uint32_t key) const;

private:
    static constexpr unsigned key_bits_in_slot = 15;
    static constexpr std::uint32_t chunk_slots = 64;
    static constexpr std::uint32_t chunks = (std::uint32_t{1} << (32 - key_bits_in_slot)) / chunk_slots;
    static constexpr std::uint32_t last_of_nobody = 0xffff;  // 0, 1, and what siw gives its first regions

    [[nodiscard]] Pin::Slot *slot(std::uint32_t key) const;
    [[nodiscard]] Pin::Slot &slot_for(std::uint32_t key) REQUIRES(mutex);
    [[nodiscard]] std::uint32_t take_slot(MemoryRegion &region) REQUIRES(mutex);
    [[nodiscard]] std::expected<Pin, Fault> hold(const Asker &by, std::uint32_t key) const;
    void take_lock(std::uint64_t &seen) EXCLUDES(mutex);
    static void after_fork_in_child();

    static base::LastingMutex mutex;
    using Held = base::HeldWhileForking<mutex, after_fork_in_child>;
    static const Held held_while_forking;
    KeySource keys_ GUARDED_BY(mutex);
    int used_ GUARDED_BY(mutex) = 0;
    static std::atomic<std::uint64_t> all_changes;
    std::atomic<Pin::Slot *> chunks_[chunks] = {};
};

}  // namespace soft
