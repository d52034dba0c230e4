// SPDX-License-Identifier: BSD-3-Clause
// cli/perf/perf_tcp: the baseline of `rpma perf`: the same bytes, with the same number and depth, on plain
// TCP. A write is a request without an answer. A read is a request of 8 bytes with a large answer, and a send
// or flush is a request with an answer of 8 bytes.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <memory>
#include <vector>

#include "base/fd.hpp"
#include "base/ring.hpp"
#include "cli/perf/perf_path.hpp"
#include "cli/perf/tcp_answers.hpp"

namespace cli {

class TcpPath : public Path {
public:
    [[nodiscard]] static Outcome<std::unique_ptr<TcpPath>> open(std::span<const sockaddr_storage> servers,
                                                                const Load &load, double timeout_seconds);

    [[nodiscard]] Outcome<> post(std::uint32_t slot) override;
    [[nodiscard]] Outcome<> post_barrier(std::uint32_t slot) override;
    [[nodiscard]] Outcome<std::size_t> collect(std::span<std::uint32_t> done) override;
    [[nodiscard]] Outcome<> wait() override;

private:
    struct Connection {
        base::Fd socket;
        base::Ring<std::uint32_t> posted;  // slots, the oldest first
        std::uint64_t unsent = 0;          // bytes of these slots' requests
        std::uint64_t received = 0;        // bytes of the oldest slot's answer
        std::uint32_t done = 0;            // how many of the oldest slots are done
    };
    TcpPath(const Load &load, double timeout_seconds);
    [[nodiscard]] Outcome<> connect(const sockaddr_storage &server);
    [[nodiscard]] Outcome<> start(std::uint32_t slot, bool answered);
    [[nodiscard]] Outcome<> send(Connection &connection);
    [[nodiscard]] Outcome<> receive(Connection &connection);

    Load load_;
    double timeout_;  // seconds
    TcpSizes sizes_;
    bool answered_ = false;  // the requests under way want an answer
    std::vector<Connection> connections_;
    std::vector<pollfd> waiting_;
    std::vector<std::byte> request_;
    std::vector<std::byte> answer_;
};

}  // namespace cli
