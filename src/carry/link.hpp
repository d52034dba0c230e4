// SPDX-License-Identifier: BSD-3-Clause
// carry/link: the memory that the two ends of a TCP connection share when both are processes of one user on
// this host. Each direction of the connection has one sequence of bytes, which is cut into turns: turn 0 goes
// through TCP, turn 1 through the ring of this memory, turn 2 through TCP again, and so on. The sender
// decides where a turn begins, and publishes it before the first byte of that turn. The receiver reads each
// turn to its end, so the program gets the bytes in the order in which they were sent.
//
// During a turn in the ring the sender puts nothing into TCP but doorbells: single bytes that make the
// receiver's TCP socket readable, for a receiver that sleeps in the kernel. A doorbell is counted before it
// is sent, so the receiver knows how many of the bytes in TCP are doorbells, and drops them.
#pragma once

#include <netinet/in.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace carry {

// Names one connection on this machine: the same for both ends, whichever asks. Addresses of IPv4 are mapped
// into IPv6 (RFC 4291).
struct FourTuple {
    struct End {
        in6_addr address{};
        std::uint32_t scope = 0;
        std::uint32_t port = 0;
    };
    End ends[2];              // the smaller one first, as bytes
    std::uint64_t space = 0;  // of the namespaces of network (SO_NETNS_COOKIE) and of processes
    std::uint32_t side = 0;   // the place in `ends` of the end that asks; no part of the name
};

// The turn k begins at this offset in the sequence of bytes.
struct Turn {
    std::atomic<std::uint64_t> begin;
    std::atomic<std::uint64_t> doorbells;  // that the sender has counted before the turn
};

// The bytes of one end for the other. Counts only grow.
struct Direction {
    static constexpr std::uint64_t ring_bytes = std::uint64_t{256} << 10;
    static constexpr std::uint32_t most_turns = 64;
    // The receiver takes nothing that the sender puts from here on (a bit of `put`), or reads all that was
    // put without another doorbell (a bit of `doorbells`).
    static constexpr std::uint64_t refused = std::uint64_t{1} << 63;

    // The sender writes these.
    alignas(64) std::atomic<std::uint64_t> put;  // bytes that were put into the ring; and `refused`
    std::atomic<std::uint64_t> origin;           // the count of `put` that is at the ring's first place
    std::atomic<std::int64_t> filled_at;         // when bytes were put into the empty ring (base::Clock)
    std::atomic<std::uint64_t> doorbells;        // and `refused`
    std::atomic<std::uint32_t> turn;             // the present one; the odd ones are in the ring
    Turn turns[most_turns];                      // turn k is turns[k % most_turns]
    // The receiver writes these.
    alignas(64) std::atomic<std::uint64_t> taken;  // bytes that were taken out of the ring
    std::atomic<std::uint32_t> turns_read;         // the turn that the receiver reads
    std::atomic<std::uint32_t> sleepers;           // receivers that sleep, or are about to
    std::atomic<std::uint32_t> sleeps;             // that have begun; each is rung for once
    std::atomic<std::uint32_t> refuses;            // between hosts, where `put` is the sender's alone
    std::atomic<std::uint32_t> heard;              // messages of the sender's that this end's agent has seen
    // Processes may have copies of the receiver's Socket (Sockets::share_no_more). The first of them that
    // receives reads what the ring has; 0: none has yet.
    std::atomic<std::uint32_t> reader;
    std::atomic<std::uint32_t> copies;
    static constexpr std::uint32_t all_is_read = UINT32_MAX;
    alignas(4096) std::byte ring[ring_bytes];
};

struct Link {
    static constexpr std::uint64_t mark = 0x72706d612d637236;  // changes when the layout does
    // The end that made the link offers it; the other one joins; the first opens it, which proves to the
    // other that it still has the connection. No turn leaves TCP before that.
    enum State : std::uint32_t { Offered, Joined, Open };

    std::uint64_t marked;
    FourTuple connection;
    std::uint32_t maker;  // the side that made it
    std::atomic<std::uint32_t> state;
    // Between two hosts an end says before it closes what its kernel does: it resets the connection when the
    // program asks for that, or has not read all, or it may, because a message has the socket (SCM_RIGHTS);
    // or the program has shut it down before.
    enum Closed : std::uint32_t { NotClosed, Orderly, Resets, AfterShutdown };
    std::atomic<std::uint32_t> closed[2];  // by side
    std::atomic<std::uint32_t> leaves[2];  // by side: the end sends through TCP from here on
    // By side: the end is about to close or to shut down, or others may do it. The end of a connection
    // without it is that of a killed process, of whose ring the kernel does not know.
    std::atomic<std::uint32_t> ends[2];
    Direction directions[2];  // by the side of the sender
};

}  // namespace carry
