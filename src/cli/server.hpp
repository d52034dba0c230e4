// SPDX-License-Identifier: BSD-3-Clause
// cli/server: admits clients to a pool, commits what they push, and lets them go. It does nothing for a write
// or a read: those are one-sided, and it sleeps meanwhile. cli/storage does what waits for storage, and
// a client that measures has threads of its own (cli/perf_server).
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/fd.hpp"
#include "cli/peer.hpp"
#include "cli/perf_server.hpp"
#include "cli/pool.hpp"
#include "cli/protocol.hpp"
#include "cli/storage.hpp"

namespace cli {

struct ServerLimits {
    std::chrono::seconds push_lease{30};  // a push that asks for nothing for so long is ended
    std::chrono::seconds idle{60};        // a pull; a client that measures has ten times as long
    std::size_t clients = 256;
    std::size_t clients_per_address = 128;
};

// One thread. The pool outlives it.
class Server {
public:
    // `committed` is called after each commit, when its client has been told.
    Server(const Pool &pool, const ServerLimits &limits, std::function<void(const Content &)> committed)
        : pool_{pool},
          limits_{limits},
          committed_callback_{std::move(committed)},
          committed_{pool.content()},
          storage_{pool} {}
    Server(const Server &) = delete;
    Server &operator=(const Server &) = delete;

    // Registers the pool with the device and listens.
    [[nodiscard]] Outcome<> listen(const Address &address, DevicePeer device);

    [[nodiscard]] Durability durability() const { return durability_; }
    // Why that is None, behind ": ", as the device logged it; empty where it logged nothing.
    [[nodiscard]] const std::string &why_volatile() const { return why_volatile_; }

    // Serves until `signal_fd` is readable. The other failures end single connections and are printed.
    [[nodiscard]] Outcome<> run(int signal_fd);

private:
    using Clock = std::chrono::steady_clock;

    // Where clients come from. It outlives them.
    struct Port {
        DevicePeer device;
        DevicePeer
            pushers;  // on the same device: no other client's queue pair shares their protection domain
        PerfServer perf;
        std::array<LocalRegion, 2> pulled;  // a slot's content each; gives no right to write
        Endpoint endpoint;
        int fd = -1;
        Port(DevicePeer owned, DevicePeer of_pushers, const Pool &pool)
            : device{std::move(owned)}, pushers{std::move(of_pushers)}, perf{pool, device} {}
    };
    // Members go in the reverse order.
    struct Client {
        std::uint64_t number = 0;
        Port *port = nullptr;
        Mode mode{};
        bool admitted = false;  // or only told why not
        bool established = false;
        bool committing = false;
        bool answered = false;  // its commit
        std::string host;
        const DevicePeer *device = nullptr;  // the port's, of this client's role
        Clock::time_point begun;
        Clock::time_point active;
        Content content{};         // of a push
        std::uint64_t got = 0;     // the bytes that it has, as it says
        std::uint64_t asked = 0;   // and those that it asked to have stored
        std::uint64_t stored = 0;  // and those that were
        Mapping memory;            // requests, answers behind them
        LocalRegion messages;
        LocalRegion pushed;  // until it commits
        Connection connection;
        PerfClient perf;
    };
    enum class Source : std::uint32_t { Signal, Storage, Port, Event, Message };

    [[nodiscard]] Outcome<> watch(int fd, Source source, std::size_t key) const;
    [[nodiscard]] Outcome<> register_pool(Port &port);
    [[nodiscard]] Outcome<Durability> find_durability(const DevicePeer &device) const;
    void take_request(Port &port);
    void admit(Port &port, ConnectionRequest request, const Hello &hello);
    [[nodiscard]] Offer answer(const Hello &hello, rpma_conn_req *request, Client &client);
    [[nodiscard]] Offer status() const;
    [[nodiscard]] std::string why_full(const std::string &host) const;
    [[nodiscard]] std::string why_busy(Mode mode) const;
    [[nodiscard]] Outcome<Offer> offer(const Hello &hello, rpma_conn_req *request, Client &client);
    [[nodiscard]] Outcome<> prepare_messages(rpma_conn_req *request, Client &client) const;
    void take_event(int fd);
    void take_messages(int fd);
    [[nodiscard]] Outcome<> serve(Client &client, const ibv_wc &message);
    void come_further(Client &client, std::uint64_t &bytes, std::uint64_t now) const;
    [[nodiscard]] Outcome<> reply(const Client &client, std::uint64_t place, const Answer &answer) const;
    void finish_jobs();
    void finish(const Storage::Job &job);
    void drop(int fd);
    [[nodiscard]] Clock::duration patience(const Client &client) const;
    [[nodiscard]] Clock::time_point last_active(const Client &client) const;
    [[nodiscard]] int drop_late();
    [[nodiscard]] int next_wait();

    const Pool &pool_;
    ServerLimits limits_;
    std::function<void(const Content &)> committed_callback_;
    // Durable: what pulls are told. Neither the mapping's commit word nor the file's, which are so only
    // later.
    std::optional<Content> committed_;
    Storage storage_;
    std::size_t jobs_ = 0;   // that it has
    int storage_error_ = 0;  // errno of its first failure: no push is taken any more
    Durability durability_ = Durability::None;
    std::string why_volatile_;
    std::byte peer_configuration_{};
    ConnectionConfiguration configuration_;  // of connections to come
    std::vector<std::unique_ptr<Port>> ports_;
    base::Fd epoll_;
    std::unordered_map<int, Client> clients_;  // by the fd of the connection's events
    std::uint64_t last_number_ = 0;
    int pusher_ = -1;  // its fd: at most one pushes, or two would mix in one slot
};

}  // namespace cli
