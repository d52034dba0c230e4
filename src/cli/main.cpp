// SPDX-License-Identifier: BSD-3-Clause
// cli/main: the `rpma` command.
#include <CLI/CLI.hpp>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <vector>

#include "cli/commands.hpp"
#include "cli/log.hpp"
#include "cli/report.hpp"

namespace {

constexpr int exit_failure = 1;
constexpr int exit_usage = 2;

int complain(const std::string &text, int code) {
    std::fputs(fmt::format("rpma: {}\n", text).c_str(), stderr);
    return code;
}

int parse_and_run(int argc, char **argv) {
    CLI::App app{"Remote persistent memory over RDMA, with or without RDMA hardware.", "rpma"};
    cli::Command chosen;
    bool verbose = false;
    app.set_version_flag("--version", "rpma " RPMA_VERSION, "Print the version and exit");
    app.add_flag("--verbose", verbose, "Print librpma's log to standard error");
    app.footer(
        "RPMA_DEVICE=auto|kernel|soft chooses the kind of device; auto takes the kernel's where there is "
        "one.");
    app.require_subcommand(0, 1);
    app.allow_extras();
    app.fallthrough();
    cli::add_devices(app, chosen);
    cli::add_serve(app, chosen);
    cli::add_push(app, chosen);
    cli::add_pull(app, chosen);
    cli::add_perf(app, chosen);
    cli::add_run(app, chosen);
    try {
        app.parse(argc, argv);
    } catch (const CLI::Success &wanted) {  // --help
        return app.exit(wanted);
    } catch (const CLI::ParseError &error) {
        return complain(fmt::format("{} (see rpma --help)", error.what()), exit_usage);
    }
    auto extra = app.remaining(!app.got_subcommand("run"));
    std::erase(extra, "--");  // what stands behind it was taken, also when it begins with a dash
    if (!chosen || !extra.empty()) {
        return complain(
            fmt::format("{}: {} (see rpma --help)", extra.empty() ? "no command" : extra.front(),
                        chosen ? "unknown argument" : "expected devices, serve, push, pull, perf or run"),
            exit_usage);
    }
    cli::take_log(verbose);
    const auto done = chosen();
    if (!done) {
        return complain(done.error().text, exit_failure);
    }
    // A server's work is not what it prints.
    const int unprinted = app.got_subcommand("serve") ? 0 : cli::print_failure();
    if (unprinted == EPIPE) {
        return exit_failure;  // who does not read on knows
    }
    return unprinted == 0 ? 0
                          : complain(fmt::format("standard output: cannot write: {}; all else was done",
                                                 cli::errno_text(unprinted)),
                                     exit_failure);
}

}  // namespace

int main(int argc, char **argv) {
    // A reader of our output that goes away must not end a server.
    std::signal(SIGPIPE, SIG_IGN);
    try {
        return parse_and_run(argc, argv);
    } catch (const std::exception &error) {
        return complain(error.what(), exit_failure);
    }
}
