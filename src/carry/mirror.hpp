// SPDX-License-Identifier: BSD-3-Clause
// carry/mirror: a link between two hosts. Each end has a copy of the Link, and an RDMA device writes to the
// peer's copy what this end changes in its own: the bytes of its ring, then its counts (decision 32). The
// device is another library's (src/carry_device), which a process loads that uses one.
//
//      program ── send ──► Out ── copy of the ring ── RDMA writes, in order ──► the peer's copy ──► In
//
// A copy may be late, and so may the bytes in TCP. So these rules hold beside those of a link in memory:
// 1. A byte goes into TCP only when the receiver's copy is known to have the present turn in the ring: the
//    device has said so (settles_turn()). Else the receiver would take it for a byte of the turn before.
// 2. A receiver in a turn in the ring drops no byte of TCP that its copy does not explain. It waits: the
// count
//    of doorbells, or the next turn, is on its way.
// 3. A receiver that is about to sleep says so in the copies, and tells the peer (tells) with a message that
//    the peer's agent answers, a thread of the device. A sender puts first and reads the sleepers then; the
//    agent reads them first, and what was put then. So one of the two rings.
// 4. An end that TCP shows is one when the peer's copy cannot change any more: the peer has said that it
// ends,
//    or has left the link, or the device has lost it.
#pragma once

#include <cstdint>

#include "base/clock.hpp"
#include "carry/first_bytes.hpp"
#include "carry/link.hpp"

namespace carry {

class Socket;

// One process has it. Any number of threads may call; none of the calls waits for the peer's program.
class Mirror {
public:
    Mirror() = default;
    Mirror(const Mirror &) = delete;
    Mirror &operator=(const Mirror &) = delete;
    virtual ~Mirror() = default;

    [[nodiscard]] virtual Link &link() = 0;
    // Writes what this end has changed to the peer's copy. What finds no room in the queue follows later.
    virtual void push() = 0;
    // The same, and has the peer's agent look at its copy after it.
    virtual void push_and_tell() = 0;
    // Waits until the peer's copy has the turns that were pushed. Returns false when the peer is lost.
    virtual bool settles_turn() = 0;
    // Returns whether it has them, after a short time at most. If not, the agent calls Answers::told later.
    [[nodiscard]] virtual bool has_settled_turn() = 0;
    // The device has lost the peer, and nothing has taken its place yet.
    [[nodiscard]] virtual bool is_cut_off() = 0;
    // Nothing that either end pushes from here on arrives.
    [[nodiscard]] virtual bool is_lost() const = 0;
    // The device has lost the peer, and what is pushed goes another way: the connection goes back to TCP.
    [[nodiscard]] virtual bool wants_back() const = 0;
};

// A library that has an RDMA device. Connections are named by the place of their Socket.
class MirrorDevice {
public:
    MirrorDevice() = default;
    MirrorDevice(const MirrorDevice &) = delete;
    MirrorDevice &operator=(const MirrorDevice &) = delete;
    virtual ~MirrorDevice() = default;

    // Looks for the other end, in the background, and once more when it was not found for some time. The end
    // of side 0 is asked, that of side 1 asks. Both prove by the beginning that they have the connection; it
    // may grow meanwhile.
    virtual void look_for(std::uint32_t place, const FourTuple &connection, const BeginningOf &beginning) = 0;
    // Returns the mirror that was made, or nullptr.
    [[nodiscard]] virtual Mirror *found(std::uint32_t place) = 0;
    // The same; the caller has it from here on, and retires it.
    [[nodiscard]] virtual Mirror *take(std::uint32_t place) = 0;
    // This end's program will not take the mirror. The other end may have taken its own, and leaves it.
    virtual void decline(std::uint32_t place) = 0;
    // Nobody uses what was looked for.
    virtual void forget(std::uint32_t place) = 0;
    // The mirror ends when the peer has what was pushed; then the memory of its link is unmapped.
    virtual void retire(Mirror &mirror) = 0;
    // Waits until the device has sent what was pushed, or until this time: the process is about to end, or to
    // fork.
    virtual void drain(base::Clock::time_point until) = 0;
    // A forked child has none of its parent's mirrors.
    virtual void forget_all_in_child() = 0;
    // The child has given up its user: it has no memory of the parent's mirrors in common with that any more.
    // Returns false without memory.
    [[nodiscard]] virtual bool share_no_more() = 0;
};

// The agent calls these for a mirror: `told` for a message, `lost` when the peer is lost. Neither waits for a
// lock that a thread may hold while it waits for the agent.
struct Answers {
    // Returns false when a thread of the program is sending. Then the agent calls again.
    bool (*told)(std::uint32_t place, Mirror &mirror);
    // Returns whether the connection is settled. Otherwise the agent asks again, and says when it did so
    // often.
    bool (*lost)(std::uint32_t place, Mirror &mirror, bool is_last);
    // The other end is found: the program's next use of the connection looks at it.
    void (*found)(std::uint32_t place);
    // Returns whether a host may be asked for connections over the device, and may ask.
    bool (*is_peer)(const in6_addr &address);
};

namespace mirrors {

// Returns the device that a connection's other end may be asked for on, or nullptr. RPMA_CARRY_PEERS has the
// kind of the device (soft or kernel) for other hosts in the networks of /etc/rdma/rsocket/peers.
// RPMA_CARRY_DEVICE has it for all connections, for tests.
[[nodiscard]] MirrorDevice *device_for(const FourTuple &connection);
// Returns that device, once there is one.
[[nodiscard]] MirrorDevice *device();
// Returns the beginning of a Socket's connection; nullptr where no device is wanted.
[[nodiscard]] BeginningOf *beginning_of(const Socket &socket);
// The mirror of a Socket that has one, in the process that has it; else nullptr.
[[nodiscard]] Mirror *of(const Socket &socket);
// Changes it; the one before ends.
void set(const Socket &socket, Mirror *mirror);
// Waits until the peers get all that was pushed, whatever this process does next; a second at most.
void drain();
// The process has given up its user: the beginnings of its own Sockets are its own from here on, and it has
// no others. Places up to `used` have been Sockets'. Returns false without memory.
[[nodiscard]] bool share_no_more(std::uint32_t used);

}  // namespace mirrors

}  // namespace carry
