// SPDX-License-Identifier: BSD-3-Clause
// cli/serve: `rpma serve` opens or creates a pool, says what it is, and serves it until it is told to end.
#include <sys/signalfd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <memory>

#include "cli/checksum.hpp"
#include "cli/commands.hpp"
#include "cli/log.hpp"
#include "cli/report.hpp"
#include "cli/server.hpp"

namespace cli {

namespace {

struct ServeOptions {
    std::string pool;
    std::string size;
    std::string listen = "127.0.0.1:7204";
    bool allow_volatile = false;
    bool json = false;
};

// SIGINT and SIGTERM as a file descriptor. Before any other thread, which inherits that they are blocked.
Outcome<base::Fd> open_signals() {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigprocmask(SIG_BLOCK, &signals, nullptr);
    base::Fd fd{signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK)};
    if (!fd) {
        return failed("signalfd: {}", errno_text(errno));
    }
    return fd;
}

Outcome<> check_durable(const ServeOptions &options, const Server &server, bool is_soft) {
    if (server.durability() != Durability::None || options.allow_volatile) {
        return {};
    }
    return failed(
        "pool {}: is not durable here (expected a file on storage, or --volatile to serve it all the same){}",
        options.pool, is_soft ? logged_reason() : std::string{});
}

std::string describe(const Content &content) {
    return fmt::format("content {}, {} bytes, {}", content.sequence, content.length,
                       checksum_text(content.checksum));
}

void print_start(const ServeOptions &options, const Address &address, const Pool &pool, const Server &server,
                 const std::string &device) {
    const auto &content = pool.content();
    const bool durable = server.durability() != Durability::None;
    Summary summary;
    summary.add_json("event", "listening");
    summary.add("pool", options.pool, options.pool + (pool.created() ? " (created)" : ""));
    summary.add_json("created", pool.created());
    summary.add_text("holds", content ? describe(*content) : "nothing yet");
    summary.add_json("sequence", content ? content->sequence : 0);
    summary.add("capacity", pool.layout().capacity,
                fmt::format("two contents of {} bytes", pool.layout().capacity));
    summary.add("memory", durability_text(server.durability()),
                fmt::format("{}{}", durability_text(server.durability()),
                            durable ? "" : ": what is pushed may be lost"));
    summary.add_json("durable", durable);
    summary.add("device", device);
    summary.add("listening", address.text());
    summary.print(options.json);
}

void print_commit(const ServeOptions &options, const Content &content) {
    Summary summary;
    summary.add_json("event", "committed");
    summary.add_json("sequence", content.sequence);
    summary.add_json("bytes", content.length);
    summary.add_json("checksum", checksum_text(content.checksum));
    summary.add_text("committed", describe(content));
    summary.print(options.json);
}

// Everything before the first client.
Outcome<> start(const ServeOptions &options, const Address &address, DevicePeer device, Server &server) {
    const bool is_soft = device.is_soft;
    TRY(server.listen(address, std::move(device)));
    return check_durable(options, server, is_soft);
}

Outcome<> serve(const ServeOptions &options) {
    const Address address = TRY(parse_address(options.listen));
    const std::uint64_t capacity = TRY(parse_size(options.size));
    const base::Fd signals = TRY(open_signals());
    DevicePeer device = TRY(open_peer(address, RPMA_UTIL_IBV_CONTEXT_LOCAL));
    const std::string device_name = device.name;
    Pool pool = TRY(Pool::open(options.pool, capacity));
    // A kernel's device pins no page of a file, and would not make it durable.
    if (!device.is_soft && !pool.is_dax() && pool.is_on_storage()) {
        TRY(pool.serve_copy());
    }
    Server server{pool, {}, [&options](const Content &content) { print_commit(options, content); }};
    if (const auto started = start(options, address, std::move(device), server); !started) {
        pool.discard_created();
        return started;
    }
    print_start(options, address, pool, server, device_name);
    print_warnings();
    return server.run(signals.get());
}

}  // namespace

void add_serve(CLI::App &app, Command &chosen) {
    auto options = std::make_shared<ServeOptions>();
    CLI::App *command =
        app.add_subcommand("serve", "Create or open a pool file, and serve it to push and pull");
    command->footer(
        "There is no authentication and no encryption: whoever reaches the address can read and replace the "
        "content.\n"
        "The pool keeps two contents of SIZE bytes, so a crash at any moment leaves the old one or the new "
        "one.\n"
        "SIZE takes K, M, G or T, in powers of 1024. Ctrl-C ends the server.\n");
    command->add_option("--pool", options->pool, "The pool file; created when it does not exist")
        ->type_name("FILE")
        ->required();
    command->add_option("--size", options->size, "The largest content that the pool takes")
        ->type_name("SIZE")
        ->required();
    command->add_option("--listen", options->listen, "Where to listen: HOST[:PORT] or [IPV6][:PORT]")
        ->type_name("ADDRESS")
        ->capture_default_str();
    command->add_flag("--volatile", options->allow_volatile, "Serve also where nothing can be durable");
    command->add_flag("--json", options->json, "Print events as JSON, one a line");
    command->callback([options, &chosen] { chosen = [options] { return serve(*options); }; });
}

}  // namespace cli
