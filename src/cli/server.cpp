// SPDX-License-Identifier: BSD-3-Clause
// cli/server: one epoll loop over the endpoint, the connections' events and a signalfd.
#include "cli/server.hpp"

#include <fcntl.h>
#include <sys/epoll.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <utility>
#include <vector>

#include "cli/log.hpp"

namespace cli {

namespace {

constexpr std::size_t most_clients = 256;
// A client that was accepted and then never says anything.
constexpr auto establish_timeout = std::chrono::seconds{10};

void complain(const std::string &text) {
    std::fputs(fmt::format("rpma: {}\n", text).c_str(), stderr);
}

}  // namespace

Outcome<> Server::register_pool() {
    constexpr int usage =
        RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY;
    clear_log();
    // A kernel device answers a flush once the bytes are in memory: durable when that memory is, not in a
    // page cache.
    bool durable = device_.is_soft || pool_.is_dax();
    const bool by_message = pool_.is_copied();
    if (durable) {
        auto region = register_memory(device_, pool_.region(), usage | RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT);
        durable = region.has_value();
        push_region_ = std::move(region).value_or(nullptr);
    }
    if (!durable) {
        push_region_ = TRY(register_memory(device_, pool_.region(), usage));
    }
    // Pullers get no right to write.
    pull_region_ = TRY(register_memory(device_, pool_.region(), RPMA_MR_USAGE_READ_SRC));

    rpma_peer_cfg *configuration = nullptr;
    TRY(checked(rpma_peer_cfg_new(&configuration), "peer configuration"));
    const PeerConfiguration owner{configuration};
    Offer offer{.capacity = pool_.layout().capacity};
    if (durable) {
        offer.durability = pool_.is_dax() ? Durability::Dax : Durability::PageCache;
    } else if (by_message) {
        offer.durability = Durability::ByMessage;
    }
    // The sizes of both descriptors are librpma's API.
    TRY(checked(rpma_peer_cfg_set_direct_write_to_pmem(configuration, durable), "peer configuration"));
    TRY(checked(rpma_peer_cfg_get_descriptor(configuration, &offer.peer_configuration),
                "peer configuration"));
    push_offer_ = pull_offer_ = offer;
    TRY(checked(rpma_mr_get_descriptor(push_region_.get(), push_offer_.memory_region.data()),
                "memory region"));
    return checked(rpma_mr_get_descriptor(pull_region_.get(), pull_offer_.memory_region.data()),
                   "memory region");
}

// Of a pusher, when the pool is served from a copy.
Outcome<PerfClient> Server::take_store_requests(rpma_conn_req *request) {
    constexpr std::size_t size = sizeof(StoreRequestBytes);
    const auto store = [this](std::span<const std::byte> message) {
        const auto wanted = decode_store_request(message);
        if (!wanted) {
            complain(fmt::format("ended a push: it {}", wanted.error().text));
            return false;
        }
        const auto stored = pool_.store(wanted->offset, wanted->length);
        if (!stored) {
            complain(stored.error().text);
        }
        return stored.has_value();
    };
    if (!requests_.region) {
        requests_.size = most_store_requests * size;
        requests_.scratch = Mapping{requests_.size, MAP_PRIVATE | MAP_ANONYMOUS, -1};
        requests_.region = TRY(register_memory(device_, requests_.scratch.bytes(), RPMA_MR_USAGE_RECV));
    }
    PerfClient client;
    const Hello messages{first_version, Mode::Push, most_store_requests, size};
    client.messages = std::make_unique<MessageAnswers>(requests_, messages, store);
    TRY(client.messages->prepare(request));
    return client;
}

Outcome<> Server::watch(int fd) const {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    const int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0 ||
        epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
        return failed("cannot wait for events: {}", errno_text(errno));
    }
    return {};
}

Outcome<> Server::listen(const Address &address) {
    clear_log();
    rpma_ep *endpoint = nullptr;
    TRY(checked(rpma_ep_listen(device_.peer.get(), address.host.c_str(), address.port.c_str(), &endpoint),
                "cannot listen on {} (expected a free port)", address.text()));
    endpoint_.reset(endpoint);
    rpma_conn_cfg *configuration = nullptr;
    TRY(checked(rpma_conn_cfg_new(&configuration), "connection configuration"));
    configuration_.reset(configuration);
    (void)rpma_conn_cfg_set_rq_size(configuration, most_messages);
    (void)rpma_conn_cfg_set_sq_size(configuration, 2 * most_messages);
    (void)rpma_conn_cfg_set_cq_size(configuration, 3 * most_messages);
    epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
    (void)rpma_ep_get_fd(endpoint, &endpoint_fd_);
    return watch(endpoint_fd_);
}

Outcome<> Server::run(int signal_fd) {
    TRY(watch(signal_fd));
    if (const auto content = TRY(pool_.content())) {
        last_sequence_ = content->sequence;
    }
    while (true) {
        epoll_event event{};
        const int ready = epoll_wait(epoll_.get(), &event, 1, waiting_ > 0 ? 1000 : -1);
        if (ready < 0 && errno != EINTR) {
            return failed("epoll_wait: {}", errno_text(errno));
        }
        if (ready > 0 && event.data.fd == signal_fd) {
            return {};
        }
        if (ready > 0 && event.data.fd == endpoint_fd_) {
            take_request();
        } else if (ready > 0) {
            take_event(event.data.fd);
        }
        if (waiting_ > 0) {
            drop_late();
        }
    }
}

