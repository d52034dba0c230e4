// SPDX-License-Identifier: BSD-3-Clause
// cli/transfer/replicas: starts the processes, and exchanges messages with them: lines of JSON over a socket
// of packets.
#include "cli/transfer/replicas.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "cli/transfer/child.hpp"
#include "cli/transfer/session.hpp"

namespace cli {

Reply failed_reply(const Failure &failure) {
    return {.state = failure.exit == Exit::Unknown ? Reply::State::Unknown : Reply::State::Failed,
            .tag = {},
            .reason = failure.text,
            .exit = failure.exit};
}

namespace {

using nlohmann::json;

constexpr std::size_t largest_packet = std::size_t{16} << 10;

// Returns whether the other process is there.
bool send_packet(int socket, const json &value) {
    const std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
    return send(socket, text.data(), text.size(), MSG_NOSIGNAL) >= 0;
}

// Returns nothing when the other process is gone. One that ends with an unread packet resets the socket,
// whose own last packet comes after that error.
std::optional<json> receive_packet(int socket) {
    std::array<char, largest_packet> text{};
    ssize_t size = -1;
    do {
        size = recv(socket, text.data(), text.size(), 0);
    } while (size < 0 && (errno == EINTR || errno == ECONNRESET));
    return size > 0 ? std::optional{json::parse(text.data(), text.data() + size)} : std::nullopt;
}

json packet_of(const Tag &tag) {
    return {tag.epoch, tag.number, tag.writer};
}

Tag tag_in(const json &packet) {
    return {packet[0].get<std::uint64_t>(), packet[1].get<std::uint64_t>(), packet[2].get<std::uint64_t>()};
}

json packet_of(const Reply &reply) {
    return {{"state", static_cast<int>(reply.state)},
            {"tag", packet_of(reply.tag)},
            {"sequence", reply.sequence},
            {"instance", reply.instance},
            {"reason", reply.reason.substr(0, largest_packet / 8)},
            {"exit", static_cast<int>(reply.exit)}};
}

Reply reply_in(const json &packet) {
    return {static_cast<Reply::State>(packet["state"].get<int>()),
            tag_in(packet["tag"]),
            packet["sequence"].get<std::uint64_t>(),
            packet["instance"].get<std::uint64_t>(),
            packet["reason"].get<std::string>(),
            static_cast<Exit>(packet["exit"].get<int>())};
}

// Asks the server for its newest tag.
Reply ask_for_tag(const Where &server, double timeout_seconds) {
    const auto session =
        Session::open(server.address, {.version = protocol_version, .mode = Mode::Tag, .name = server.name},
                      timeout_seconds);
    if (!session) {
        return failed_reply(session.error());
    }
    const Offer &offer = (*session)->offer();
    Reply reply{.state = Reply::State::Present,
                .tag = offer.tag,
                .sequence = offer.sequence,
                .instance = offer.instance,
                .reason = {}};
    if (offer.status == Status::Forgot) {
        reply.state = Reply::State::Forgot;
        reply.reason = fmt::format("{}: a content of {} has lost its tag (rpma list tells which)",
                                   server.address.text(), server.name);
        reply.exit = Exit::Refused;
    }
    (*session)->close();
    return reply;
}

// Returns whether the server may be ordered to commit a content.
bool takes_order(const Reply &reply) {
    return reply.state == Reply::State::Present || reply.state == Reply::State::Forgot;
}

// The life of a server's process. An exception ends it, and the process that waits for it finds that out.
// NOLINTNEXTLINE(bugprone-exception-escape)
void serve_orders(int socket, const Where &server, double timeout_seconds,
                  const Replicas::Write &write) noexcept {
    const Reply present = ask_for_tag(server, timeout_seconds);
    if (!send_packet(socket, packet_of(present)) || !takes_order(present)) {
        return;
    }
    const auto packet = receive_packet(socket);
    if (!packet) {
        return;
    }
    const Order order{tag_in((*packet)["tag"]), (*packet)["length"].get<std::uint64_t>(),
                      (*packet)["checksum"].get<std::uint32_t>(), (*packet)["label"].get<std::string>(),
                      (*packet)["again"].get<bool>()};
    Reply reply = present;
    reply.state = Reply::State::Newer;
    // A server that gives no sequence has its newest content no more.
    const bool lacks_it = present.tag < order.tag || (present.tag == order.tag && present.sequence == 0);
    if (lacks_it || order.again) {
        reply = write(server, order);
        reply.instance = present.instance;
    }
    (void)send_packet(socket, packet_of(reply));
}

}  // namespace

Outcome<Replicas> Replicas::ask(const std::vector<Where> &servers, double timeout_seconds,
                                const Write &write) {
    Replicas replicas;
    replicas.replies_.resize(servers.size());
    for (const Where &server : servers) {
        std::array<int, 2> ends{};
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
            return failed("cannot make a socket: {}", errno_text(errno));
        }
        base::Fd ours{ends[0]};
        const base::Fd theirs{ends[1]};
        const pid_t pid = fork_child(SIGKILL);
        if (pid < 0) {
            return failed("cannot start a process: {}", errno_text(errno));
        }
        if (pid == 0) {
            ours.reset();
            for (Process &other : replicas.processes_) {
                other.socket.reset();
            }
            serve_orders(theirs.get(), server, timeout_seconds, write);
            std::_Exit(0);
        }
        replicas.processes_.push_back({pid, std::move(ours)});
    }
    return replicas;
}

