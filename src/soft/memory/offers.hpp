// SPDX-License-Identifier: BSD-3-Clause
// soft/memory/offers: the regions that the peer of one connection may access itself, because it is a process
// of this host. A region is offered when the peer has accessed it once in the ordinary way. An offer is
// withdrawn when the region is deregistered, when the peer loses a right to it, and at the connection's end.
// No access begins then. One that is under way has a second to end; when it has not, the region cannot be
// deregistered until it has.
//
// The kernel lets a process access the memory of another one of its user, unless ptrace is restricted
// (process_vm_writev(2)). So an offer gives no process a right that it had not. It tells a device that
// follows the rules what its program may reach.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/clock.hpp"
#include "base/fork.hpp"
#include "base/mutex.hpp"
#include "soft/memory/board.hpp"
#include "soft/memory/durability.hpp"
#include "soft/memory/memory.hpp"

namespace soft {

// A child of fork(2) withdraws nothing, because the boards are its parent's.
class Offers : private base::Inheritable {
public:
    Offers() = default;
    Offers(const Offers &) = delete;
    Offers &operator=(const Offers &) = delete;
    ~Offers() { end(); }

    // Begins a connection. The boards stay mapped, and the TCP socket to the peer stays open, until end().
    // `thread` is the number of a thread of this process that lasts as long as the connection; 0 while there
    // is none. `process` is the peer's.
    void begin(const Boards &boards, const std::atomic<pid_t> &thread, int socket, pid_t process);
    // Withdraws all offers.
    void end() EXCLUDES(mutex);

    // Offers a region that the caller has pinned, without the rights that are withheld now. A thread that
    // changes these calls withdraw_all() afterwards. Does nothing when the region is offered already, or when
    // there are Board::most_offers.
    void offer(const MemoryRegion &region, const std::atomic<unsigned> &withheld) EXCLUDES(mutex) {
        if (boards_.own != nullptr && region.rkey != last_offered_.load(std::memory_order_relaxed)) {
            offer_now(region, withheld);
        }
    }
    // Withdraws the offer of a key, or all of them.
    void withdraw(std::uint32_t key) EXCLUDES(mutex);
    void withdraw_all() EXCLUDES(mutex);
    // Withdraws what is offered of a region, by any connection. The region has no key in Memory any more, so
    // no offer of it follows. Returns false while an access to it may still be under way; then a later call
    // looks again.
    [[nodiscard]] static bool withdraw_region(const MemoryRegion &region) EXCLUDES(mutex);

    // Notes the ranges that the peer has written itself, and has not asked to make durable since.
    void note_written(Durability &durability) EXCLUDES(mutex);

private:
    struct Place {
        // Withdrawn: a thread waits for the end of the last access. Left: no thread waits for that any more,
        // and the number is free for another offer.
        enum class State : std::uint8_t { Offered, Withdrawn, Left };
        Offers *offers;  // null after the connection's end
        std::size_t number;
        State state = State::Offered;
        // These are of an offer that was withdrawn: the peer, and the access that was seen last.
        pid_t process = 0;
        Board::Access access{};
    };
    using All = std::multimap<const MemoryRegion *, Place>;
    // The region of an offer on the own board.
    struct Offered {
        const MemoryRegion *region = nullptr;
        std::shared_ptr<persist::Region> durable;
        All::iterator among_all;
    };
    // A range of a region that is not offered any more.
    struct Left {
        std::shared_ptr<persist::Region> durable;
        std::byte *begin;
        std::byte *end;
    };

    void offer_now(const MemoryRegion &region, const std::atomic<unsigned> &withheld) EXCLUDES(mutex);
    template <typename Is>
    void withdraw_those(Is is) EXCLUDES(mutex);
    [[nodiscard]] static All &all_offers() REQUIRES(mutex);
    class Looks;
    static void take_away(Place &place) REQUIRES(mutex);
    [[nodiscard]] static bool let_go(All::iterator place, const Looks &looks) REQUIRES(mutex);
    [[nodiscard]] bool peer_is_gone() const REQUIRES(mutex);
    [[nodiscard]] static bool has_ended(Place &place, bool asks_kernel) REQUIRES(mutex);
    void keep_written(std::size_t number) REQUIRES(mutex);
    [[nodiscard]] bool take_written(std::size_t number, Left &range) const REQUIRES(mutex);

    static base::LastingMutex mutex;
    using Held = base::HeldWhileForking<mutex>;
    static const Held held_while_forking;

    Boards boards_;  // changed with the group's lock
    const std::atomic<pid_t> *thread_ = nullptr;
    int socket_ GUARDED_BY(mutex) = -1;
    pid_t process_ GUARDED_BY(mutex) = 0;
    bool has_left_ GUARDED_BY(mutex) = false;     // all_offers() may have such places of this connection
    std::atomic<std::uint32_t> last_offered_{0};  // a key for which offer() has nothing to do
    std::array<Offered, Board::most_offers> offered_ GUARDED_BY(mutex);
    std::vector<Left> left_ GUARDED_BY(mutex);
};

}  // namespace soft
