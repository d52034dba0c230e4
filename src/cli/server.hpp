// SPDX-License-Identifier: BSD-3-Clause
// cli/server: admits clients to a pool and lets them go. It does nothing for a write, a read or a flush:
// those are one-sided, and it sleeps meanwhile. Who measures has threads of his own (cli/perf_server).
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <unordered_map>

#include "base/fd.hpp"
#include "cli/peer.hpp"
#include "cli/perf_server.hpp"
#include "cli/pool.hpp"
#include "cli/protocol.hpp"

namespace cli {

// One thread. The pool and the peer outlive it.
class Server {
public:
    // `committed` is called after each push that ended with a commit.
    Server(const Pool &pool, const DevicePeer &device, std::function<void(const Content &)> committed)
        : pool_{pool}, device_{device}, committed_{std::move(committed)}, perf_{pool, device} {}
    Server(const Server &) = delete;
    Server &operator=(const Server &) = delete;

    // Registers the pool, for persistent flushes if its memory can be durable. Why it cannot is in the log
    // then.
    [[nodiscard]] Outcome<> register_pool();

    [[nodiscard]] Outcome<> listen(const Address &address);

    [[nodiscard]] Durability durability() const { return push_offer_.durability; }

    // Serves until `signal_fd` is readable. The other failures end single connections and are printed.
    [[nodiscard]] Outcome<> run(int signal_fd);

private:
    using Clock = std::chrono::steady_clock;
    struct Client {
        Connection connection;
        bool established;
        Clock::time_point since;
        PerfClient perf;  // goes first
    };

    [[nodiscard]] Outcome<> watch(int fd) const;
    void take_request();
    [[nodiscard]] Outcome<PerfClient> take_store_requests(rpma_conn_req *request);
    [[nodiscard]] Offer answer(const Hello &hello, rpma_conn_req *request, PerfClient &perf);
    void admit(ConnectionRequest request, const Hello &hello);
    void take_event(int fd);
    void drop(int fd);
    void drop_late();
    void report_push();

    const Pool &pool_;
    const DevicePeer &device_;
    std::function<void(const Content &)> committed_;
    PerfServer perf_;
    PerfArea requests_;  // where StoreRequests arrive
    LocalRegion push_region_;
    LocalRegion pull_region_;
    Offer push_offer_;
    Offer pull_offer_;
    ConnectionConfiguration configuration_;  // of connections to come
    Endpoint endpoint_;
    int endpoint_fd_ = -1;
    base::Fd epoll_;
    std::unordered_map<int, Client> clients_;  // by the fd of the connection's events
    std::size_t waiting_ = 0;                  // clients not established yet
    int pusher_ = -1;                          // its fd: at most one pushes, or two would mix in one slot
    std::uint64_t last_sequence_ = 0;
};

}  // namespace cli
