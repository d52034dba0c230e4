// SPDX-License-Identifier: BSD-3-Clause
// cli/status: `rpma status` asks a server for its contents and its clients.
#include <CLI/CLI.hpp>
#include <memory>

#include "cli/arguments.hpp"
#include "cli/client_connection.hpp"
#include "cli/commands.hpp"
#include "cli/report.hpp"

namespace cli {

namespace {

struct StatusOptions {
    std::string address;
    double timeout_seconds = 30;
    bool json = false;
};

// Returns the fault of the server's storage; empty without one.
std::string fault_of(const Offer &offer) {
    if (offer.storage_error != 0) {
        return fmt::format("failed: {}; no push is taken until the server is started again",
                           errno_text(static_cast<int>(offer.storage_error)));
    }
    return offer.reason;
}

void print_status(const StatusOptions &options, const Offer &offer) {
    const bool durable = offer.durability != Durability::None;
    const bool is_pushed = !offer.pusher.empty();
    Summary summary;
    summary.add_json("command", "status");
    summary.add("address", options.address);
    summary.add_text("holds", fmt::format("{} {}, {} bytes (rpma list)", offer.names,
                                          offer.names == 1 ? "name" : "names", offer.length));
    summary.add_json("names", offer.names);
    summary.add_json("bytes", offer.length);
    summary.add("capacity", offer.capacity, fmt::format("contents of up to {} bytes", offer.capacity));
    summary.add("memory", durability_text(offer.durability),
                fmt::format("{}{}", durability_text(offer.durability),
                            durable ? "" : ": pushed content may be lost"));
    summary.add_json("durable", durable);
    summary.add("clients", offer.clients, std::to_string(offer.clients));
    if (is_pushed) {
        summary.add_json("pusher", offer.pusher);
        summary.add_json("pushing_seconds", offer.pushing_seconds);
    } else {
        summary.add_json("pusher", nullptr);
    }
    summary.add_text("push", is_pushed
                                 ? fmt::format("from {} for {} seconds", offer.pusher, offer.pushing_seconds)
                                 : "none under way");
    const std::string fault = fault_of(offer);
    summary.add("storage", fault.empty() ? "ok" : fault);
    summary.print(options.json);
}

// A server that answers may still be sick, which a monitor learns from the exit status.
Outcome<> status(const StatusOptions &options) {
    const Address address = TRY(parse_address(options.address));
    end_waits_on_signals();
    const DevicePeer device = TRY(open_peer(address, RPMA_UTIL_IBV_CONTEXT_REMOTE));
    ClientConnection server{address, options.timeout_seconds};
    const Offer offer =
        TRY(server.connect(device, {.version = protocol_version, .mode = Mode::Status}, {.sends = 1}));
    print_status(options, offer);
    const std::string fault = fault_of(offer);
    return fault.empty() ? Outcome<>{} : failed(Exit::Refused, "{}: {}", options.address, fault);
}

}  // namespace

void add_status(CLI::App &app, Command &chosen) {
    auto options = std::make_shared<StatusOptions>();
    CLI::App *command = app.add_subcommand("status", "Ask a server for its contents and its clients");
    command->add_option("ADDRESS[:PORT]", options->address, where_served)->required();
    command
        ->add_option("--timeout", options->timeout_seconds,
                     "Give up after this many seconds without an answer")
        ->check(number_between(0.1, 3600), "0.1 to 3600")
        ->capture_default_str();
    add_tls(*command);
    command->add_flag("--json", options->json, "Print JSON");
    command->callback([options, &chosen] { chosen = [options] { return status(*options); }; });
}

}  // namespace cli
