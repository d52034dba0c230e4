// SPDX-License-Identifier: BSD-3-Clause
// soft/transport/parameters: the parameters on which the two ends agreed in the handshake.
#pragma once

#include <cstdint>

namespace soft {

struct ConnectionParameters {
    bool initiator = false;
    bool ready_to_receive =
        false;  // the initiator's first FPDU is an empty WRITE or READ (RFC 6581 section 9.2)
    bool crc = false;
    bool soft_peer = false;
    bool by_number = false;        // the queue pair is connected by number: its states are the program's
    bool acknowledged = false;     // each side tells the other which writes and messages it has placed
    std::uint8_t ack_timeout = 0;  // the program's (RDMA_OPTION_ID_ACK_TIMEOUT); TCP does not look at it
    std::uint16_t ird = 0;
    std::uint16_t ord = 0;
};

}  // namespace soft
