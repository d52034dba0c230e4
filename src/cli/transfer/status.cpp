// SPDX-License-Identifier: BSD-3-Clause
// cli/transfer/status: `rpma status` asks a server for its contents and its clients.
#include <CLI/CLI.hpp>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cli/arguments.hpp"
#include "cli/checksum.hpp"
#include "cli/commands.hpp"
#include "cli/protocol/health.hpp"
#include "cli/report.hpp"
#include "cli/transfer/session.hpp"
#include "cli/transfer/transfer.hpp"

namespace cli {

namespace {

struct StatusOptions {
    std::string address;
    double timeout_seconds = 30;
    bool json = false;
};

// Returns the first of some reasons, and how many more there are, for people.
std::string sentence_of(std::span<const Reason> reasons) {
    const std::size_t more = reasons.size() - 1;
    return shown(reasons.front().sentence()) + (more == 0 ? "" : fmt::format("; and {} more", more));
}

// Adds a row for each kind of reason why the server is sick.
void add_reasons(const Health &health, Summary &summary) {
    nlohmann::json all = nlohmann::json::array();
    std::map<std::string, std::vector<Reason>> kinds;
    for (const Reason &reason : health.reasons) {
        all.push_back({{"kind", reason.kind},
                       {"name", or_null(reason.name)},
                       {"sequence", reason.sequence},
                       {"text", reason.sentence()}});
        kinds[shown(reason.kind)].push_back(reason);
    }
    summary.add_json("reasons", all);
    for (const auto &[kind, reasons] : kinds) {
        summary.add_text(kind.c_str(), sentence_of(reasons));
    }
    if (kinds.empty()) {
        summary.add_text("health", "ok");
    }
}

nlohmann::json json_of(const Pushing &push) {
    return {{"name", push.name},
            {"host", push.host},
            {"identity", or_null(push.identity)},
            {"seconds", push.seconds}};
}

void add_pushes(const Health &health, Summary &summary) {
    nlohmann::json pushes = nlohmann::json::array();
    std::string text;
    const auto add = [](std::string &all, const Pushing &push) {
        all += fmt::format("{}{} from {} for {} seconds", all.empty() ? "" : ", ", shown(push.name),
                           shown(push.host), push.seconds);
    };
    for (const Pushing &push : health.pushes) {
        pushes.push_back(json_of(push));
        add(text, push);
    }
    summary.add("pushes", pushes, text.empty() ? "none under way" : text);
    nlohmann::json commits = nlohmann::json::array();
    text.clear();
    for (const Committing &commit : health.commits) {
        commits.push_back(json_of(commit.push));
        commits.back()["left"] = commit.left;
        add(text, commit.push);
        text += commit.left ? " (its client has left)" : "";
    }
    summary.add("commits", commits, text.empty() ? "none under way" : text);
}

void add_last(const Listed &last, Summary &summary) {
    if (last.sequence == 0) {
        summary.add("last", nullptr, "no commit yet");
        return;
    }
    const Note &note = last.note;
    const nlohmann::json commit = {{"name", last.name},
                                   {"sequence", last.sequence},
                                   {"bytes", note.length},
                                   {"checksum", checksum_text(note.checksum)},
                                   {"time", note.time},
                                   {"host", note.host},
                                   {"identity", or_null(note.identity)}};
    const std::string who =
        note.identity.empty() ? note.host : fmt::format("{} ({})", note.host, note.identity);
    summary.add("last", commit,
                fmt::format("{}: content {}, {} bytes, {}, from {}, {}", shown(last.name), last.sequence,
                            note.length, checksum_text(note.checksum), shown(who), shown(note.time)));
}

void add_follows(const Health &health, Summary &summary) {
    if (!health.follows) {
        return;
    }
    const Following &follows = *health.follows;
    const std::string lacks =
        follows.contents == 0 ? "has all that it keeps"
                              : fmt::format("lacks {} contents, {} bytes", follows.contents, follows.bytes);
    summary.add("follows",
                {{"leader", follows.leader},
                 {"behind_contents", follows.contents},
                 {"behind_bytes", follows.bytes},
                 {"seconds", follows.seconds ? nlohmann::json(*follows.seconds) : nlohmann::json{}}},
                fmt::format("{}: {}", shown(follows.leader),
                            follows.seconds ? fmt::format("{}, as of {} seconds ago", lacks, *follows.seconds)
                                            : "has not told yet what it has"));
}

void print_status(const StatusOptions &options, const Health &health) {
    Summary summary;
    summary.add_json("command", "status");
    summary.add("address", options.address);
    summary.add("version", health.version, shown(health.version));
    summary.add_text("uptime", fmt::format("{} seconds", health.uptime_seconds));
    summary.add_json("uptime_seconds", health.uptime_seconds);
    summary.add_text("holds", fmt::format("{} {}, {} bytes (rpma list)", health.names,
                                          health.names == 1 ? "name" : "names", health.bytes));
    summary.add_json("names", health.names);
    summary.add_json("contents", health.contents);
    summary.add_json("bytes", health.bytes);
    summary.add_json("faulty", health.faulty);
    if (health.faulty != 0) {
        summary.add_text("faulty",
                         fmt::format("{} of {} contents (rpma list)", health.faulty, health.contents));
    }
    summary.add("capacity", health.capacity, fmt::format("contents of up to {} bytes", health.capacity));
    summary.add_text("room", health.free_bytes ? fmt::format("{} bytes for the next push", *health.free_bytes)
                                               : "unknown");
    summary.add_json("free_bytes", health.free_bytes ? nlohmann::json(*health.free_bytes) : nullptr);
    summary.add("memory", health.memory, shown(health.memory));
    summary.add("durable", health.durable, yes_when_durable(health.durable));
    summary.add("clients", health.clients, std::to_string(health.clients));
    add_pushes(health, summary);
    add_last(health.last, summary);
    add_follows(health, summary);
    add_reasons(health, summary);
    summary.print(options.json);
}

// A server that answers may still be sick, which a monitor learns from the exit status.
Outcome<> status(const StatusOptions &options) {
    const Address address = TRY(parse_address(options.address));
    end_waits_on_signals();
    const Health health = TRY(ask_for_health(address, options.address, options.timeout_seconds));
    print_status(options, health);
    return health.reasons.empty() ? Outcome<>{}
                                  : failed(Exit::Refused, "{}: {}: {}", options.address,
                                           shown(health.reasons.front().kind), sentence_of(health.reasons));
}

}  // namespace

Outcome<Health> ask_for_health(const Address &address, const std::string &text, double timeout_seconds,
                               std::uint64_t longest) {
    const auto session =
        TRY(Session::open(address, {.version = protocol_version, .mode = Mode::Status}, timeout_seconds));
    auto health = decode_health(TRY(session->look(longest)));
    session->close();
    return health ? std::move(health) : failed("{}: {}", text, health.error().text);
}

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
