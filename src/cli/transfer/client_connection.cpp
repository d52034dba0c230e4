// SPDX-License-Identifier: BSD-3-Clause
// cli/transfer/client_connection: connects, gets the server's offer, and waits with time-outs.
#include "cli/transfer/client_connection.hpp"

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>

#include "base/clock.hpp"
#include "base/tls.hpp"
#include "cli/log.hpp"
#include "cli/plain_tcp.hpp"

namespace cli {

namespace {

// Everything is done by then, so the command does not wait longer for a server that does not answer.
constexpr auto close_timeout = std::chrono::milliseconds{2000};

// The signal handler writes it, so it is lock-free. Relaxed is enough, because it publishes nothing else.
std::atomic<bool> was_interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);

// Returns the outcome of an attempt to reach the server.
Outcome<> reached(Outcome<> outcome) {
    if (!outcome) {
        outcome.error().exit = Exit::Unreachable;
    }
    return outcome;
}

}  // namespace

void end_waits_on_signals() {
    struct sigaction action{};
    action.sa_handler = [](int) { was_interrupted.store(true, std::memory_order_relaxed); };
    sigaction(SIGINT, &action, nullptr);
    sigaction(SIGTERM, &action, nullptr);
    sigaction(SIGHUP, &action, nullptr);
}

void end_waits() {
    was_interrupted.store(true, std::memory_order_relaxed);
}

bool interrupted() {
    return was_interrupted.load(std::memory_order_relaxed);
}

Outcome<Offer> ClientConnection::connect(const DevicePeer &device, const Hello &hello, const Queues &queues) {
    TRY(request(device, hello, queues));
    Offer offer = TRY(receive_offer());
    const bool has_forgot = offer.status == Status::Forgot && hello.mode == Mode::Tag;
    if (offer.status == Status::Ok || has_forgot) {
        TRY(take(offer));
        return offer;
    }
    close();
    if (offer.status != Status::Busy) {
        return failed(Exit::Refused, "{}: refused: {}", name_, offer.reason);
    }
    return offer;
}

Outcome<> ClientConnection::request(const DevicePeer &device, const Hello &hello, const Queues &queues) {
    rpma_conn_cfg *configuration = nullptr;
    TRY(checked(rpma_conn_cfg_new(&configuration), "connection configuration"));
    const ConnectionConfiguration owner{configuration};
    (void)rpma_conn_cfg_set_sq_size(configuration, queues.sends);
    (void)rpma_conn_cfg_set_rq_size(configuration, queues.receives);
    (void)rpma_conn_cfg_set_cq_size(configuration, queues.sends + queues.receives);
    (void)rpma_conn_cfg_set_cq(configuration, queues.completions);
    (void)rpma_conn_cfg_set_timeout(configuration, static_cast<int>(timeout_.count()));
    rpma_conn_req *request = nullptr;
    TRY(reached(checked(rpma_conn_req_new(device.peer.get(), address_.host.c_str(), address_.port.c_str(),
                                          configuration, &request),
                        "{}: cannot reach it", name_)));
    HelloBytes bytes = encode_hello(hello);
    const rpma_conn_private_data data{bytes.data(), sizeof(bytes)};
    rpma_conn *connection = nullptr;
    TRY(reached(checked(rpma_conn_req_connect(&request, &data, &connection), "{}: cannot connect", name_)));
    connection_.reset(connection);
    return {};
}

Outcome<rpma_conn_event> ClientConnection::next_event(Milliseconds timeout) {
    int fd = -1;
    (void)rpma_conn_get_event_fd(connection_.get(), &fd);
    TRY(wait_readable(fd, Clock::now() + timeout));
    rpma_conn_event event = RPMA_CONN_UNDEFINED;
    TRY(checked(rpma_conn_next_event(connection_.get(), &event), "{}: connection event", name_));
    return event;
}

