// SPDX-License-Identifier: BSD-3-Clause
// stream/settings: how large the queues and buffers of a stream are.
#pragma once

#include <cstdint>

namespace stream {

// The sizes of buffers that the program has not set. On a device of the kernel all of their memory is
// pinned. On the soft device only used pages take memory.
inline constexpr std::uint32_t usual_bytes = 131072;
inline constexpr std::uint32_t usual_bytes_of_soft = 1048576;

// The most that sends and receives may be.
inline constexpr std::uint16_t most_messages = 0xfffe;

struct Settings {
    std::uint16_t sends = 384;     // messages that may be posted and not complete
    std::uint16_t receives = 384;  // messages of the peer that have a place; 16 at least
    std::uint32_t inline_bytes = 64;
    // The sizes that are 0 become those that are usual on the device.
    std::uint32_t send_bytes = 0;
    std::uint32_t receive_bytes = 0;  // both halves
    std::uint32_t slots = 0;          // mappings that the peer may have here at once
};

}  // namespace stream
