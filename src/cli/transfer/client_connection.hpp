// SPDX-License-Identifier: BSD-3-Clause
// cli/transfer/client_connection: a client's connection to a server, from the request to the end.
#pragma once

#include <chrono>
#include <string>

#include "cli/peer.hpp"
#include "cli/protocol/protocol.hpp"

namespace cli {

// Makes SIGINT, SIGTERM and SIGHUP end every wait with a failure, so that no partial file stays behind.
void end_waits_on_signals();
// Does that now, for a thread of a process that takes its signals otherwise. The wait ends within a second.
void end_waits();
[[nodiscard]] bool interrupted();

// One thread uses it. Every wait ends when nothing happens for the timeout, and at SIGINT and SIGTERM (see
// end_waits_on_signals). The device, and a given completion queue, outlive it.
class ClientConnection {
public:
    using Clock = std::chrono::steady_clock;
    using Milliseconds = std::chrono::milliseconds;

    // The numbers of operations that may be under way.
    struct Queues {
        std::uint32_t sends;
        std::uint32_t receives = 1;
        rpma_cq *completions = nullptr;  // nullptr: one of its own, for both
    };

    ClientConnection(const Address &address, double timeout_seconds)
        : address_{address},
          name_{address.text()},
          timeout_{std::chrono::ceil<Milliseconds>(std::chrono::duration<double>{timeout_seconds})} {}

    // Connects. When the server's answer is Busy, there is nothing else; otherwise remote() is the region
    // that it offers, if any.
    [[nodiscard]] Outcome<Offer> connect(const DevicePeer &device, const Hello &hello, const Queues &queues);

    [[nodiscard]] const std::string &name() const { return name_; }  // the server's address
    [[nodiscard]] Milliseconds timeout() const { return timeout_; }
    [[nodiscard]] rpma_conn *get() const { return connection_.get(); }
    [[nodiscard]] rpma_mr_remote *remote() const { return remote_.get(); }
    // Makes remote() the region that the server has given for the one before.
    [[nodiscard]] Outcome<> take(const RegionBytes &region);

    [[nodiscard]] Outcome<> wait_readable(int fd, Clock::time_point deadline) const;
    // Returns the meaning of an operation's failed completion.
    [[nodiscard]] std::unexpected<Failure> ended(ibv_wc_status status) const;

    // Ends the connection and waits, up to two seconds, until the server knows.
    void close();

private:
    [[nodiscard]] Outcome<> request(const DevicePeer &device, const Hello &hello, const Queues &queues);
    [[nodiscard]] Outcome<rpma_conn_event> next_event(Milliseconds timeout);
    [[nodiscard]] Outcome<Offer> receive_offer();
    [[nodiscard]] Outcome<> take(const Offer &offer);

    Address address_;
    std::string name_;
    Milliseconds timeout_;
    RemoteRegion remote_;
    Connection connection_;
};

}  // namespace cli
