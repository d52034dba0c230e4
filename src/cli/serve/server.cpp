// SPDX-License-Identifier: BSD-3-Clause
// cli/serve/server: one epoll loop over endpoints, the connections' events and messages, the storage thread
// and a signalfd. cli/serve/server_clients.cpp decides which clients are admitted;
// cli/serve/server_connections.cpp serves them.
#include "cli/serve/server.hpp"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <string>
#include <utility>

#include "base/log.hpp"
#include "cli/log.hpp"

namespace cli {

// Returns whether the device can make the contents' memory durable.
Outcome<Durability> Server::find_durability(const DevicePeer &device) const {
    if (store_.is_copied()) {
        return Durability::PageCache;
    }
    // A kernel device answers a flush once the bytes are in memory. They are durable if that memory is, and
    // not in a page cache.
    if (!device.is_soft && !store_.is_dax()) {
        return Durability::None;
    }
    const auto region = register_memory(device, store_.sample(),
                                        RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT);
    if (!region) {
        return Durability::None;
    }
    Offer offer;
    TRY(checked(rpma_mr_get_descriptor(region->get(), offer.memory_region.data()), "memory region"));
    rpma_mr_remote *remote = nullptr;
    TRY(checked(
        rpma_mr_remote_from_descriptor(offer.memory_region.data(), offer.memory_region.size(), &remote),
        "memory region"));
    const RemoteRegion owner{remote};
    int flush_types = 0;
    (void)rpma_mr_remote_get_flush_type(remote, &flush_types);
    if ((flush_types & RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT) == 0) {
        return Durability::None;
    }
    return store_.is_dax() ? Durability::Dax : Durability::PageCache;
}

Outcome<> Server::prepare(const Port &port) {
    clear_log();
    const Durability found = TRY(find_durability(*port.device));
    if (changed_ && found != durability_) {  // the clients were told
        return failed("contents would be in memory of the kind {}, expected {}{}", durability_text(found),
                      durability_text(durability_), logged_reason());
    }
    durability_ = found;
    why_volatile_ = logged_reason();
    rpma_peer_cfg *configuration = nullptr;
    TRY(checked(rpma_peer_cfg_new(&configuration), "peer configuration"));
    const PeerConfiguration owner{configuration};
    // This is for clients that measure flushes. The descriptor's size is part of librpma's API.
    const bool by_flush = durability_ != Durability::None && !store_.is_copied();
    TRY(checked(rpma_peer_cfg_set_direct_write_to_pmem(configuration, by_flush), "peer configuration"));
    return checked(rpma_peer_cfg_get_descriptor(configuration, &peer_configuration_), "peer configuration");
}

Outcome<> Server::watch(int fd, Awaited awaited, std::size_t key) const {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = static_cast<std::uint64_t>(awaited) << 32 | key;
    const int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0 ||
        epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
        return failed("cannot wait for events: {}", errno_text(errno));
    }
    return {};
}

Outcome<> Server::listen(const Address &address, DevicePeer device) {
    auto port = std::make_shared<Port>(address, std::move(device), store_);
    TRY(prepare(*port));
    clear_log();
    rpma_ep *endpoint = nullptr;
    TRY(checked(
        rpma_ep_listen(port->device->peer.get(), address.host.c_str(), address.port.c_str(), &endpoint),
        "cannot listen on {} (expected a free port{})", address.text(),
        std::stoi(address.port) < 1024 ? ", and the right to use one below 1024" : ""));
    port->endpoint.reset(endpoint);
    if (!configuration_) {
        rpma_conn_cfg *configuration = nullptr;
        TRY(checked(rpma_conn_cfg_new(&configuration), "connection configuration"));
        configuration_.reset(configuration);
        (void)rpma_conn_cfg_set_rq_size(configuration, most_messages);
        (void)rpma_conn_cfg_set_sq_size(configuration, 2 * most_messages);
        (void)rpma_conn_cfg_set_cq_size(configuration, 3 * most_messages);
        epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
    }
    (void)rpma_ep_get_fd(endpoint, &port->fd);
    TRY(watch(port->fd, Awaited::Port, ++last_port_));
    ports_.emplace(last_port_, std::move(port));
    return {};
}

void Server::follow_addresses(base::Fd changes, std::function<void()> changed) {
    changes_ = std::move(changes);
    changed_ = std::move(changed);
}

bool Server::listens(const Address &address) const {
    return std::ranges::any_of(
        ports_, [&](const auto &entry) { return entry.second->address.text() == address.text(); });
}

// The clients of a place share it, and keep its device.
void Server::stop_listening(const std::function<bool(const Address &)> &is_wanted) {
    std::erase_if(ports_, [&](auto &entry) {
        Port &port = *entry.second;
        if (is_wanted(port.address)) {
            return false;
        }
        BASE_LOG(Warning, "%s left this machine: the server does not listen there any more",
                 port.address.text().c_str());
        port.endpoint.reset();
        return true;
    });
}

