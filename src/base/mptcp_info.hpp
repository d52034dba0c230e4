// SPDX-License-Identifier: BSD-3-Clause
// base/mptcp_info: the kernel's mptcp_info, which tells of a connection of MPTCP. The <linux/mptcp.h> of an
// older kernel ends earlier.
#pragma once

#include <cstdint>

namespace base {

struct MptcpInfo {
    static constexpr std::uint32_t is_plain = 1;  // of `flags`: the peer has no MPTCP

    std::uint8_t subflows;
    std::uint8_t announced;
    std::uint8_t accepted;
    std::uint8_t most_subflows;
    std::uint8_t endpoints_to_announce;
    std::uint8_t most_accepted;
    std::uint32_t flags;
    std::uint32_t token;
    std::uint64_t write_sequence;
    std::uint64_t acknowledged;
    std::uint64_t next_received;
    std::uint8_t used_endpoints;
    std::uint8_t endpoints_to_use;
    std::uint8_t checksums;
    std::uint32_t retransmits;
    std::uint64_t retransmitted_bytes;
    std::uint64_t sent_bytes;
    std::uint64_t received_bytes;
    std::uint64_t acknowledged_bytes;
    std::uint8_t all_subflows;
    std::uint32_t sent_ms;
    std::uint32_t received_ms;
    std::uint32_t silent_ms;
};
static_assert(sizeof(MptcpInfo) == 96);

}  // namespace base