Replicas::~Replicas() {
    for (const Process &process : processes_) {
        kill(process.pid, SIGKILL);
        (void)waitpid(process.pid, nullptr, 0);
    }
}

void Replicas::exclude(std::size_t server, const Failure &why) {
    replies_[server].state = Reply::State::Failed;
    replies_[server].reason = why.text;
    replies_[server].exit = why.exit;
}

// Takes what a server's process says.
void Replicas::take(std::size_t server) {
    Process &process = processes_[server];
    Reply &reply = replies_[server];
    if (const auto packet = receive_packet(process.socket.get())) {
        reply = reply_in(*packet);
    } else {
        const bool may_have_written = has_ordered_ && takes_order(reply);
        reply = failed_reply({"its process ended", may_have_written ? Exit::Unknown : Exit::Failed});
    }
    if (!takes_order(reply)) {
        process.socket.reset();
    }
}

Outcome<> Replicas::wait(const std::function<bool()> &is_enough) {
    while (!is_enough()) {
        std::vector<pollfd> waiting;
        std::vector<std::size_t> servers;
        for (std::size_t server = 0; server < processes_.size(); ++server) {
            const bool can_reply = replies_[server].state == Reply::State::Silent || has_ordered_;
            if (processes_[server].socket && can_reply) {
                waiting.push_back({processes_[server].socket.get(), POLLIN, 0});
                servers.push_back(server);
            }
        }
        if (waiting.empty()) {
            return {};
        }
        constexpr int look_ms = 100;  // for a signal that came before, and for what only time changes
        const int ready = interrupted() ? 0 : poll(waiting.data(), waiting.size(), look_ms);
        if (interrupted()) {
            return failed("interrupted");
        }
        for (std::size_t i = 0; ready > 0 && i < waiting.size(); ++i) {
            if (waiting[i].revents != 0) {
                take(servers[i]);
            }
        }
    }
    return {};
}

void Replicas::order(const Order &order) {
    has_ordered_ = true;
    for (std::size_t server = 0; server < processes_.size(); ++server) {
        if (processes_[server].socket) {
            // A server that was excluded may have the content's tag, and not its bytes.
            const bool again = replies_[server].state == Reply::State::Failed;
            const bool listens = send_packet(processes_[server].socket.get(), {{"tag", packet_of(order.tag)},
                                                                               {"length", order.length},
                                                                               {"checksum", order.checksum},
                                                                               {"label", order.label},
                                                                               {"again", again}});
            if (!listens && replies_[server].state == Reply::State::Silent) {
                take(server);  // what it said before it ended
            }
            if (!listens && processes_[server].socket) {
                processes_[server].socket.reset();
                exclude(server, {"its process ended"});
            }
        }
    }
}

bool Replicas::is_writing() const {
    for (std::size_t server = 0; server < processes_.size(); ++server) {
        if (has_ordered_ && processes_[server].socket && replies_[server].state != Reply::State::Silent) {
            return true;
        }
    }
    return false;
}

}  // namespace cli
