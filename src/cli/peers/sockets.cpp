// SPDX-License-Identifier: BSD-3-Clause
// cli/peers/sockets: `rpma sockets` lists the rsockets of the processes of this machine.
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "cli/arguments.hpp"
#include "cli/commands.hpp"
#include "cli/report.hpp"
#include "registry/reader.hpp"
#include "registry/tcp_diag.hpp"

namespace cli {

namespace {

using registry::Description;
using registry::Phase;
using registry::Seen;
using registry::State;

struct SocketsOptions {
    bool json = false;
    double interval_seconds = 0;
};

std::vector<Seen> all_sockets() {
    std::vector<Seen> all;
    const uid_t user = geteuid();
    const ino_t space = registry::own_space();
    const std::vector<uid_t> users = user == 0 ? registry::users_with_processes() : std::vector<uid_t>{user};
    registry::read_all(registry::shared_folder, users, [&](const Seen &one) {
        if (one.space == space) {  // in another namespace its number is another process's
            all.push_back(one);
        }
        return true;
    });
    std::ranges::sort(all, {}, [](const Seen &one) { return std::tuple{one.process, one.description.fd}; });
    return all;
}

// Returns the name of a process's program, which may have any bytes.
std::string program_of(pid_t process) {
    std::string name;
    std::getline(std::ifstream{fmt::format("/proc/{}/comm", process)}, name);
    std::ranges::replace_if(name, [](char letter) { return letter < ' ' || letter > '~'; }, '?');
    return name;
}

std::string address_text(const Description::Address &address) {
    std::array<char, NI_MAXHOST> host{};
    std::array<char, NI_MAXSERV> port{};
    const bool is_v6 = address.family == AF_INET6;
    const socklen_t size = is_v6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    if ((!is_v6 && address.family != AF_INET) ||
        getnameinfo(reinterpret_cast<const sockaddr *>(&address), size, host.data(), host.size(), port.data(),
                    port.size(), NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
        return {};
    }
    return Address{.host = host.data(), .port = port.data()}.text();
}

const char *state_text(const Seen &one) {
    switch (one.description.state) {
        case State::Fresh:
            return one.description.kind == registry::Kind::Datagram ? "open" : "new";
        case State::Listening:
            return "listening";
        case State::Connecting:
            return "connecting";
        case State::Accepted:
            return "accepted";
        case State::Closing:
            return "closing";
        case State::Connected:
            break;
    }
    if (one.description.state != State::Connected) {
        return "unknown";
    }
    switch (one.live.phase) {
        case Phase::Connecting:
            return "connecting";
        case Phase::Over:
            return one.live.error != 0 ? "broken" : "ended";
        default:
            return "established";
    }
}

const char *mode_text(registry::Mode mode) {
    switch (mode) {
        case registry::Mode::Rdma:
            return "rdma";
        case registry::Mode::Udp:
            return "udp";
        case registry::Mode::Carried:
            return "carried";
        default:
            return "";
    }
}

std::string link_text(registry::Link link) {
    const auto place = static_cast<std::size_t>(link);
    return place < registry::link_names.size() ? std::string{registry::link_names[place]} : std::string{};
}

// Returns why a carried connection is in TCP, or why a stream has ended.
std::string reason_of(const Seen &one) {
    const bool is_broken = one.live.phase == Phase::Over && one.live.error != 0;
    return is_broken ? errno_text(one.live.error) : one.description.reason.data();
}

using Paths = std::map<std::uint32_t, unsigned>;

Facts facts_of(const Seen &one, const Paths &paths) {
    const registry::Live &live = one.live;
    const bool is_stream = one.description.mode == registry::Mode::Rdma;
    const bool is_carried = one.description.mode == registry::Mode::Carried;
    const bool is_counted = is_stream || is_carried || one.description.mode == registry::Mode::Udp;
    const std::uint64_t by_link = live.sent_by_link + live.received_by_link;
    const bool is_by_device = is_carried && live.is_by_device != 0;
    const auto word = [](const char *name, const char *column, const std::string &text) {
        return Fact{name, column, text.empty() ? nlohmann::json() : nlohmann::json(text),
                    text.empty() ? "-" : text};
    };
    const auto multipath = paths.find(static_cast<std::uint32_t>(one.description.inode));
    const bool has_paths = multipath != paths.end() && live.link != registry::Link::Memory;
    const auto count = [](const char *name, const char *column, bool is_known, std::uint64_t value) {
        return Fact{name, column, is_known ? nlohmann::json(value) : nlohmann::json{},
                    is_known ? std::to_string(value) : "-"};
    };
    const auto left = [](std::uint64_t granted, std::uint64_t used) {
        return granted > used ? granted - used : 0;
    };
    return {count("process", "PID", true, static_cast<std::uint64_t>(one.process)),
            word("program", "PROGRAM", program_of(one.process)),
            count("user", "USER", true, one.user),
            {"fd", "FD", one.description.fd, std::to_string(one.description.fd)},
            word("type", "TYPE", one.description.kind == registry::Kind::Datagram ? "datagram" : "stream"),
            word("state", "STATE", state_text(one)),
            word("mode", "MODE", mode_text(one.description.mode)),
            word("device", "DEVICE", one.description.device.data()),
            word("link", "LINK", is_stream || is_carried ? link_text(live.link) : std::string{}),
            word("local", "LOCAL", address_text(one.description.local)),
            word("peer", "PEER", address_text(one.description.peer)),
            count("sent_bytes", "SENT", is_counted, live.sent_bytes + live.placed_bytes),
            count("received_bytes", "RECEIVED", is_counted, live.received_bytes),
            count("memory_bytes", "BY MEMORY", is_carried, is_by_device ? 0 : by_link),
            count("device_bytes", "BY DEVICE", is_carried, is_by_device ? by_link : 0),
            count("turns_back", "TURNS BACK", is_carried, live.turns_back),
            count("paths", "PATHS", has_paths, has_paths ? multipath->second : 0),
            count("window_bytes", "WINDOW", is_stream, left(live.granted_bytes, live.sent_bytes)),
            count("credits", "CREDITS", is_stream, left(live.granted_messages, live.sent_messages)),
            count("stalls_for_peer", "PEER STALLS", is_stream, live.stalls_for_peer),
            count("stalls_for_device", "DEVICE STALLS", is_stream, live.stalls_for_device),
            count("shard", "SHARD", is_stream, live.thread),
            word("reason", "REASON", reason_of(one))};
}

void print_sockets(bool json) {
    std::vector<Facts> rows;
    const Paths paths = registry::multipath_connections();
    for (const Seen &one : all_sockets()) {
        rows.push_back(facts_of(one, paths));
    }
    if (json) {
        Summary summary;
        summary.add_json("sockets", json_of(rows));
        summary.print(true);
    } else {
        print(rows.empty() ? "no rsockets\n" : table_of(rows));
    }
}

Outcome<> sockets(const SocketsOptions &options) {
    const bool on_terminal = can_draw(STDOUT_FILENO) && !options.json;
    while (true) {
        if (options.interval_seconds != 0 && on_terminal) {
            print("\033[H\033[J");  // moves to the upper left, and clears
        }
        print_sockets(options.json);
        if (options.interval_seconds == 0 || print_failure() != 0) {
            return {};
        }
        std::this_thread::sleep_for(std::chrono::duration<double>{options.interval_seconds});
    }
}

}  // namespace

void add_sockets(CLI::App &app, Command &chosen) {
    auto options = std::make_shared<SocketsOptions>();
    CLI::App *command = app.add_subcommand(
        "sockets", "List the rsockets of your processes, or as root those of all processes");
    command->footer(
        "PATHS is the number of paths of a connection of MPTCP.\n"
        "BY MEMORY and BY DEVICE are the bytes of a carried TCP connection, of both directions, that went "
        "through memory\n"
        "or over an RDMA device; TURNS BACK tells how often its bytes went back to TCP.\n"
        "WINDOW and CREDITS are the bytes and messages that the peer still takes. PEER STALLS and DEVICE "
        "STALLS tell\n"
        "how often a send waited for more of these, or for the device to send its bytes. SHARD is the thread "
        "that\n"
        "began the stream.\n");
    command
        ->add_option("--watch", options->interval_seconds,
                     "Print the list repeatedly, with this many seconds between, until it is interrupted")
        ->check(number_between(0.1, 3600), "0.1 to 3600")
        ->expected(0, 1)
        ->default_str("1");
    command->add_flag("--json", options->json, "Print JSON, one line each time");
    command->callback([options, &chosen] { chosen = [options] { return sockets(*options); }; });
}

}  // namespace cli
