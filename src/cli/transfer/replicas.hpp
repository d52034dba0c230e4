// SPDX-License-Identifier: BSD-3-Clause
// cli/transfer/replicas: several servers that keep the same names. Each is asked by a process of its own, so
// that one that is silent delays nobody, and can be left behind.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/fd.hpp"
#include "cli/arguments.hpp"
#include "cli/failure.hpp"
#include "cli/protocol/protocol.hpp"

namespace cli {

// A content that servers are to commit.
struct Order {
    Tag tag;
    std::uint64_t length = 0;
    std::uint32_t checksum = 0;
    std::string label;
    bool again = false;  // the server could not give the content before
};

struct Reply {
    enum class State : std::uint8_t {
        Silent,     // it has not answered yet
        Present,    // it has told its newest tag, and nothing else
        Forgot,     // it has told that it has lost its newest tag
        Committed,  // it has committed the content
        Newer,      // it has this content, or a newer one
        Failed,     // it has not committed the content, or has told nothing
        Unknown,    // it has committed the content, or has not
    };
    State state = State::Silent;
    Tag tag;                     // the newest that it has; of Forgot, that it knows
    std::uint64_t sequence = 0;  // that of its content; of Committed, that of the new one
    std::uint64_t instance = 0;  // two servers have two
    std::string reason;          // of Forgot, Failed and Unknown
    Exit exit = Exit::Done;      // of these
};

// Returns the reply of a server that failed, or of which it is unknown whether it has committed.
[[nodiscard]] Reply failed_reply(const Failure &failure);

// One thread uses it, of a process that has no other: it forks.
class Replicas {
public:
    // Has a server commit a content. It is called in that server's process.
    using Write = std::function<Reply(const Where &server, const Order &order)>;

    // Starts a process for each server, which asks it for its newest tag of the name.
    [[nodiscard]] static Outcome<Replicas> ask(const std::vector<Where> &servers, double timeout_seconds,
                                               const Write &write);
    Replicas(Replicas &&) = default;
    Replicas &operator=(Replicas &&) = delete;
    // Ends the processes that are under way, whatever they do.
    ~Replicas();

    [[nodiscard]] const std::vector<Reply> &replies() const { return replies_; }
    // Takes a server for failed, from now on.
    void exclude(std::size_t server, const Failure &why);

    // Waits until `is_enough` returns true, or no server can reply any more. Blocks no longer than the
    // time-outs of the servers' connections. Fails at SIGINT and SIGTERM (end_waits_on_signals()).
    [[nodiscard]] Outcome<> wait(const std::function<bool()> &is_enough);
    // Has each server commit the content, once, as soon as it has told its tag, or that it has lost it; one
    // that has told a newer one is not asked again.
    void order(const Order &order);
    // Returns whether a server that has told its tag is about to commit what was ordered.
    [[nodiscard]] bool is_writing() const;

private:
    struct Process {
        pid_t pid = -1;
        base::Fd socket;  // of messages; closed when the process says no more
    };
    Replicas() = default;
    void take(std::size_t server);

    std::vector<Process> processes_;
    std::vector<Reply> replies_;
    bool has_ordered_ = false;
};

}  // namespace cli
