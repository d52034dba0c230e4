// SPDX-License-Identifier: BSD-3-Clause
// stream/connection: from a TCP socket to a stream whose ends know each other's memory.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/log.hpp"
#include "stream/address.hpp"
#include "stream/connection.hpp"

namespace stream {

namespace {

constexpr std::uint16_t least_receives = 16;
// The device may take this long to find the peer's address, and as long to find the route.
constexpr int resolve_timeout_ms = 4000;
// Windows and slots are posted inline, from memory that is not registered.
constexpr std::uint32_t least_inline_bytes = std::max(window_bytes, slot_bytes);

// When the connection ended without an error, and the peer announced no end, the stream was reset.
int reason_of_end(const rpma_conn *conn) {
    int error = 0;
    (void)rpma_conn_get_error(conn, &error);
    return error != 0 ? error : ECONNRESET;
}

// Returns the settings, each at least what the protocol needs and at most what the device has.
Settings within(Settings settings, const Device &device, std::uint32_t kept_places) {
    const rpma_peer_limits &most = device.limits();
    const auto clamped = [](std::uint32_t value, std::uint32_t least, std::uint32_t limit) {
        return std::clamp(value, least, std::max(least, limit));
    };
    const std::uint32_t share = most.max_cq_size / 2;
    settings.receives = static_cast<std::uint16_t>(
        clamped(settings.receives, least_receives, std::min(most.max_rq_size, share)));
    const std::uint32_t places = std::min(most.max_sq_size, share);
    settings.sends = static_cast<std::uint16_t>(
        clamped(settings.sends, least_receives, places - std::min(places, kept_places)));
    const std::uint32_t most_inline = most.max_inline_size != 0 ? most.max_inline_size : UINT32_MAX;
    settings.inline_bytes = device.is_of_kernel()
                                ? clamped(settings.inline_bytes, least_inline_bytes, most_inline)
                                : std::uint32_t{longest_message};
    const std::uint32_t usual = device.is_of_kernel() ? usual_bytes : usual_bytes_of_soft;
    settings.send_bytes = settings.send_bytes != 0 ? settings.send_bytes : usual;
    settings.receive_bytes = settings.receive_bytes != 0 ? settings.receive_bytes : usual;
    settings.receive_bytes = std::max<std::uint32_t>(settings.receive_bytes, 2) & ~1U;
    return settings;
}

}  // namespace

Connection::Made Connection::begin(Side side, int socket, const Settings &settings, Observer &observer) {
    const auto name = name_of(socket);
    if (!name) {
        return std::unexpected{name.error()};
    }
    const auto device = Device::soft_at(*name);
    if (!device) {
        return std::unexpected{device.error()};
    }
    const int flags = RPMA_ADOPT_SHARE_FD | (side == Side::Active ? RPMA_ADOPT_INITIATOR : 0);
    return begin(**device, side, settings, observer, [&](rpma_conn_cfg *cfg) {
        return made<Request>(rpma_conn_req_adopt_fd, (*device)->peer(), socket, flags,
                             static_cast<const rpma_conn_cfg *>(cfg));
    });
}

Connection::Made Connection::reach(const Device &device, const sockaddr_storage &local,
                                   const sockaddr_storage &remote, const Settings &settings,
                                   Observer &observer) {
    return begin(device, Side::Active, settings, observer, [&](rpma_conn_cfg *cfg) -> base::Result<Request> {
        const auto host = host_of(remote);
        if (!host) {
            return std::unexpected{host.error()};
        }
        int result = rpma_conn_cfg_set_timeout(cfg, resolve_timeout_ms);
        result = result != 0 ? result
                             : rpma_conn_cfg_set_source_addr(cfg, reinterpret_cast<const sockaddr *>(&local));
        if (result != 0) {
            return failure_of(result);
        }
        return made<Request>(rpma_conn_req_begin, device.peer(), host->c_str(), port_text(remote).c_str(),
                             static_cast<const rpma_conn_cfg *>(cfg));
    });
}

Connection::Made Connection::answer(Asked asked, const Settings &settings, Observer &observer) {
    return begin(*asked.device, Side::Passive, settings, observer,
                 [&](rpma_conn_cfg *cfg) -> base::Result<Request> {
                     const int result = rpma_conn_req_prepare(asked.request.get(), asked.device->peer(), cfg);
                     if (result != 0) {
                         return failure_of(result);
                     }
                     return std::move(asked.request);
                 });
}

Connection::Made Connection::begin(const Device &device, Side side, const Settings &settings,
                                   Observer &observer, const MakeRequest &make_request) {
    auto shard = Shard::of_this_thread(device);
    if (!shard) {
        return std::unexpected{shard.error()};
    }
    std::unique_ptr<Connection> connection{new (std::nothrow) Connection{
        std::move(*shard), side, within(settings, device, Outgoing::kept_places), observer}};
    if (connection == nullptr) {
        return base::failure(ENOMEM);
    }
    base::Lock lock{connection->mutex()};
    if (auto asked = connection->ask(make_request); !asked) {
        lock.unlock();
        return std::unexpected{asked.error()};
    }
    return connection;
}

Connection::~Connection() {
    const base::Lock lock{mutex()};
    if (conn_ != nullptr && life_.phase() != Phase::Over) {
        (void)rpma_conn_disconnect(conn_.get());
    }
    request_.reset();
    if (conn_ != nullptr) {
        conn_.reset();
        shard_->detach(*lane_, number_);
    }
    expect_event(false);
    if (lane_ != nullptr) {
        Shard::leave(*lane_, most_completions());
    }
}

void Connection::report_to(registry::Live &live) {
    report_.report_to(live, shard_->thread());
}

void Connection::forget_observer() {
    observer_ = nullptr;
    report_.end();
}

void Connection::expect_event(bool expected) {
    shard_->expect_events(int{expected} - int{expects_event_});
    expects_event_ = expected;
}

base::Result<void> Connection::ask(const MakeRequest &make_request) {
    const auto lane = shard_->join(most_completions());
    if (!lane) {
        return std::unexpected{lane.error()};
    }
    lane_ = *lane;
    auto configuration = made<Configuration>(rpma_conn_cfg_new);
    if (!configuration) {
        return std::unexpected{configuration.error()};
    }
    rpma_conn_cfg *const cfg = configuration->get();
    int result = rpma_conn_cfg_set_cq(cfg, Shard::queue_of(*lane_));
    result = result != 0 ? result : rpma_conn_cfg_set_events(cfg, shard_->events());
    result = result != 0 ? result : rpma_conn_cfg_set_sq_size(cfg, settings_.sends + Outgoing::kept_places);
    result = result != 0 ? result : rpma_conn_cfg_set_rq_size(cfg, settings_.receives);
    result = result != 0 ? result : rpma_conn_cfg_set_inline_size(cfg, settings_.inline_bytes);
    if (result != 0) {
        return failure_of(result);
    }
    auto request = make_request(cfg);
    if (!request) {
        return std::unexpected{request.error()};
    }
    request_ = std::move(*request);
    (void)rpma_conn_req_set_context(request_.get(), static_cast<Member *>(this));
    expect_event(true);
    go_on_asking();
    return {};
}

void Connection::take_request_event() {
    mutex().assert_held();
    if (request_ != nullptr) {
        go_on_asking();
    }
}

void Connection::go_on_asking() {
    const int result = rpma_conn_req_proceed(request_.get());
    if (result == RPMA_E_AGAIN) {
        return;
    }
    if (result != 0) {
        int error = 0;
        (void)rpma_conn_req_get_error(request_.get(), &error);
        request_.reset();
        fail(error);
        return;
    }
    if (auto connected = connect(); !connected) {
        request_.reset();
        fail(connected.error().number);
    }
}

Hello Connection::hello() const {
    return {.credits = static_cast<std::uint16_t>(settings_.receives - kept_receives),
            .slots = settings_.slots,
            .list = {.address = reinterpret_cast<std::uintptr_t>(memory_.windows_list()),
                     .key = memory_.shared_key(),
                     .length = windows},
            .data = {.address = reinterpret_cast<std::uintptr_t>(memory_.receive_buffer()),
                     .key = memory_.shared_key(),
                     .length = settings_.receive_bytes / 2}};
}

base::Result<void> Connection::connect() {
    if (side_ == Side::Passive) {
        rpma_conn_private_data data{};
        (void)rpma_conn_req_get_private_data(request_.get(), &data);
        meet(data);
        if (life_.error() != 0) {
            return base::failure(life_.error());
        }
    }
    auto memory = StreamMemory::make(device_, settings_, !Outgoing::sends_in_place(device_));
    if (!memory) {
        return std::unexpected{memory.error()};
    }
    memory_ = std::move(*memory);
    std::vector<rpma_recv_op> receives(settings_.receives);
    for (std::size_t index = 0; device_.is_iwarp() && index < receives.size(); ++index) {
        receives[index] = receive_of(memory_, index);
    }
    if (const int result = rpma_conn_req_recv_many(request_.get(), receives.data(), receives.size(), nullptr);
        result != 0) {
        return failure_of(result);
    }
    auto bytes = encode(hello());
    const rpma_conn_private_data data{.ptr = bytes.data(), .len = static_cast<std::uint8_t>(bytes.size())};
    rpma_conn_req *request = request_.release();
    rpma_conn *conn = nullptr;
    if (const int result = rpma_conn_req_connect(&request, &data, &conn); result != 0) {
        // siw reaches for its peer in this call, and finds in it that nobody listens.
        return result == RPMA_E_PROVIDER && side_ == Side::Active && device_.is_of_kernel()
                   ? base::failure(ECONNREFUSED)
                   : failure_of(result);
    }
    conn_.reset(conn);
    (void)rpma_conn_get_qp_num(conn, &number_);
    Shard::attach(*lane_, number_, *this);
    enter(Phase::Connecting);
    return {};
}

// Takes the peer's Hello: from here on this end knows the peer's memory.
void Connection::meet(const rpma_conn_private_data &data) {
    const auto theirs = decode_hello({static_cast<const std::byte *>(data.ptr), data.len});
    if (!theirs) {
        BASE_LOG(Error, "the peer speaks no rsockets of version %d (%d bytes of private data)",
                 protocol_version, data.len);
        break_off(theirs.error().number);
        return;
    }
    const Ground ground{.device = device_,
                        .settings = settings_,
                        .memory = memory_,
                        .conn = conn_,
                        .report = report_,
                        .scratch = shard_->scratch()};
    outgoing_.emplace(ground, *theirs);
    incoming_.emplace(ground, *theirs);
}

void Connection::take_event(rpma_conn_event event) {
    mutex().assert_held();
    if (device_.is_of_kernel() && event == RPMA_CONN_CLOSED) {
        (void)rpma_conn_disconnect(conn_.get());  // the peer's connection waits for this answer
    }
    if (life_.phase() == Phase::Over) {
        return;
    }
    expect_event(false);
    if (event == RPMA_CONN_ESTABLISHED) {
        life_.accepted();
        if (side_ == Side::Active) {
            rpma_conn_private_data data{};
            (void)rpma_conn_get_private_data(conn_.get(), &data);
            meet(data);
        }
        enter(life_.error() == 0 ? Phase::Established : Phase::Over);
        for (const ibv_wc &completion : std::exchange(early_completions_, {})) {
            take_completion(completion);
        }
        return;
    }
    if (life_.peer_left()) {
        enter(Phase::Over);
    } else {
        fail(reason_of_end(conn_.get()));
    }
}

base::Result<sockaddr_storage> Connection::local_name() const {
    sockaddr_storage name{};
    const bool known = device_.is_of_kernel() &&
                       (conn_ != nullptr ? rpma_conn_get_local_addr(conn_.get(), &name)
                                         : rpma_conn_req_get_local_addr(request_.get(), &name)) == 0;
    return known ? base::Result<sockaddr_storage>{name} : base::failure(ENOTCONN);
}

base::Result<sockaddr_storage> Connection::peer_name() const {
    sockaddr_storage name{};
    const bool known = device_.is_of_kernel() && conn_ != nullptr && life_.phase() != Phase::Connecting &&
                       rpma_conn_get_peer_addr(conn_.get(), &name) == 0;
    return known ? base::Result<sockaddr_storage>{name} : base::failure(ENOTCONN);
}

}  // namespace stream
