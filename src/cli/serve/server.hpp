// SPDX-License-Identifier: BSD-3-Clause
// cli/serve/server: admits clients to a store, commits their pushes, and ends their connections. It does
// nothing for a write or a read: those are one-sided, and the server sleeps meanwhile. cli/store/storage does
// the work that waits for storage, and a client that measures has threads of its own (cli/perf/perf_server).
// So has one that pulls (answers.hpp), and the end of a connection that reads or writes memory of a file.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/fd.hpp"
#include "base/origin.hpp"
#include "cli/peer.hpp"
#include "cli/protocol/protocol.hpp"
#include "cli/random_number.hpp"
#include "cli/serve/client.hpp"
#include "cli/serve/metrics.hpp"
#include "cli/serve/permissions.hpp"
#include "cli/store/storage.hpp"
#include "cli/store/store.hpp"

namespace cli {

class Follower;

struct ServerLimits {
    std::chrono::seconds push_lease{30};  // a push that stores too little in this time is ended
    std::chrono::seconds idle{60};        // for a pull; a client that measures has ten times as long
    std::size_t clients = 256;
    std::size_t clients_per_origin = 128;
    std::size_t refused = 64;  // clients that are connected until they have the reason, beside the others
    Permissions permissions;
};

struct ServerEvent {
    enum class Kind : std::uint8_t { Committed, Refused, Aborted, Dropped, StorageFailed };
    Kind kind;
    const Who &who;
    std::string text;              // for people; empty for a commit
    const char *reason = nullptr;  // of Aborted, as in the metrics
    std::string name;              // of a commit, as the content
    std::optional<Content> content;
};

// One thread uses it. The store outlives it.
class Server {
public:
    // The metrics outlive it. `happened` is called for each commit, when its client has the answer, and for
    // what the log tells of clients and storage.
    Server(Store &store, ServerLimits limits, Metrics &metrics,
           std::function<void(const ServerEvent &)> happened)
        : store_{store}, metrics_{metrics}, limits_{std::move(limits)}, happened_{std::move(happened)} {}
    Server(const Server &) = delete;
    Server &operator=(const Server &) = delete;

    // Finds out whether the device can make memory durable, and listens.
    [[nodiscard]] Outcome<> listen(const Address &address, DevicePeer device);

    // Calls `changed` when `changes` is readable, after it has read what is there.
    void follow_addresses(base::Fd changes, std::function<void()> changed);
    [[nodiscard]] bool listens(const Address &address) const;
    // Stops listening at the addresses that are not wanted any more. Clients that are connected there stay.
    void stop_listening(const std::function<bool(const Address &)> &is_wanted);

    [[nodiscard]] Durability durability() const { return durability_; }
    // Returns ": " and the device's logged reason why durability is None; empty when it logged nothing.
    [[nodiscard]] const std::string &why_volatile() const { return why_volatile_; }

    // Takes no push, because all contents come from a leader. The follower outlives the server.
    void follow(const Follower &follower) { follower_ = &follower; }

    // Serves until `signal_fd` brings another signal than SIGHUP. At SIGHUP it ends the connections whose
    // clients would not be let in any more. The other failures end single connections and are printed.
    [[nodiscard]] Outcome<> run(int signal_fd);

private:
    using Clock = std::chrono::steady_clock;

    // Storage has opened this for a client that asks to connect.
    struct Opened {
        Outcome<Download> download = Download{};
        Outcome<Store::NewestTag> newest_tag;
        Outcome<> measured;
    };
    // A client that asks to connect, and waits until storage has opened what it wants.
    struct Arrival {
        Client client;
        ConnectionRequest request;
        Hello hello;
        Clock::time_point since;
        std::shared_ptr<Opened> opened;
        bool may_be_out = false;  // the files of TLS have been read again since it came
    };
    enum class Awaited : std::uint32_t { Signal, Storage, Addresses, Port, Event, Message };

