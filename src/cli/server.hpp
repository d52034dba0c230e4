// SPDX-License-Identifier: BSD-3-Clause
// cli/server: admits clients to a pool, commits their pushes, and ends their connections. It does nothing for
// a write or a read: those are one-sided, and the server sleeps meanwhile. cli/storage does the work that
// waits for storage, and a client that measures has threads of its own (cli/perf_server).
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/fd.hpp"
#include "cli/peer.hpp"
#include "cli/perf_server.hpp"
#include "cli/permissions.hpp"
#include "cli/pool.hpp"
#include "cli/protocol.hpp"
#include "cli/storage.hpp"

namespace cli {

struct ServerLimits {
    std::chrono::seconds push_lease{30};  // a push without a request for this time is ended
    std::chrono::seconds idle{60};        // for a pull; a client that measures has ten times as long
    std::size_t clients = 256;
    std::size_t clients_per_address = 128;
    Permissions permissions;
};

// One thread uses it. The pool outlives it.
class Server {
public:
    // `committed` is called after each commit, when its client has the answer.
    Server(const Pool &pool, ServerLimits limits, std::function<void(const Content &)> committed)
        : pool_{pool},
          limits_{std::move(limits)},
          committed_callback_{std::move(committed)},
          committed_{pool.content()},
          storage_{pool} {}
    Server(const Server &) = delete;
    Server &operator=(const Server &) = delete;

    // Registers the pool with the device and listens.
    [[nodiscard]] Outcome<> listen(const Address &address, DevicePeer device);

    [[nodiscard]] Durability durability() const { return durability_; }
    // Returns ": " and the device's logged reason why durability is None; empty when it logged nothing.
    [[nodiscard]] const std::string &why_volatile() const { return why_volatile_; }

    // Serves until `signal_fd` brings another signal than SIGHUP. At SIGHUP it ends the connections whose
    // clients would not be let in any more. The other failures end single connections and are printed.
    [[nodiscard]] Outcome<> run(int signal_fd);

private:
    using Clock = std::chrono::steady_clock;

    // A place where clients connect. It outlives them.
    struct Port {
        DevicePeer device;
        DevicePeer
            pushers;  // on the same device; no other client's queue pair shares their protection domain
        PerfServer perf;
        std::array<LocalRegion, 2> pulled;  // one for each slot's content, without the right to write
        Endpoint endpoint;
        int fd = -1;
        Port(DevicePeer owned, DevicePeer of_pushers, const Pool &pool)
            : device{std::move(owned)}, pushers{std::move(of_pushers)}, perf{pool, device} {}
    };
    // The members are destroyed in the reverse order.
    struct Client {
        std::uint64_t number = 0;
        Port *port = nullptr;
        Mode mode{};
        bool admitted = false;  // otherwise it only gets the reason of the refusal
        bool established = false;
        bool committing = false;
        bool answered = false;  // its commit has been answered
        std::string host;
        std::string identity;                // of its key or certificate; empty without TLS
        const DevicePeer *device = nullptr;  // the port's device for this client's role
        Clock::time_point begun;
        Clock::time_point active;
        Content content{};         // of a push
        std::uint64_t got = 0;     // the bytes that it has read, by its own report
        std::uint64_t asked = 0;   // the bytes that it asked to have stored
        std::uint64_t stored = 0;  // the bytes that were stored
        Mapping memory;            // requests, and answers after them
        LocalRegion messages;
        LocalRegion pushed;  // until it commits
        Connection connection;
        PerfClient perf;
    };
    enum class Awaited : std::uint32_t { Signal, Storage, Port, Event, Message };

    [[nodiscard]] Outcome<> watch(int fd, Awaited awaited, std::size_t key) const;
    [[nodiscard]] Outcome<> register_pool(Port &port);
    [[nodiscard]] Outcome<Durability> find_durability(const DevicePeer &device) const;
    // Takes a signal. Returns whether the server goes on.
    [[nodiscard]] bool goes_on(int signal_fd);
    void end_unknown();
    void take_request(Port &port);
    void admit(Port &port, ConnectionRequest request, const Hello &hello);
    [[nodiscard]] Offer answer(const Hello &hello, rpma_conn_req *request, Client &client);
    [[nodiscard]] std::string why_not(Mode mode, const rpma_conn_req *request,
                                      const std::string &identity) const;
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
    // The durable content, which pulls get. It is not read from the commit word of the mapping or of the
    // file, because these change before they are durable.
    std::optional<Content> committed_;
    Storage storage_;
    std::size_t jobs_ = 0;   // the jobs that it has
    int storage_error_ = 0;  // errno of its first failure; no push is admitted after it
    Durability durability_ = Durability::None;
    std::string why_volatile_;
    std::byte peer_configuration_{};
    ConnectionConfiguration configuration_;  // for new connections
    std::vector<std::unique_ptr<Port>> ports_;
    base::Fd epoll_;
    std::unordered_map<int, Client> clients_;  // by the fd of the connection's events
    std::uint64_t last_number_ = 0;
    int pusher_ = -1;  // its fd; at most one client pushes, because two would mix in one slot
};

}  // namespace cli