void Server::take_request() {
    rpma_conn_req *requested = nullptr;
    const int result = rpma_ep_next_conn_req(endpoint_.get(), configuration_.get(), &requested);
    if (result == RPMA_E_NO_EVENT) {
        return;
    }
    if (result != 0) {
        complain(fmt::format("a connection request failed: {}", rpma_err_2str(result)));
        return;
    }
    ConnectionRequest request{requested};
    rpma_conn_private_data data{};
    (void)rpma_conn_req_get_private_data(requested, &data);
    const auto hello = decode_hello({static_cast<const std::byte *>(data.ptr), data.len});
    if (!hello) {
        complain(fmt::format("rejected a peer: it {}", hello.error().text));
    } else if (clients_.size() >= most_clients) {
        complain(fmt::format("rejected a client: {} are connected, no more are taken", most_clients));
    } else {
        admit(std::move(request), *hello);
    }
}

// Who measures in the pool writes where a push would write, and is like one: only one of these at a time.
Offer Server::answer(const Hello &hello, rpma_conn_req *request, PerfClient &perf) {
    if (hello.version < first_version || hello.version > protocol_version) {
        return {.status = Status::Version};
    }
    Offer offer = hello.mode == Mode::Pull ? pull_offer_ : push_offer_;
    offer.version = hello.version;
    const auto only = [&hello](Status status) { return Offer{.version = hello.version, .status = status}; };
    if (hello.mode == Mode::Push || hello.mode == Mode::MeasureDurable) {
        if (pusher_ >= 0 || (hello.mode == Mode::Push && perf_.uses_pool())) {
            return only(Status::Busy);
        }
        auto ready = pool_.check();
        ready = ready ? pool_.make_commit_durable() : ready;
        if (!ready) {
            complain(ready.error().text);
            return only(Status::Failed);
        }
    }
    const auto admit = [&]() -> Outcome<PerfClient> {
        if (hello.mode == Mode::Push && pool_.is_copied()) {
            return take_store_requests(request);
        }
        if (hello.mode == Mode::Push || hello.mode == Mode::Pull) {
            return PerfClient{};
        }
        // Messages are measured as such.
        offer.durability = pool_.is_copied() ? Durability::None : offer.durability;
        return perf_.admit(hello, request, offer);
    };
    auto admitted = admit();
    if (!admitted) {
        complain(admitted.error().text);
        return only(Status::Failed);
    }
    perf = *std::move(admitted);
    return offer;
}

void Server::admit(ConnectionRequest request, const Hello &hello) {
    if (pusher_ >= 0) {
        take_event(pusher_);  // perhaps that it is gone
    }
    PerfClient perf;
    const Offer offer = answer(hello, request.get(), perf);
    OfferBytes bytes = encode_offer(offer);
    const rpma_conn_private_data data{bytes.data(), sizeof(bytes)};
    rpma_conn_req *consumed = request.release();
    rpma_conn *accepted = nullptr;
    if (const int result = rpma_conn_req_connect(&consumed, &data, &accepted); result != 0) {
        complain(fmt::format("cannot accept a client: {}", rpma_err_2str(result)));
        return;
    }
    Connection connection{accepted};
    int fd = -1;
    (void)rpma_conn_get_event_fd(accepted, &fd);
    if (const auto watched = watch(fd); !watched) {
        complain(watched.error().text);
        return;
    }
    clients_.emplace(fd, Client{std::move(connection), false, Clock::now(), std::move(perf)});
    ++waiting_;
    if (hello.mode == Mode::Push && offer.status == Status::Ok) {
        pusher_ = fd;
    }
}

void Server::take_event(int fd) {
    const auto found = clients_.find(fd);
    if (found == clients_.end()) {
        return;
    }
    Client &client = found->second;
    rpma_conn_event event = RPMA_CONN_UNDEFINED;
    const int result = rpma_conn_next_event(client.connection.get(), &event);
    if (result == RPMA_E_NO_EVENT) {
        return;
    }
    if (result == 0 && event == RPMA_CONN_ESTABLISHED) {
        const bool is_new = !std::exchange(client.established, true);
        waiting_ -= is_new ? 1 : 0;
        const auto started = is_new && client.perf.messages != nullptr
                                 ? client.perf.messages->start(client.connection.get())
                                 : Outcome<>{};
        if (started) {
            return;
        }
        complain(fmt::format("dropped a client: {}", started.error().text));
    }
    drop(fd);
}

// Until its queue pair is gone, bytes of a dead pusher may still be placed: only then is there room for the
// next.
void Server::drop(int fd) {
    const auto found = clients_.find(fd);
    const Client &client = found->second;
    waiting_ -= client.established ? 0 : 1;
    if (client.established) {
        (void)rpma_conn_disconnect(client.connection.get());
    }
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
    clients_.erase(found);
    if (fd == pusher_) {
        pusher_ = -1;
        report_push();
    }
}

void Server::drop_late() {
    std::vector<int> late;
    for (const auto &[fd, client] : clients_) {
        if (!client.established && Clock::now() - client.since > establish_timeout) {
            late.push_back(fd);
        }
    }
    for (const int fd : late) {
        complain("a client did not finish connecting: dropped");
        drop(fd);
    }
}

void Server::report_push() {
    // A pusher that died right after its commit word arrived in the copy.
    const auto durable = pool_.is_copied() ? pool_.make_commit_durable() : Outcome<>{};
    if (!durable) {
        complain(durable.error().text);
        return;
    }
    const auto content = pool_.content();
    if (!content) {
        complain(content.error().text);
        return;
    }
    if (!*content || (*content)->sequence == last_sequence_) {
        complain("a push ended without a commit: the pool holds what it held before");
        return;
    }
    last_sequence_ = (*content)->sequence;
    committed_(**content);
}

}  // namespace cli