    [[nodiscard]] Outcome<> watch(int fd, Awaited awaited, std::size_t key) const;
    [[nodiscard]] Outcome<> prepare(const Port &port);
    [[nodiscard]] Outcome<Durability> find_durability(const DevicePeer &device) const;
    // These return whether the server goes on.
    [[nodiscard]] bool take(std::uint64_t event, int signal_fd);
    [[nodiscard]] bool goes_on(int signal_fd);
    // Tells the log and `happened`. What peers can cause without end becomes a count in the log.
    void tell(ServerEvent::Kind kind, const Who &who, const std::string &text,
              const char *reason = nullptr) const;
    void abort(const Who &who, const char *reason, const std::string &text) const;
    void tell_verdict(const Storage::Job &job) const;
    void end_unknown();
    void take_request(const std::shared_ptr<Port> &port);
    void take_change();
    void admit(Client client, ConnectionRequest request, const Hello &hello);
    void open(Arrival arrival);
    void finish_opening(Storage::Job &job);
    [[nodiscard]] Clock::duration refuse_late_arrivals();
    void accept(Arrival arrival, const Offer &offer);
    [[nodiscard]] Offer refuse(const Client &client, Status status, const std::string &reason) const;
    [[nodiscard]] std::optional<Offer> refusal(Arrival &arrival) const;
    [[nodiscard]] Offer answer(Arrival &arrival);
    [[nodiscard]] std::string why_not(Mode mode, const rpma_conn_req *request,
                                      const std::string &identity) const;
    [[nodiscard]] Health health() const;
    void tell_of_storage(Health &health) const;
    [[nodiscard]] std::string why_full(const Client &client) const;
    [[nodiscard]] std::string why_busy(const std::string &name) const;
    [[nodiscard]] std::string why_no_push() const;
    [[nodiscard]] std::string why_follows(Mode mode) const;
    [[nodiscard]] int pusher_of(const std::string &name) const;
    void make_room_for_refused();
    [[nodiscard]] Outcome<Offer> offer(Arrival &arrival);
    [[nodiscard]] static Outcome<> give(rpma_conn_req *request, Client &client, const Memory &memory,
                                        int usage, Offer &offer);
    [[nodiscard]] Outcome<> prepare_messages(rpma_conn_req *request, Client &client) const;
    void take_event(int fd);
    void take_messages(int fd);
    [[nodiscard]] Outcome<> serve(Client &client, const ibv_wc &message);
    [[nodiscard]] Outcome<> look(Client &client, std::size_t place, const Request &request);
    void finish_jobs();
    void finish(Storage::Job &job);
    [[nodiscard]] bool fills_slowly(const Client &client) const;
    void make_room(Storage::Job job);
    void answer_request(int fd, Client &client, Storage::Job &job);
    void end(int fd, Ending ending, const std::string &why);
    void drop(int fd, const std::string &why = {}, const char *reason = "connection_lost",
              std::optional<Ending> told = std::nullopt);
    void leave(Client gone, std::optional<Ending> told);
    void forget_left();
    void answer_without_look(int fd);
    [[nodiscard]] Clock::duration answer_late_looks();
    [[nodiscard]] Clock::duration patience(const Client &client) const;
    [[nodiscard]] Clock::time_point last_active(const Client &client) const;
    [[nodiscard]] int drop_late();
    [[nodiscard]] int next_wait();

    Store &store_;
    Metrics &metrics_;
    ServerLimits limits_;
    const Follower *follower_ = nullptr;  // of a server that follows another one
    std::function<void(const ServerEvent &)> happened_;
    Clock::time_point begun_ = Clock::now();
    std::uint64_t instance_ = random_number();
    Listed last_commit_;     // since the server began; its sequence is 0 without one
    int storage_error_ = 0;  // errno of its first failure; no push is admitted after it
    Durability durability_ = Durability::None;
    std::string why_volatile_;
    std::byte peer_configuration_{};
    ConnectionConfiguration configuration_;                 // for new connections
    std::map<std::uint32_t, std::shared_ptr<Port>> ports_;  // by a number that none has again
    std::uint32_t last_port_ = 0;
    base::Fd changes_;  // of the machine's addresses
    std::function<void()> changed_;
    Storage storage_;  // ends before the devices of the ports, whose memory it may hold
    base::Fd epoll_;
    std::unordered_map<int, Client> clients_;    // by the fd of the connection's events
    std::map<std::uint64_t, Arrival> arrivals_;  // by the client's number
    std::deque<int> unread_;  // fds of clients that may have more messages, each once, in turn
    std::uint64_t last_number_ = 0;
    // The fds of the clients that push, by name. At most one client pushes each, because the next one would
    // have the same sequence.
    std::map<std::string, int> pushers_;
    // A push that would fill its room in more leases than these loses it to one that finds none. Each time
    // that happens the others have twice as many, until one commits: two that are equally slow would end each
    // other for ever.
    static constexpr std::uint64_t least_leases_with_room = 100;
    std::uint64_t leases_with_room_ = least_leases_with_room;
    // The commits that storage has not ended, by name. Its client may have left meanwhile.
    struct Commit {
        Who who;
        Clock::time_point since;
    };
    std::map<std::string, Commit> commits_;
    // The connections that end in threads of their own.
    struct Leaving {
        base::Origin origin;
        std::shared_ptr<std::atomic<bool>> has_left;
        std::thread thread;
        Leaving(base::Origin of, std::shared_ptr<std::atomic<bool>> flag, std::thread leaves)
            : origin{of}, has_left{std::move(flag)}, thread{std::move(leaves)} {}
        Leaving(const Leaving &) = delete;
        Leaving &operator=(const Leaving &) = delete;
        ~Leaving() { thread.join(); }
    };
    std::list<Leaving> leaving_;
};

}  // namespace cli
