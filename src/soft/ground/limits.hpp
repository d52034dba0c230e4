// SPDX-License-Identifier: BSD-3-Clause
// soft/ground/limits: limits of the device. ibv_query_device and ibv_query_port report some. A limit that
// concerns one file only is in that file. A limit that a unit test has to change is in InForce.
#pragma once

#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "softrdma.h"

namespace soft::limits {

inline constexpr int max_qp = 65536;
inline constexpr int max_qp_wr = 16384;
inline constexpr int max_sge = 6;
inline constexpr int max_sge_rd = 1;  // a READ has one sink on this wire (RFC 5040 section 4.4)
inline constexpr int max_inline_data = SOFTRDMA_MAX_INLINE_SIZE;
inline constexpr int max_cq = 65536;
inline constexpr int max_cqe = 1 << 24;  // enough for 20,000 streams with default queues
inline constexpr int max_srq = 65536;
inline constexpr int max_srq_wr = 65536;
// Returns how many entries a queue gets when a program asks for `asked`: a power of two, at least one, as
// cards give. Programs rely on the additional entries. A number within a limit stays within it.
[[nodiscard]] constexpr std::uint32_t granted_entries(std::uint32_t asked) {
    return std::bit_ceil(asked);
}
static_assert(granted_entries(max_qp_wr) == max_qp_wr && granted_entries(max_cqe) == max_cqe &&
              granted_entries(max_srq_wr) == max_srq_wr);

inline constexpr int max_mr = 65535;  // at most half of the slots (memory)
inline constexpr int max_pd = 65536;
inline constexpr int max_ah = 65536;
inline constexpr std::uint8_t max_rd_atomic =
    64;  // reads, flushes and atomic operations that a queue pair serves or has open at once
inline constexpr std::uint32_t max_message_bytes = UINT32_MAX;  // also the longest range of one flush

// Datagrams. A message is one UDP datagram, which IP fragments if necessary; the port's MTU says how long it
// may be. All groups use the same UDP port, because a sender knows only the address of a group.
inline constexpr std::size_t max_datagram_bytes = 4096;
inline constexpr int datagram_buffer_bytes = 4 << 20;  // for each socket; the kernel may give less
inline constexpr int datagrams_in_a_turn = 64;         // then other queue pairs have their turn
inline constexpr std::uint16_t multicast_port = 14791;
inline constexpr int multicast_hops = 1;
inline constexpr int max_groups = 1024;
inline constexpr std::size_t max_groups_of_qp = 16;
// The number of requests, one each InForce::lookup_interval, after which a service counts as unreachable.
inline constexpr int lookup_attempts = 20;

inline constexpr std::size_t max_private_bytes = 196;  // as rdma_cm's RDMA_PS_TCP promises for an accept
inline constexpr int max_listen_backlog = 1024;
inline constexpr int default_listen_backlog = 128;

// The requests of an origin whose peers guess keys wait, at most for this time
// (InForce::wrong_keys_a_minute).
inline constexpr std::chrono::milliseconds longest_guess_delay{1'000};
// A request that would wait longer than this is dropped.
inline constexpr std::chrono::milliseconds longest_guess_wait{10'000};

// Sends without a posted receive are kept up to this limit; then the stream stalls.
inline constexpr std::size_t max_unexpected_bytes = std::size_t{64} * 1024;
inline constexpr std::size_t max_unexpected_messages = 256;

// The time that a peer has for its start-up frame, and again for the first FPDU that it promised.
inline constexpr std::chrono::seconds handshake_timeout{10};
// A message that is not complete takes a receive of a shared queue only when this many bytes of it have come.
// So a peer has to send as much for each receive that it holds.
inline constexpr std::size_t shared_message_bytes = 8192;
// After that the message has to end, or to continue at a pace: this many bytes within
// InForce::shared_message_timeout.
inline constexpr std::size_t shared_message_pace_bytes = std::size_t{64} * 1024;
// The connection ends when a peer acknowledges nothing, or takes nothing, for this long (TCP_USER_TIMEOUT).
inline constexpr std::chrono::seconds silence_timeout{60};
// The time that a slow peer has to read the reason of an end. TCP still sends the bytes that it has by then,
// up to silence_timeout.
inline constexpr std::chrono::seconds last_words_timeout{10};
// The number of bytes of answers after which no further segment of them precedes a TERMINATE. They are
// copied.
inline constexpr std::size_t most_last_answer_bytes = std::size_t{1} << 20;
// The number of bytes that this process maps of the regions of peers on this host. Beyond that the kernel
// copies between the processes.
inline constexpr std::uint64_t most_peer_bytes = std::uint64_t{1} << 40;
// The time that the end of the process waits for a thread of the library.
inline constexpr std::chrono::seconds thread_timeout{1};

// The least and the most that a connection gets of InForce::unread_bytes_of_process. The most is Linux's own
// (net.ipv4.tcp_wmem).
inline constexpr std::size_t least_unread_bytes = std::size_t{64} << 10;
inline constexpr std::size_t most_unread_bytes = std::size_t{4} << 20;

// Limits that the library reads through in_force(). The library returns these values, which are constant. A
// unit test that would need minutes, or thousands of peers, links tests/limits.cpp. The linker then takes the
// in_force() of that file in place of the library's, and the test can change the values.
struct InForce {
    // The interval at which a device asks for a service.
    std::chrono::milliseconds lookup_interval{500};

    // The least time that the peer of a queue pair by number has to answer, whatever its program has set.
    std::chrono::milliseconds least_time_to_answer{5'000};

    // The number of requests that a listener keeps until the program fetches them. Beyond that the newest of
    // the origin that has most is rejected.
    int max_unfetched_requests = 1024;
    // The number of start-ups that a listener has at once; it also has at most share_of_descriptors(). Beyond
    // that the oldest of the origin that has most is dropped.
    std::size_t max_handshakes = 1024;
    // The number of wrong keys for which the peers of one origin lose only their connections. Beyond it the
    // origin's requests wait, and at twice this number for longest_guess_delay.
    std::size_t wrong_keys_a_minute = 256;

    // The time that a peer has for the rest of a segment that it has begun: at least this, at most twice as
    // long.
    std::chrono::milliseconds segment_timeout{60'000};
    // The time that a message with a receive of a shared queue has for each shared_message_pace_bytes bytes:
    // at least this, at most twice as long.
    std::chrono::milliseconds shared_message_timeout{10'000};
    // The time that the end of a stream waits for receives for the messages before it, since the last message
    // that found one.
    std::chrono::milliseconds unclaimed_timeout{2'000};
    // The time that a program that disconnects waits for the peer's end. TCP still sends the bytes that it
    // has by then, up to silence_timeout.
    std::chrono::milliseconds drain_timeout{2'000};

    // The time that deregistering memory waits for a peer on this host that accesses it itself, and then
    // fails. The peer copies 1 MiB at a time, so only one whose system call waits takes as long.
    std::chrono::milliseconds access_timeout{1'000};
    // The number of regions of peers on this host for which this process looks for a file at once, found or
    // not. Beyond that the kernel copies between the processes.
    std::size_t most_peer_searches = 1024;
    // The number of sockets whose owners are gone and whose peers have not read everything; there are also at
    // most share_of_descriptors(). Beyond that the oldest of the origin that has most is reset.
    std::size_t max_draining = 1024;
    // The number of bytes that the kernel may keep for peers that do not read, for the whole process and for
    // one origin. A connection gets a part, which is at least least_unread_bytes also beyond these limits.
    std::size_t unread_bytes_of_process = std::size_t{256} << 20;
    std::size_t unread_bytes_of_origin = std::size_t{64} << 20;
};
[[nodiscard]] const InForce &in_force();

// Returns a quarter of the descriptors that the process may have open (RLIMIT_NOFILE). Peers that the program
// has not accepted may take so many, and peers whose connections it has ended may take as many again.
[[nodiscard]] std::size_t share_of_descriptors();

}  // namespace soft::limits
