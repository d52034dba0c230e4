// SPDX-License-Identifier: BSD-3-Clause
// soft/transport/response: an answer that is owed to the peer.
#pragma once

#include "soft/wire/rdmap.hpp"

namespace soft {

struct Response {
    wire::Opcode opcode = wire::Opcode::ReadResponse;
    wire::ReadRequest read{};
    wire::AtomicResponse atomic{};
};

// The result of adding a message's next segment to the batch.
enum class Added : std::uint8_t {
    Yes,
    No,          // none can be added now
    Failed,      // the request at hand fails, and the connection ends over it
    NotAllowed,  // the peer may not read any more what it asked for: the connection ends
    MemoryGone,  // memory that the peer asked for is not mapped any more: the connection ends
    Cut          // a fault on purpose: the connection ends behind what the link has
};

}  // namespace soft
