// SPDX-License-Identifier: BSD-3-Clause
// cli/probe: asks a TCP port what it speaks, by one connection. The request is that of a client of rsockets
// over iWARP (src/soft/wire/mpa.hpp, src/stream/wire.hpp). A server of rsockets gets a stream that its client
// ends in order at once.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "cli/arguments.hpp"
#include "cli/failure.hpp"

namespace cli {

struct ProbeOptions {
    std::chrono::milliseconds timeout{3000};  // for the connection, and for an answer
    // Asks before the server can speak. Otherwise a server that speaks first is not asked, unless this
    // machine's registry has it as an rsocket.
    bool at_once = false;
};

struct Probed {
    enum class Peer {
        Rsockets,
        AnotherVersion,  // of rsockets
        OtherProgram,    // iWARP, and the program takes clients that it does not understand
        Refuses,         // iWARP, and the program refused us
        WantsMarkers,    // iWARP, with what the soft device does not have; so is the next
        NewerMpa,        // a revision above 2
        SpeaksFirst,     // TCP; `text` is what it said, as in the next
        Answers,
        Closes,
        Silent,
    };

    Peer peer = Peer::Silent;
    bool is_listed = false;  // in this machine's registry
    std::string text;        // printable
    double seconds = 0;      // from the request to the answer
    // Those of a peer that speaks iWARP.
    std::optional<int> mpa_revision;
    bool crc = false;
    bool soft_extensions = false;
    // Those of rsockets.
    int version = 0;
    bool is_ours = false;  // this project's library, not librdmacm's
};

// Blocks for at most twice the timeout and 1.25 seconds. Exit::Unreachable: there is no such host, nobody
// listens, or there is no answer from the host.
[[nodiscard]] Outcome<Probed> probe(const Address &address, const ProbeOptions &options);

}  // namespace cli
