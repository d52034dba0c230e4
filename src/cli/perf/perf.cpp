// SPDX-License-Identifier: BSD-3-Clause
// cli/perf/perf: `rpma perf` measures the speed of a server, and of the network to it, beside plain TCP
// on the same network.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "cli/arguments.hpp"
#include "cli/commands.hpp"
#include "cli/perf/perf_loads.hpp"
#include "cli/perf/perf_report.hpp"
#include "cli/report.hpp"

namespace cli {

namespace {

struct PerfOptions {
    std::string address;
    std::string ops = "write,read,flush,send,atomic";
    std::string sizes = "8,64K";
    std::string depths = "1,16";
    std::uint32_t connections = 1;
    PerfLimits limits{
        .seconds = 0.5, .operations = 0, .warmup_seconds = 0.1, .timeout_seconds = 30, .polled = false};
    bool sleeps = false;
    bool bars = false;
    bool json = false;
};

// Shows on a terminal which row is being measured.
void show_progress(const std::string &text) {
    if (can_draw(STDERR_FILENO)) {
        std::fputs(fmt::format("\r{}\033[K", text).c_str(), stderr);
    }
}

void print_row(const PerfOptions &options, const PerfRow &row, nlohmann::ordered_json &rows) {
    show_progress("");
    if (options.json) {
        rows.push_back(perf_json(row));
        return;
    }
    print((rows.empty() ? perf_table_head() : "") + perf_table_line(row));
    if (options.bars) {
        print(perf_bars(row.rdma.latencies));
    }
    rows.push_back(nullptr);
}

// After a failure, or a signal, the rows that were measured before are printed.
Outcome<> measure_all(const PerfOptions &options, const Address &address, const DevicePeer &device,
                      const std::vector<Load> &loads, nlohmann::ordered_json &rows) {
    for (const Load &load : loads) {
        const auto row = std::make_unique<PerfRow>(load);
        const auto progress = [&load](unsigned pair, unsigned pairs) {
            show_progress(fmt::format("{}: {} of {}", perf_load_text(load), pair, pairs));
        };
        const auto done = measure(device, address, options.limits, progress, *row);
        if (row->rdma.latencies.count() > 0) {
            print_row(options, *row, rows);
        }
        if (interrupted()) {
            return {};
        }
        TRY(done);
    }
    return {};
}

Outcome<> perf(PerfOptions options) {
    const Address address = TRY(parse_address(options.address));
    const auto loads = TRY(parse_loads(options.ops, options.sizes, options.depths, options.connections));
    options.limits.polled = !options.sleeps;
    end_waits_on_signals();
    const DevicePeer device = TRY(open_peer(address, RPMA_UTIL_IBV_CONTEXT_REMOTE));
    auto rows = nlohmann::ordered_json::array();
    const auto done = measure_all(options, address, device, loads, rows);
    show_progress("");
    if (options.json) {
        const nlohmann::ordered_json all = {{"command", "perf"},
                                            {"address", address.text()},
                                            {"device", device.name},
                                            {"polled", options.limits.polled},
                                            {"interrupted", interrupted()},
                                            {"rows", rows}};
        print(all.dump() + "\n");
    }
    return done;
}

}  // namespace

void add_perf(CLI::App &app, Command &chosen) {
    auto options = std::make_shared<PerfOptions>();
    CLI::App *command =
        app.add_subcommand("perf", "Measure latency and bandwidth of a server's memory, beside plain TCP");
    command->footer(
        "Lists are separated by commas. SIZE takes K or M, in powers of 1024. No content changes. After "
        "Ctrl-C "
        "the results so far are printed.\n");
    command->add_option("ADDRESS[:PORT]", options->address, where_served)->required();
    command->add_option("--op", options->ops, "What to measure")->type_name("LIST")->capture_default_str();
    command->add_option("--size", options->sizes, "Bytes of an operation, up to 64M")
        ->type_name("LIST")
        ->capture_default_str();
    command
        ->add_option("--depth", options->depths,
                     "Operations under way on a connection, up to 1024 (send: 64)")
        ->type_name("LIST")
        ->capture_default_str();
    command->add_option("--connections", options->connections, "Connections at once")
        ->transform(CLI::Validator{whole_number_between(1, most_connections),
                                   fmt::format("1 to {}", most_connections)})
        ->capture_default_str();
    auto *time =
        command->add_option("--time", options->limits.seconds, "Seconds for each row, and again for its TCP")
            ->check(number_between(0.001, 86400), "0.001 to 86400")
            ->capture_default_str();
    command->add_option("--count", options->limits.operations, "Operations for each row, instead of a time")
        ->transform(CLI::Validator{whole_number_between(1), ""})
        ->excludes(time);
    command
        ->add_option("--warmup", options->limits.warmup_seconds, "Seconds before each row that do not count")
        ->check(number_between(0, 3600), "0 to 3600")
        ->capture_default_str();
    command->add_flag("--wait", options->sleeps,
                      "Sleep until an operation is done, instead of polling for it");
    command->add_flag("--histogram", options->bars, "Draw each row's latencies");
    command
        ->add_option("--timeout", options->limits.timeout_seconds,
                     "Give up after this many seconds without an answer")
        ->check(number_between(0.1, 3600), "0.1 to 3600")
        ->capture_default_str();
    add_tls(*command);
    command->add_flag("--json", options->json, "Print all results as JSON at the end");
    command->callback([options, &chosen] { chosen = [options] { return perf(*options); }; });
}

}  // namespace cli
