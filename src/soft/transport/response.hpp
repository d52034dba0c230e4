// SPDX-License-Identifier: BSD-3-Clause
// soft/transport/response: an answer that is owed to the peer.
#pragma once

#include <cstdint>

#include "soft/wire/rdmap.hpp"

namespace soft {

struct Response {
    wire::Opcode opcode = wire::Opcode::ReadResponse;
    std::uint32_t posted = 0;  // requests that this side's program had posted when the peer asked
    wire::ReadRequest read{};
    wire::AtomicResponse atomic{};
};

// The result of adding a message's next segment to the batch.
enum class Added : std::uint8_t {
    Yes,
    No,          // no segment can be added now
    Failed,      // the current request fails, and the connection ends
    NotAllowed,  // the peer may no longer read the memory that it asked for: the connection ends
    MemoryGone,  // the memory that the peer asked for is no longer mapped: the connection ends
    Cut          // an injected fault: the connection ends after the bytes that the link has
};

}  // namespace soft
