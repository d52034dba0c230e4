// SPDX-License-Identifier: BSD-3-Clause
// soft/connected/connection: what the connection manager and a queue pair tell each other.
#pragma once

#include <cstdint>

namespace soft {

// The connection manager's id, which is told what becomes of a connection. The caller holds the group's lock.
class ConnectionOwner {
public:
    virtual void connection_established() = 0;
    virtual void connection_ended() = 0;

protected:
    ~ConnectionOwner() = default;
};

// The two ends agreed on this in the handshake.
struct ConnectionParameters {
    bool initiator = false;
    bool ready_to_receive =
        false;  // the initiator's first FPDU is an empty WRITE or READ (RFC 6581 section 9.2)
    bool crc = false;
    bool soft_peer = false;
    std::uint16_t ird = 0;
    std::uint16_t ord = 0;
};

}  // namespace soft