Outcome<Offer> ClientConnection::receive_offer() {
    const rpma_conn_event event = TRY(next_event(timeout_));
    if (event == RPMA_CONN_REJECTED) {
        const std::string reason = logged_reason();
        if (reason.empty()) {
            return failed(
                Exit::Unreachable,
                "{}: refused: no server of a store is there (rpma serve), or the server's own output "
                "says why",
                name_);
        }
        if (base::required_tls() == nullptr && speaks_tls(address_, timeout_)) {
            return failed(
                Exit::Unreachable,
                "{}: refused: the server speaks TLS, and this command has no keys (expected --psk FILE or "
                "--x509 FILE)",
                name_);
        }
        const bool nobody = reason.ends_with(errno_text(ECONNREFUSED));
        return failed(Exit::Unreachable, "{}: refused{}{}", name_,
                      nobody ? ": no server of a store is there (rpma serve)" : "", reason);
    }
    if (event != RPMA_CONN_ESTABLISHED) {
        return failed(Exit::Unreachable, "{}: cannot connect: {}{}", name_, rpma_utils_conn_event_2str(event),
                      logged_reason());
    }
    rpma_conn_private_data data{};
    (void)rpma_conn_get_private_data(connection_.get(), &data);
    auto offer = decode_offer({static_cast<const std::byte *>(data.ptr), data.len});
    if (!offer) {
        return failed(Exit::Refused, "{}: {}", name_, offer.error().text);
    }
    return offer;
}

Outcome<> ClientConnection::take(const RegionBytes &region) {
    rpma_mr_remote *remote = nullptr;
    TRY(checked(rpma_mr_remote_from_descriptor(region.data(), region.size(), &remote),
                "{}: its memory region's descriptor", name_));
    remote_.reset(remote);
    return {};
}

Outcome<> ClientConnection::take(const Offer &offer) {
    if (offer.memory_region != RegionBytes{}) {
        TRY(take(offer.memory_region));
    }
    rpma_peer_cfg *configuration = nullptr;
    TRY(checked(rpma_peer_cfg_from_descriptor(&offer.peer_configuration, 1, &configuration),
                "{}: its peer configuration", name_));
    const PeerConfiguration owner{configuration};
    return checked(rpma_conn_apply_remote_peer_cfg(connection_.get(), configuration),
                   "{}: its peer configuration", name_);
}

Outcome<> ClientConnection::wait_readable(int fd, Clock::time_point deadline) const {
    while (!interrupted()) {
        const int left = base::poll_timeout(deadline);
        if (left == 0) {
            return failed(Exit::Unreachable, "{}: no answer for {} seconds", name_,
                          std::chrono::duration<double>{timeout_}.count());
        }
        // A signal may come right before the call, and end_waits() wakes nobody.
        constexpr int longest = 1000;
        pollfd waiting{fd, POLLIN, 0};
        const int ready = poll(&waiting, 1, std::min(left, longest));
        if (ready > 0) {
            return {};
        }
        if (ready < 0 && errno != EINTR) {
            return failed("poll: {}", errno_text(errno));
        }
    }
    return failed("{}: interrupted", name_);
}

std::unexpected<Failure> ClientConnection::ended(ibv_wc_status status) const {
    const std::string reason = logged_reason();
    // The server's device ends a connection in this way when memory of the server's file cannot be had.
    if (status == IBV_WC_REM_OP_ERR) {
        return failed(
            Exit::Refused,
            "{}: the server could not write or read the bytes: its file system is full or read-only, "
            "its storage failed, or a file was cut off; its log says which",
            name_);
    }
    if (reason.empty() && status == IBV_WC_WR_FLUSH_ERR) {
        return failed(Exit::Unreachable, "{}: the server closed the connection", name_);
    }
    return failed(Exit::Unreachable, "{}: the connection ended{}", name_,
                  reason.empty() ? fmt::format(" ({})", ibv_wc_status_str(status)) : reason);
}

// The first signal does not end this wait, because the server is to know that the client has given up.
void ClientConnection::close() {
    if (connection_ && rpma_conn_disconnect(connection_.get()) == 0) {
        pollfd waiting{-1, POLLIN, 0};
        (void)rpma_conn_get_event_fd(connection_.get(), &waiting.fd);
        (void)poll(&waiting, 1, static_cast<int>(std::min(timeout_, close_timeout).count()));
    }
    connection_.reset();
}

}  // namespace cli
