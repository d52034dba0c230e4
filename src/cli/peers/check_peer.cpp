// SPDX-License-Identifier: BSD-3-Clause
// cli/peers/check_peer: `rpma check HOST:PORT` tells which protocol a server speaks, and the effect for a
// client.
#include "cli/peers/check_peer.hpp"

#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "base/tls.hpp"
#include "cli/carried.hpp"
#include "cli/commands.hpp"
#include "cli/peers/probe.hpp"
#include "cli/report.hpp"
#include "cli/transfer/client_connection.hpp"

namespace cli {

namespace {

using Found = Probed::Peer;

// Returns the version of a server of the command. It refuses clients that are not its own, so this asks as
// `rpma status` does.
std::optional<std::uint16_t> server_version(const Address &address, double timeout_seconds) {
    const auto device = open_peer(address, RPMA_UTIL_IBV_CONTEXT_REMOTE);
    if (!device) {
        return std::nullopt;
    }
    ClientConnection server{address, timeout_seconds};
    const auto offer =
        server.connect(*device, {.version = protocol_version, .mode = Mode::Status}, {.sends = 1});
    return offer ? std::optional{offer->version} : std::nullopt;
}

struct Finding {
    const char *peer;
    bool is_good;
    std::string text;
};

Finding finding_of(const Probed &probed, const PeerOptions &options) {
    switch (probed.peer) {
        case Found::Rsockets:
            return {"rsockets", true, "streams of rsockets go to it by RDMA"};
        case Found::AnotherVersion:
            return {"rsockets", false,
                    fmt::format("it speaks version {} of rsockets (expected 1)", probed.version)};
        case Found::OtherProgram:
            return {"iwarp", false, "it speaks iWARP, and its program is none of rsockets"};
        case Found::Refuses:
            return {"iwarp", false, "it speaks iWARP, and its program refuses clients of rsockets"};
        case Found::WantsMarkers:
            return {"iwarp", false,
                    "it speaks iWARP and wants markers of MPA, which the soft device does not send"};
        case Found::NewerMpa:
            return {"iwarp", false,
                    fmt::format("it speaks revision {} of MPA (expected 1 or 2)",
                                probed.mpa_revision.value_or(0))};
        case Found::Tls:
            return {"tls", false,
                    "it speaks TLS; with --psk FILE or --x509 FILE this command tells whether it is rpma "
                    "serve"};
        case Found::SpeaksFirst:
            return {"tcp", false,
                    fmt::format("plain TCP: it speaks first, \"{}\"; --at-once tells whether it takes RDMA "
                                "from clients that ask earlier",
                                probed.text)};
        case Found::Answers:
            return {"tcp", false,
                    fmt::format("plain TCP: it answers a request for RDMA with \"{}\"", probed.text)};
        case Found::Closes:
            return {"tcp", false, "plain TCP: it closes the connection"};
        case Found::Silent:
            break;
    }
    return {
        "tcp", false,
        probed.is_listed
            ? fmt::format("an rsocket whose program does not accept its clients: no answer for {} seconds",
                          options.timeout_seconds)
            : fmt::format("no answer for {} seconds: plain TCP, or an rsocket whose program does not accept "
                          "its clients",
                          options.timeout_seconds)};
}

void print_report(const PeerOptions &options, const Probed &probed, const Finding &found) {
    const bool speaks_iwarp = probed.mpa_revision.has_value();
    const bool is_rsockets = probed.version != 0;
    const char *const library = probed.is_ours ? "librsocket" : "librdmacm's, or another";
    Summary summary;
    summary.add_json("command", "check");
    summary.add("address", options.address);
    summary.add("speaks", found.peer);
    if (speaks_iwarp) {
        summary.add("mpa", *probed.mpa_revision, fmt::format("revision {}", *probed.mpa_revision));
        summary.add("crc", probed.crc, probed.crc ? "the server asks for CRC32C" : "off");
        summary.add("soft", probed.soft_extensions,
                    probed.soft_extensions ? "the soft device, with its extensions" : "no extensions");
        summary.add("answer", probed.seconds, format_seconds(probed.seconds));
    }
    if (is_rsockets) {
        summary.add("version", probed.version, std::to_string(probed.version));
        summary.add("library", library);
    }
    if (probed.is_listed) {
        summary.add_text("listed", "an rsocket of this machine listens there");
    }
    summary.add_json("listed", probed.is_listed);
    if (!probed.text.empty()) {
        summary.add_json("text", probed.text);
    }
    summary.add("carried", carried_to(probed.address));
    summary.add_json("good", found.is_good);
    summary.add("verdict", found.text);
    summary.print(options.json);
}

// Nothing is asked in the clear when the user wants TLS. So this tells a server of ours from all others, and
// no more.
Outcome<> check_over_tls(const PeerOptions &options, const Address &address) {
    const DevicePeer device = TRY(open_peer(address, RPMA_UTIL_IBV_CONTEXT_REMOTE));
    ClientConnection server{address, options.timeout_seconds};
    const Offer offer =
        TRY(server.connect(device, {.version = protocol_version, .mode = Mode::Status}, {.sends = 1}));
    Summary summary;
    summary.add_json("command", "check");
    summary.add("address", options.address);
    summary.add("speaks", "rpma");
    summary.add("tls", true, "TLS 1.3, and both ends have authenticated each other");
    summary.add_json("good", true);
    summary.add("verdict",
                fmt::format("rpma serve, of version {}, over TLS: rpma push and pull work", offer.version));
    summary.print(options.json);
    return {};
}

}  // namespace

Outcome<> check_tls(bool json) {
    TRY(check_settings());
    Summary summary;
    summary.add_json("command", "check");
    summary.add("tls", base::required_tls());
    summary.add_json("good", true);
    summary.add_text("verdict", "the files can be used");
    summary.print(json);
    return {};
}

Outcome<> check_peer(const PeerOptions &options) {
    const Address address = TRY(parse_address(options.address));
    if (base::required_tls() != nullptr) {
        return check_over_tls(options, address);
    }
    const auto timeout =
        std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>{options.timeout_seconds});
    const Probed probed = TRY(probe(address, {.timeout = timeout, .at_once = options.at_once}));
    Finding found = finding_of(probed, options);
    if (probed.peer == Found::Refuses) {
        if (const auto version = server_version(address, options.timeout_seconds)) {
            found = {"rpma", true,
                     fmt::format("rpma serve, of version {}: rpma push and pull work", *version)};
        }
    }
    print_report(options, probed, found);
    return found.is_good ? Outcome<>{} : failed(Exit::Refused, "{}: {}", address.text(), found.text);
}

}  // namespace cli
