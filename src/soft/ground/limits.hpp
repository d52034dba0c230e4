// SPDX-License-Identifier: BSD-3-Clause
// soft/ground/limits: limits of the device. ibv_query_device and ibv_query_port report some. A limit that
// concerns one file is there.
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
inline constexpr int max_cqe = 1 << 24;  // of 20,000 streams with default queues
inline constexpr int max_srq = 65536;
inline constexpr int max_srq_wr = 65536;
// A queue that is asked for so many entries has at least one, and a power of two, as cards give; programs
// rely on the places beyond what they asked for. A request within a limit stays within it.
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
inline constexpr std::uint32_t max_message_bytes = UINT32_MAX;  // also the most that one flush names

// Datagrams. A message is one UDP datagram, which IP carries in pieces where it must; the port's MTU says how
// long it may be. Groups are on one UDP port, the same for all: who sends to one knows only its address.
inline constexpr std::size_t max_datagram_bytes = 4096;
inline constexpr int datagram_buffer_bytes = 4 << 20;  // of a socket; the kernel may give less
inline constexpr int datagrams_in_a_turn = 64;         // then others have theirs
inline constexpr std::uint16_t multicast_port = 14791;
inline constexpr int multicast_hops = 1;
inline constexpr int max_groups = 1024;
inline constexpr std::size_t max_groups_of_qp = 16;
// How often a service is asked for, and how many times before it counts as unreachable. Tests shorten the
// first.
inline std::chrono::milliseconds lookup_interval{500};
inline constexpr int lookup_attempts = 20;

inline constexpr std::size_t max_private_bytes = 196;  // as rdma_cm's RDMA_PS_TCP promises for an accept
inline constexpr int max_listen_backlog = 1024;
// Requests that a listener keeps until the program fetches them. Behind that the newest of the origin that
// has most is rejected. Tests shorten it.
inline int max_unfetched_requests = 1024;
// Start-ups that a listener has at once, and not more than a quarter of the descriptors that the process may
// have open. Behind that the oldest of the origin that has most gives way. Tests shorten it.
inline std::size_t max_handshakes = 1024;
inline constexpr int default_listen_backlog = 128;

// Wrong keys of the peers of one origin that cost it nothing but their connections; beyond them its requests
// wait, at the double for the longest delay. Tests change the first.
inline std::size_t wrong_keys_a_minute = 256;
inline constexpr std::chrono::milliseconds longest_guess_delay{1'000};
// And no request waits longer: those that would are dropped.
inline constexpr std::chrono::milliseconds longest_guess_wait{10'000};

// Sends that found no receive posted are kept up to this; then the stream stalls.
inline constexpr std::size_t max_unexpected_bytes = std::size_t{64} * 1024;
inline constexpr std::size_t max_unexpected_messages = 256;

// How long a peer may take for its start-up frame, and again for the first FPDU that it promised.
inline constexpr std::chrono::seconds handshake_timeout{10};
// And for the rest of a segment that it has begun: at least this, at most twice as long. Tests shorten it.
inline std::chrono::milliseconds segment_timeout{60'000};
// A message that is not whole takes a receive of a shared queue only when so much of it is here: to hold many
// receives costs as much.
inline constexpr std::size_t shared_message_bytes = 8192;
// And then it has to end, or to go on by a pace: at least this for each so many bytes, at most twice as long.
// Tests shorten it.
inline std::chrono::milliseconds shared_message_timeout{10'000};
inline constexpr std::size_t shared_message_pace_bytes = std::size_t{64} * 1024;
// How long the end of a stream waits for receives for the messages before it, since the last that found one.
// Tests shorten it.
inline std::chrono::milliseconds unclaimed_timeout{2'000};
// A peer that acknowledges nothing, or takes nothing, for so long is given up (TCP_USER_TIMEOUT).
inline constexpr std::chrono::seconds silence_timeout{60};
// How long a program that disconnects waits for the peer's end, and how long a slow peer may take to read why
// it ended. Bytes that TCP has by then go on behind its back, up to silence_timeout. Tests shorten the first.
inline std::chrono::milliseconds drain_timeout{2'000};
inline constexpr std::chrono::seconds last_words_timeout{10};
// How long the end of the process waits for a thread of the library.
inline constexpr std::chrono::seconds thread_timeout{1};

// Sockets whose owners are gone and whose peers have not read all; and not more than a quarter of the
// descriptors that the process may have open. Behind that the oldest of the origin that has most is reset.
// Tests shorten it.
inline std::size_t max_draining = 1024;

// The kernel may keep so much of what peers do not read, for the whole process and for one origin. A
// connection gets a part, between a least, which all get beyond that, and a most, which is what Linux keeps
// by itself (net.ipv4.tcp_wmem). Tests shorten them.
inline std::size_t unread_bytes_of_process = std::size_t{256} << 20;
inline std::size_t unread_bytes_of_origin = std::size_t{64} << 20;
inline constexpr std::size_t least_unread_bytes = std::size_t{64} << 10;
inline constexpr std::size_t most_unread_bytes = std::size_t{4} << 20;

// The share of the descriptors that the process may have open (RLIMIT_NOFILE), a quarter, that peers which a
// program has not accepted may take; those that it has ended may take another.
[[nodiscard]] std::size_t share_of_descriptors();

}  // namespace soft::limits