// epoll tells the server again of messages that it leaves.
void Server::take_change() {
    std::array<std::byte, 8192> bytes{};
    constexpr int most_at_once = 64;
    for (int i = 0; i < most_at_once &&
                    (recv(changes_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) >= 0 || errno == ENOBUFS);
         ++i) {
    }
    changed_();
}

// Returns for how many milliseconds there is nothing to do without a new event; -1 means for ever.
int Server::next_wait() {
    base::tell_withheld_lines(Clock::now(), false);
    const int late = drop_late();
    if (!base::log_withholds.load(std::memory_order_relaxed)) {
        return late;
    }
    constexpr int window = std::chrono::milliseconds{base::log_window}.count();
    return late < 0 ? window : std::min(late, window);
}

void Server::abort(const Who &who, const char *reason, const std::string &text) const {
    metrics_.aborted(reason);
    tell(ServerEvent::Kind::Aborted, who, text, reason);
}

void Server::tell(ServerEvent::Kind kind, const Who &who, const std::string &text, const char *reason) const {
    if (kind == ServerEvent::Kind::Refused) {
        metrics_.refused();
    } else if (kind == ServerEvent::Kind::Dropped) {
        metrics_.dropped();
    } else if (kind == ServerEvent::Kind::StorageFailed) {
        metrics_.storage_failed();
    }
    static constinit std::array places{
        base::LogPlace{__FILE__, __LINE__, "committed"}, base::LogPlace{__FILE__, __LINE__, "refused"},
        base::LogPlace{__FILE__, __LINE__, "aborted"}, base::LogPlace{__FILE__, __LINE__, "dropped"},
        base::LogPlace{__FILE__, __LINE__, "storage failed"}};
    constexpr auto level = static_cast<int>(base::LogLevel::Warning);
    base::LogPlace &place = places.at(static_cast<std::size_t>(kind));
    if (place.admits(level)) {
        place.write(level, "%s", text.c_str());
        happened_({kind, who, text, reason, {}, std::nullopt});
    }
}

bool Server::goes_on(int signal_fd) {
    signalfd_siginfo signal{};
    if (read(signal_fd, &signal, sizeof(signal)) != sizeof(signal)) {
        return true;  // there is none
    }
    if (std::cmp_equal(signal.ssi_signo, SIGHUP)) {
        end_unknown();
        return true;
    }
    while (!clients_.empty()) {
        end(clients_.begin()->first, Ending::ServerStops, "the server stops");
    }
    base::tell_withheld_lines(Clock::now(), true);
    return false;
}

bool Server::take(std::uint64_t event, int signal_fd) {
    const auto key = static_cast<std::uint32_t>(event);
    switch (static_cast<Awaited>(event >> 32)) {
        case Awaited::Signal:
            return goes_on(signal_fd);
        case Awaited::Storage:
            finish_jobs();
            break;
        case Awaited::Addresses:
            take_change();
            break;
        case Awaited::Port:
            if (const auto port = ports_.find(key); port != ports_.end()) {
                take_request(port->second);
            }
            break;
        case Awaited::Event:
            take_event(static_cast<int>(key));
            break;
        case Awaited::Message:
            take_messages(static_cast<int>(key));
            break;
    }
    return true;
}

// Each turn serves one event and one client that may have more messages, so that nobody waits for a client
// that sends messages without end.
Outcome<> Server::run(int signal_fd) {
    TRY(storage_.start());
    TRY(watch(signal_fd, Awaited::Signal, 0));
    TRY(watch(storage_.fd(), Awaited::Storage, 0));
    if (changes_) {
        TRY(watch(changes_.get(), Awaited::Addresses, 0));
    }
    while (true) {
        epoll_event event{};
        const int wait = next_wait();
        metrics_.connected(clients_.size(), pushers_.size());
        const auto oldest =
            std::ranges::min_element(commits_, {}, [](const auto &entry) { return entry.second.since; });
        metrics_.committing(oldest != commits_.end() ? std::optional{oldest->second.since} : std::nullopt);
        const auto job = storage_.oldest();
        metrics_.storing(job ? std::optional{job->since} : std::nullopt);
        const int ready = epoll_wait(epoll_.get(), &event, 1, unread_.empty() ? wait : 0);
        if (ready < 0 && errno != EINTR) {
            return failed("epoll_wait: {}", errno_text(errno));
        }
        if (ready > 0 && !take(event.data.u64, signal_fd)) {
            return {};
        }
        if (!unread_.empty()) {
            const int fd = unread_.front();
            unread_.pop_front();
            take_messages(fd);
        }
    }
}

}  // namespace cli
