// SPDX-License-Identifier: BSD-3-Clause
// cli/serve/server: decides which clients are admitted, and to which memory.
#include <netdb.h>

#include <algorithm>
#include <cerrno>
#include <new>

#include "base/address.hpp"
#include "base/log.hpp"
#include "cli/log.hpp"
#include "cli/serve/follower.hpp"
#include "cli/serve/server.hpp"
#include "stream/wire.hpp"

namespace cli {

namespace {

// A client waits so long until storage has opened what it wants, where that is not read. Its device waits
// longer for an answer.
constexpr auto longest_opening = std::chrono::seconds{5};

std::string host_of(const sockaddr_storage &address) {
    std::array<char, NI_MAXHOST> text{};
    if (getnameinfo(reinterpret_cast<const sockaddr *>(&address), base::length_of(address), text.data(),
                    text.size(), nullptr, 0, NI_NUMERICHOST) != 0) {
        return "an unknown address";
    }
    return text.data();
}

std::uint64_t seconds_since(std::chrono::steady_clock::time_point begun) {
    return static_cast<std::uint64_t>(
        std::chrono::floor<std::chrono::seconds>(std::chrono::steady_clock::now() - begun).count());
}

// Registers memory that the other side of this connection may reach; on the soft device no other peer reaches
// it. On a kernel device each role has its own protection domain.
Outcome<LocalRegion> register_for(rpma_conn_req *request, const DevicePeer &device, const Memory &memory,
                                  int usage) {
    const auto bytes = memory.bytes;
    rpma_mr_local *region = nullptr;
    const int result = rpma_conn_req_mr_reg(request, bytes.data(), bytes.size(), usage, &region);
    if (result == RPMA_E_NOSUPP) {
        LocalRegion registered = TRY(register_memory(device, bytes, usage));
        registered.get_deleter().memory = memory.owner;
        return registered;
    }
    TRY(checked(result, "cannot register {} bytes with {}", bytes.size(), device.name));
    return LocalRegion{region, Deregistration{memory.owner}};
}

}  // namespace

void Server::take_request(const std::shared_ptr<Port> &port) {
    clear_log();  // the lines of the client before
    rpma_conn_req *requested = nullptr;
    const int result = rpma_ep_next_bare_req(port->endpoint.get(), &requested);
    if (result == RPMA_E_NO_EVENT) {
        return;
    }
    if (result != 0) {
        BASE_LOG_PEER(Warning, "rejected a client%s", reason_of(result).c_str());
        return;
    }
    ConnectionRequest request{requested};
    rpma_conn_private_data data{};
    (void)rpma_conn_req_get_private_data(requested, &data);
    const std::span bytes{static_cast<const std::byte *>(data.ptr), data.len};
    const auto hello = decode_hello(bytes);
    sockaddr_storage peer{};
    (void)rpma_conn_req_get_peer_addr(requested, &peer);
    Client client;
    client.port = port;
    client.who.host = host_of(peer);
    client.origin = base::origin_of(peer);
    if (hello) {
        admit(std::move(client), std::move(request), *hello);
    } else if (stream::decode_hello(bytes)) {
        // It is a program on rsockets, or `rpma check`, which asks as one.
        BASE_LOG(Info, "rejected a peer at %s: it is a client of rsockets", client.who.host.c_str());
    } else {
        tell(ServerEvent::Kind::Refused, client.who,
             fmt::format("rejected a peer at {}: it {}", client.who.host, hello.error().text));
    }
}

// Returns the reason why a client with this identity may not do this; empty when it may. Its key or
// certificate may have been taken away since its handshake.
std::string Server::why_not(Mode mode, const rpma_conn_req *request, const std::string &identity) const {
    bool known = true;
    if (!identity.empty() && rpma_conn_req_check_identity(request, &known) != 0) {
        return "the server cannot use its files of TLS";
    }
    if (!known) {
        return fmt::format("the identity {} is not let in any more", identity);
    }
    return limits_.permissions.why_not(mode, identity);
}

// Returns the reason why no more clients are admitted from where this one is; empty when they are. Those for
// which storage opens something have their places. There are as many places for those that have left, until
// storage has released what they had, and only clients that need the same of it wait for these.
std::string Server::why_full(const Client &client) const {
    std::size_t all = arrivals_.size();
    std::size_t same = 0;
    for (const auto &[number, arrival] : arrivals_) {
        same += arrival.client.origin == client.origin ? 1 : 0;
    }
    for (const auto &[fd, other] : clients_) {
        all += other.is_admitted() ? 1 : 0;
        same += other.is_admitted() && other.origin == client.origin ? 1 : 0;
    }
    const std::string from =
        client.who.host + (client.who.host.contains(':') ? " and its network of 64 bits" : "");
    if (all >= limits_.clients) {
        return fmt::format("{} clients are connected, no more are taken", limits_.clients);
    }
    if (same >= limits_.clients_per_origin) {
        return fmt::format("{} clients from {} are connected, no more are taken from there",
                           limits_.clients_per_origin, from);
    }
    Storage::Leaving leaving{};
    if (client.mode == Mode::Push) {
        leaving = storage_.leaving(client.origin);
    } else if (client.mode == Mode::Pull || client.mode == Mode::MeasureDurable) {
        for (const Leaving &one : leaving_) {
            if (!one.has_left->load()) {
                ++leaving.all;
                leaving.of_origin += one.origin == client.origin ? 1 : 0;
            }
        }
    }
    if (leaving.all >= limits_.clients) {
        return fmt::format("storage has not released what {} clients had that left, no more are taken",
                           limits_.clients);
    }
    if (leaving.of_origin >= limits_.clients_per_origin) {
        return fmt::format(
            "storage has not released what {} clients from {} had that left, no more are taken from there",
            limits_.clients_per_origin, from);
    }
    return {};
}

// Returns the reason why the server takes no push; empty when it does.
std::string Server::why_no_push() const {
    if (storage_error_ != 0) {
        return fmt::format(
            "the server could not make data durable: {}; it takes no push until it is started again",
            errno_text(storage_error_));
    }
    return store_.why_no_push();
}

// Returns the reason why a server that follows another one does not do this; empty when it does. A tag would
// make it one of the servers of a register, of which it is none.
std::string Server::why_follows(Mode mode) const {
    const bool is_refused = follower_ != nullptr && (mode == Mode::Push || mode == Mode::Tag);
    return is_refused ? fmt::format("this server follows {}, and takes contents from there alone",
                                    follower_->leader())
                      : "";
}

// Returns the fd of the client that pushes this name, and -1 without one.
int Server::pusher_of(const std::string &name) const {
    const auto found = pushers_.find(name);
    return found != pushers_.end() ? found->second : -1;
}

// Returns the reason why this name may not be pushed yet; empty when it may.
std::string Server::why_busy(const std::string &name) const {
    const int fd = pusher_of(name);
    if (fd < 0) {
        const auto commit = commits_.find(name);
        return commit == commits_.end()
                   ? ""
                   : fmt::format(
                         "the commit of a push from {} has been under way for {} seconds, and its client has "
                         "left",
                         commit->second.who.host, seconds_since(commit->second.since));
    }
    const Client &pusher = clients_.at(fd);
    return fmt::format("another push is under way, from {} for {} seconds", pusher.who.host,
                       seconds_since(pusher.begun));
}

Offer Server::refuse(const Client &client, Status status, const std::string &reason) const {
    if (status != Status::Version && status != Status::Busy) {
        tell(ServerEvent::Kind::Refused, client.who,
             fmt::format("refused a client from {}: {}", client.who.text(), reason));
    }
    return Offer{.status = status, .reason = reason};
}

// Returns why the client is not admitted, as far as that shows without a look at a file; nothing otherwise.
std::optional<Offer> Server::refusal(Arrival &arrival) const {
    Client &client = arrival.client;
    const Hello &hello = arrival.hello;
    if (hello.version != protocol_version) {
        return refuse(client, Status::Version, {});
    }
    const char *identity = nullptr;
    (void)rpma_conn_req_get_identity(arrival.request.get(), &identity);
    client.who.identity = identity != nullptr ? identity : "";
    if (const std::string why = why_not(hello.mode, arrival.request.get(), client.who.identity);
        !why.empty()) {
        return refuse(client, Status::Limit, why);
    }
    // A client that asks for the status takes no place.
    if (const std::string full = why_full(client); !full.empty() && hello.mode != Mode::Status) {
        return refuse(client, Status::Full, full);
    }
    if (const std::string why = why_follows(hello.mode); !why.empty()) {
        return refuse(client, Status::Failed, why);
    }
    if (hello.mode == Mode::Push || hello.mode == Mode::MeasureDurable) {
        const std::string busy = hello.mode == Mode::Push ? why_busy(hello.name) : "";
        if (!busy.empty()) {
            return refuse(client, Status::Busy, busy);
        }
        if (const std::string why = why_no_push(); !why.empty()) {
            return refuse(client, Status::Failed, why);
        }
    }
    return std::nullopt;
}

Offer Server::answer(Arrival &arrival) {
    try {
        auto offered = offer(arrival);
        return offered ? *std::move(offered) : refuse(arrival.client, Status::Failed, offered.error().text);
    } catch (const std::bad_alloc &) {
        return refuse(arrival.client, Status::Failed, "cannot allocate memory");
    }
}

// Returns the server's part of the status.
Health Server::health() const {
    const auto admitted = [](const auto &entry) { return entry.second.is_admitted(); };
    Health health;
    health.version = RPMA_VERSION;
    health.uptime_seconds = seconds_since(begun_);
    health.memory = durability_text(durability_);
    health.durable = durability_ != Durability::None;
    health.clients = static_cast<std::uint64_t>(std::ranges::count_if(clients_, admitted));
    health.last = last_commit_;
    for (const auto &[name, fd] : pushers_) {
        const Client &pusher = clients_.at(fd);
        health.pushes.push_back({name, pusher.who.host, pusher.who.identity, seconds_since(pusher.begun)});
    }
    for (const auto &[name, commit] : commits_) {
        health.commits.push_back(
            {{name, commit.who.host, commit.who.identity, seconds_since(commit.since)}, pusher_of(name) < 0});
    }
    tell_of_storage(health);
    if (follower_ != nullptr) {
        follower_->tell(health);
    }
    return health;
}

// Tells what is wrong with storage, as far as it shows without a look at a file.
void Server::tell_of_storage(Health &health) const {
    if (storage_error_ != 0) {
        health.reasons.push_back(
            {"storage",
             {},
             0,
             fmt::format("failed: {}; no push is taken until the server is started again",
                         errno_text(storage_error_))});
    }
    if (const auto oldest = storage_.oldest(); oldest && Clock::now() - oldest->since >= limits_.push_lease) {
        health.reasons.push_back({"slow", oldest->name, 0,
                                  fmt::format("storage has not done what a push from {} asked for, for {} "
                                              "seconds",
                                              oldest->who.text(), seconds_since(oldest->since))});
    }
}

Outcome<Offer> Server::offer(Arrival &arrival) {
    const Hello &hello = arrival.hello;
    Client &client = arrival.client;
    rpma_conn_req *const request = arrival.request.get();
    Port &port = *client.port;
    Offer offer{.durability = durability_,
                .capacity = store_.capacity(),
                .peer_configuration = peer_configuration_,
                .instance = instance_};
    if (hello.mode == Mode::Measure || hello.mode == Mode::MeasureDurable) {
        if (arrival.opened) {
            TRY(arrival.opened->measured);
        }
        // A flush of a copy makes nothing durable.
        offer.durability = store_.is_copied() ? Durability::None : durability_;
        client.perf = TRY(port.perf.admit(hello, request, client.area, offer));
        return offer;
    }
    TRY(prepare_messages(request, client));
    if (hello.mode == Mode::Push) {
        auto window = std::make_shared<Mapping>(window_size, MAP_PRIVATE | MAP_ANONYMOUS, -1);
        if (!*window) {
            return failed("cannot allocate memory: {}", errno_text(errno));
        }
        const Memory memory{window->bytes(), window};
        client.push = std::make_unique<Push>(TRY(store_.upload(hello.name)), memory);
        offer.sequence = client.push->upload()->sequence();
        offer.tag = client.push->upload()->newest_tag();
        TRY(give(request, client, memory, RPMA_MR_USAGE_WRITE_DST, offer));
        return offer;
    }
    if (hello.mode == Mode::List && !hello.name.empty() && !store_.has(hello.name)) {
        return failed("{} has no content {}", store_.text(), hello.name);
    }
    if (hello.mode == Mode::Tag) {
        const Store::NewestTag newest = TRY(arrival.opened->newest_tag);
        offer.status = newest.is_lost ? Status::Forgot : Status::Ok;
        offer.tag = newest.tag;
        offer.sequence = newest.sequence;
        return offer;
    }
    if (hello.mode == Mode::List || hello.mode == Mode::Status) {
        return offer;
    }
    const Download download = TRY(std::move(arrival.opened->download));
    metrics_.pulled(download.content.length);
    offer.sequence = download.content.sequence;
    offer.length = download.content.length;
    offer.checksum = download.content.checksum;
    offer.tag = download.tag;
    TRY(give(request, client, download.memory, RPMA_MR_USAGE_READ_SRC, offer));
    client.pull =
        std::make_unique<PullAnswers>(client.where(), *client.device,
                                      [&store = std::as_const(store_), name = hello.name,
                                       sequence = offer.sequence] { return store.blocks(name, sequence); });
    return offer;
}

// Gives a client memory, which the offer names.
Outcome<> Server::give(rpma_conn_req *request, Client &client, const Memory &memory, int usage,
                       Offer &offer) {
    client.regions.push_back(TRY(register_for(request, *client.device, memory, usage)));
    return checked(rpma_mr_get_descriptor(client.regions.back().get(), offer.memory_region.data()),
                   "memory region");
}

Outcome<> Server::prepare_messages(rpma_conn_req *request, Client &client) const {
    client.memory = Mapping{page_size, MAP_PRIVATE | MAP_ANONYMOUS, -1};
    if (!client.memory) {
        return failed("cannot allocate memory: {}", errno_text(errno));
    }
    client.messages =
        TRY(register_memory(*client.device, client.memory.bytes(), RPMA_MR_USAGE_RECV | RPMA_MR_USAGE_SEND));
    for (std::uintptr_t place = 0; place < most_requests; ++place) {
        TRY(checked(rpma_conn_req_recv(request, client.messages.get(), place * sizeof(RequestBytes),
                                       sizeof(RequestBytes), reinterpret_cast<void *>(place)),
                    "cannot post a receive"));
    }
    return {};
}

// The oldest refused client makes room, one of the origin that has most of them. It has had its answer,
// unless it is slow; its origin alone can be the reason.
void Server::make_room_for_refused() {
    base::Shares shares;
    const auto was_refused = [](const auto &entry) { return !entry.second.is_admitted(); };
    if (std::cmp_less(std::ranges::count_if(clients_, was_refused), limits_.refused)) {
        return;
    }
    for (const auto &[fd, client] : clients_) {
        if (!client.is_admitted()) {
            shares.add(client.origin);
        }
    }
    const std::size_t most = shares.most();
    int oldest = -1;
    for (const auto &[fd, client] : clients_) {
        if (!client.is_admitted() && shares.of(client.origin) == most &&
            (oldest < 0 || client.number < clients_.at(oldest).number)) {
            oldest = fd;
        }
    }
    drop(oldest);
}

void Server::admit(Client client, ConnectionRequest request, const Hello &hello) {
    if (const int pusher = pusher_of(hello.name); pusher >= 0) {
        take_event(pusher);  // the event may be its end
    }
    client.number = ++last_number_;
    client.mode = hello.mode;
    client.name = hello.name;
    client.begun = Clock::now();
    client.activity.be_active();
    client.device = client.port->device;
    if (hello.mode == Mode::Push && !client.device->is_soft) {
        auto own = open_peer(client.port->address, RPMA_UTIL_IBV_CONTEXT_LOCAL);
        if (!own) {
            BASE_LOG_PEER(Warning, "rejected a client from %s: %s", client.who.host.c_str(),
                          own.error().text.c_str());
            return;
        }
        client.device = std::make_shared<const DevicePeer>(*std::move(own));
    }
    if (const auto prepared =
            checked(rpma_conn_req_prepare(request.get(), client.device->peer.get(), configuration_.get()),
                    "rejected a client from {}", client.who.host);
        !prepared) {
        BASE_LOG_PEER(Warning, "%s", prepared.error().text.c_str());
        return;
    }
    Arrival arrival{.client = std::move(client),
                    .request = std::move(request),
                    .hello = hello,
                    .since = Clock::now(),
                    .opened = nullptr};
    if (const auto refused = refusal(arrival)) {
        return accept(std::move(arrival), *refused);
    }
    if (hello.mode == Mode::Pull || hello.mode == Mode::Tag || hello.mode == Mode::MeasureDurable) {
        return open(std::move(arrival));
    }
    const Offer offer = answer(arrival);
    accept(std::move(arrival), offer);
}

// Has storage open what the client wants.
void Server::open(Arrival arrival) {
    const Client &client = arrival.client;
    const std::uint64_t number = client.number;
    arrival.opened = std::make_shared<Opened>();
    Storage::Job job = client.job({.ask = Ask::Look});
    // The file in which clients measure is made in the store, and no pull waits for a change of the store.
    job.kind = arrival.hello.mode == Mode::MeasureDurable ? Storage::Kind::Push : Storage::Kind::Open;
    job.open = [&store = store_, hello = arrival.hello, opened = arrival.opened] {
        if (hello.mode == Mode::Pull) {
            opened->download = store.download(hello.name, hello.sequence);
        } else if (hello.mode == Mode::Tag) {
            opened->newest_tag = store.newest_tag(hello.name);
        } else if (const auto measured = store.measured(); !measured) {
            opened->measured = std::unexpected{measured.error()};
        }
    };
    arrivals_.emplace(number, std::move(arrival));
    storage_.submit(std::move(job));
}

// Accepts the client for which storage has opened something. What the server takes may have changed since it
// came.
void Server::finish_opening(Storage::Job &job) {
    const auto found = arrivals_.find(job.client);
    if (found == arrivals_.end()) {
        job.releases = true;  // it may have large memory
        return storage_.submit(std::move(job));
    }
    Arrival arrival = std::move(found->second);
    arrivals_.erase(found);
    if (const auto refused = refusal(arrival)) {
        return accept(std::move(arrival), *refused);
    }
    const Offer offer = job.answer.error == 0
                            ? answer(arrival)
                            : refuse(arrival.client, Status::Failed,
                                     fmt::format("cannot open it: {}", errno_text(job.answer.error)));
    accept(std::move(arrival), offer);
}

// Refuses those that have waited long enough for storage, and returns the time until the next has.
Server::Clock::duration Server::refuse_late_arrivals() {
    const auto now = Clock::now();
    const std::chrono::seconds patience = store_.is_copied() ? limits_.idle : longest_opening;
    while (!arrivals_.empty()) {
        const auto oldest = arrivals_.begin();
        if (const auto left = oldest->second.since + patience - now; left > Clock::duration::zero()) {
            return left;
        }
        Arrival arrival = std::move(oldest->second);
        arrivals_.erase(oldest);
        storage_.cancel(arrival.client.number, arrival.client.origin);
        const Offer offer = refuse(arrival.client, Status::Failed,
                                   fmt::format("storage has not opened it for {} seconds", patience.count()));
        accept(std::move(arrival), offer);
    }
    return Clock::duration::max();
}

void Server::accept(Arrival arrival, const Offer &offer) {
    Client client = std::move(arrival.client);
    const Mode mode = arrival.hello.mode;
    client.standing = offer.status != Status::Ok ? Standing::Refused
                      : mode == Mode::Status     ? Standing::Told
                                                 : Standing::Admitted;
    if (!client.is_admitted()) {
        make_room_for_refused();
    }
    OfferBytes bytes = encode_offer(offer);
    const rpma_conn_private_data data{bytes.data(), sizeof(bytes)};
    rpma_conn_req *consumed = arrival.request.release();
    rpma_conn *accepted = nullptr;
    if (const int result = rpma_conn_req_connect(&consumed, &data, &accepted); result != 0) {
        BASE_LOG_PEER(Warning, "cannot accept a client%s", reason_of(result).c_str());
        return;
    }
    client.connection.reset(accepted);
    bool known = true;
    if (arrival.may_be_out && (rpma_conn_check_identity(accepted, &known) != 0 || !known)) {
        tell(ServerEvent::Kind::Dropped, client.who,
             fmt::format("dropped a client from {}: the identity {} is not let in any more",
                         client.who.text(), client.who.identity));
        return;
    }
    int fd = -1;
    (void)rpma_conn_get_event_fd(accepted, &fd);
    auto watched = watch(fd, Awaited::Event, static_cast<std::size_t>(fd));
    if (client.messages && !client.pull && watched) {
        rpma_cq *completions = nullptr;
        int completions_fd = -1;
        (void)rpma_conn_get_cq(accepted, &completions);
        (void)rpma_cq_get_fd(completions, &completions_fd);
        watched = watch(completions_fd, Awaited::Message, static_cast<std::size_t>(fd));
    }
    if (!watched) {
        BASE_LOG_PEER(Warning, "%s", watched.error().text.c_str());
        return;
    }
    if (mode == Mode::Push && client.is_admitted()) {
        pushers_.emplace(arrival.hello.name, fd);
    }
    clients_.emplace(fd, std::move(client));
}

}  // namespace cli
