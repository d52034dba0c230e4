// SPDX-License-Identifier: BSD-3-Clause
// soft/memory/window: memory windows. A window is a key with bounds and rights of its own over a region. It
// is in the table of regions, so an access through it is checked as any other.
//
//     Free ──bind()──► Bound ──invalidate(), give_back(), a new bind()──► Shut ──free()──► Free
//
// No access begins through a window that is shut. It is free when none is under way. A peer that gives a key
// back only shuts the window; a call of the program frees it.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "base/fork.hpp"
#include "base/result.hpp"
#include "soft/memory/memory.hpp"

namespace soft {

// Each call of a program changes windows under one lock of the process, and waits for accesses under way;
// dealloc() waits for them without it. The caller has no other lock. A child of fork(2) only deallocates
// windows that it inherited.
class MemoryWindow final : public ibv_mw, public base::Inheritable {
public:
    [[nodiscard]] static base::Result<MemoryWindow *> alloc(ibv_pd &pd, ibv_mw_type type) EXCLUDES(changes);
    // Fails with EBUSY while an access of a peer on this host may be under way.
    [[nodiscard]] static base::Result<void> dealloc(MemoryWindow *window) EXCLUDES(changes);

    // Binds the window for a queue pair (`by`). One of type 1 gets a new key, is bound to the peers of all
    // queue pairs of the domain, and may be bound already; without bytes it becomes free. One of type 2
    // gets `key`, whose upper 24 bits are those of its last one, and only the queue pair's peer reaches it.
    // Fails with EINVAL, logged, when it cannot be bound so, and with EBUSY as dealloc().
    [[nodiscard]] base::Result<void> bind(const Asker &by, const ibv_mw_bind_info &info, std::uint32_t key)
        EXCLUDES(changes);
    // Frees the window of type 2 that has the key and is bound for the queue pair. When it returns, no access
    // through the key is under way or follows. Fails with EINVAL when there is no such window, and with EBUSY
    // as dealloc(); then no access follows either.
    [[nodiscard]] static base::Result<void> invalidate(const Asker &by, std::uint32_t key) EXCLUDES(changes);
    // Frees the windows over a region that are shut.
    static void free_shut(const MemoryRegion &region) EXCLUDES(changes);

    // The peer of the queue pair gives a key back: no access through it follows. Does nothing when that is
    // none of a window of type 2. It only takes a short lock.
    static void give_back(const Asker &peer, std::uint32_t key) EXCLUDES(mutex);

private:
    enum class State : std::uint8_t { Free, Bound, Shut };

    MemoryWindow(ibv_pd &domain, ibv_mw_type its_type);
    [[nodiscard]] const char *why_not(const Asker &by, const ibv_mw_bind_info &info, std::uint32_t key) const
        REQUIRES(mutex);
    void shut() EXCLUDES(mutex);
    [[nodiscard]] base::Result<void> free() REQUIRES(changes);

    static base::LastingMutex changes;  // taken before all locks of the rooms below
    static base::LastingMutex mutex;    // taken last
    using ChangesHeld = base::HeldWhileForking<changes>;
    using Held = base::HeldWhileForking<mutex>;
    static const ChangesHeld changes_held_while_forking;
    static const Held held_while_forking;

    MemoryRegion bound_;  // in the table from alloc() to dealloc(), with a key while the window is bound
    MemoryRegion *over_ GUARDED_BY(mutex) = nullptr;  // null: free
    State state_ GUARDED_BY(mutex) = State::Free;
    MemoryWindow *next_shut_ GUARDED_BY(mutex) = nullptr;
    static MemoryWindow *first_shut GUARDED_BY(mutex);
};

}  // namespace soft
