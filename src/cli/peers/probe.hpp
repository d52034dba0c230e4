// SPDX-License-Identifier: BSD-3-Clause
// cli/peers/probe: finds out which protocol a TCP port speaks, with one connection, or two when the server
// closes the first. The request is that of a client of rsockets over iWARP (src/soft/wire/mpa.hpp,
// src/stream/wire.hpp). A server of rsockets gets a stream that its client ends in order at once. The second
// connection asks for TLS.
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "cli/arguments.hpp"
#include "cli/failure.hpp"

namespace cli {

struct ProbeOptions {
    std::chrono::milliseconds timeout{3000};  // for the connection, and again for an answer
    // Sends the request before the server can speak. Without it, a server that speaks first gets no request,
    // unless this machine's registry has it as an rsocket.
    bool at_once = false;
};

struct Probed {
    enum class Peer {
        Rsockets,
        AnotherVersion,  // of rsockets
        OtherProgram,    // iWARP, and the program accepts clients of another protocol
        Refuses,         // iWARP, and the program refused the request
        WantsMarkers,    // iWARP with a feature that the soft device lacks, as the next
        NewerMpa,        // a revision above 2
        Tls,
        SpeaksFirst,  // TCP; `text` has its bytes, as with the next
        Answers,
        Closes,
        Silent,
    };

    Peer peer = Peer::Silent;
    sockaddr_storage address{};  // that has answered
    bool is_listed = false;      // in this machine's registry
    std::string text;            // printable
    double seconds = 0;          // from the request to the answer
    // The next members are of a peer that speaks iWARP.
    std::optional<int> mpa_revision;
    bool crc = false;
    bool soft_extensions = false;
    // The next members are of a peer with rsockets.
    int version = 0;
    bool is_ours = false;  // this project's library, and not librdmacm's
};

// Probes a port. Blocks for at most four times the timeout and 1.25 seconds. Fails with Exit::Unreachable
// when there is no such host, when no program listens, or when the host does not answer.
[[nodiscard]] Outcome<Probed> probe(const Address &address, const ProbeOptions &options);

}  // namespace cli
