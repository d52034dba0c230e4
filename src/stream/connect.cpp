// SPDX-License-Identifier: BSD-3-Clause
// stream/connection: from a TCP socket to a stream whose ends know each other's memory.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/log.hpp"
#include "stream/connection.hpp"

namespace stream {

namespace {

constexpr std::uint16_t least_receives = 16;
// Windows and slots are posted inline, from memory that is not registered.
constexpr std::uint32_t least_inline_bytes = std::max(window_bytes, slot_bytes);

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

Hello hello_of(const Settings &settings, const StreamMemory &memory) {
    return {.credits = static_cast<std::uint16_t>(settings.receives - kept_receives),
            .slots = settings.slots,
            .list = {.address = reinterpret_cast<std::uintptr_t>(memory.windows_list()),
                     .key = memory.shared_key(),
                     .length = windows},
            .data = {.address = reinterpret_cast<std::uintptr_t>(memory.receive_buffer()),
                     .key = memory.shared_key(),
                     .length = settings.receive_bytes / 2}};
}

}  // namespace

Connection::Connection(std::shared_ptr<Shard> shard, const Approach &approach, const Settings &settings,
                       Observer &observer)
    : shard_{std::move(shard)},
      device_{shard_->device()},
      side_{approach.side},
      on_socket_{approach.on_socket_of_caller},
      settings_{settings},
      observer_{&observer},
      rpma_{*shard_, settings_.sends + Outgoing::kept_places + settings_.receives} {}

Connection::Made Connection::begin(base::Result<Approach> approach, const Settings &settings,
                                   Observer &observer) {
    if (!approach) {
        return std::unexpected{approach.error()};
    }
    auto shard = Shard::of_this_thread(*approach->device);
    if (!shard) {
        return std::unexpected{shard.error()};
    }
    return begin(std::move(*approach), settings, observer, std::move(*shard));
}

Connection::Made Connection::begin(Approach approach, const Settings &settings, Observer &observer,
                                   std::shared_ptr<Shard> shard) {
    const Settings possible = within(settings, *approach.device, Outgoing::kept_places);
    std::unique_ptr<Connection> connection{new (std::nothrow)
                                               Connection{std::move(shard), approach, possible, observer}};
    if (connection == nullptr) {
        return base::failure(ENOMEM);
    }
    base::Lock lock{connection->mutex()};
    const auto asked =
        connection->rpma_.ask(*connection, connection->settings_, std::move(approach.make_request));
    if (!asked) {
        lock.unlock();
        return std::unexpected{asked.error()};
    }
    connection->take_request_event();
    return connection;
}

Connection::~Connection() {
    const base::Lock lock{mutex()};
    rpma_.end(life_.phase() != Phase::Over);
}

void Connection::report_to(registry::Live &live) {
    report_.report_to(live, shard_->thread());
}

void Connection::forget_observer() {
    observer_ = nullptr;
    report_.end();
}

void Connection::take_request_event() {
    mutex().assert_held();
    if (!rpma_.asks()) {
        return;
    }
    const auto ready = rpma_.proceed();
    if (!ready) {
        fail(ready.error().number);
    } else if (*ready) {
        if (auto connected = connect(); !connected) {
            rpma_.drop_request();
            fail(connected.error().number);
        }
    }
}

base::Result<void> Connection::connect() {
    if (side_ == Side::Passive) {
        meet(rpma_.request_data());
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
    const bool reaches = side_ == Side::Active && device_.is_of_kernel();
    auto connected = rpma_.connect(*this, receives, encode(hello_of(settings_, memory_)), reaches);
    if (connected) {
        life_.enter(Phase::Connecting);
    }
    return connected;
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
    const Common common{.device = device_,
                        .settings = settings_,
                        .memory = memory_,
                        .conn = rpma_.conn(),
                        .report = report_,
                        .scratch = shard_->scratch()};
    exchange_.emplace(common, *theirs, life_);
    if (side_ == Side::Passive && device_.is_iwarp() && device_.is_of_kernel()) {
        exchange_->outgoing().wait_for_peer();
    }
}

void Connection::take_event(rpma_conn_event event) {
    mutex().assert_held();
    if (device_.is_of_kernel() && event == RPMA_CONN_CLOSED) {
        rpma_.disconnect();  // the peer's connection waits for this answer
    }
    if (life_.phase() == Phase::Over) {
        return;
    }
    rpma_.expect_event(false);
    if (event == RPMA_CONN_ESTABLISHED) {
        life_.accepted();
        report_->link = rpma_.link();
        if (side_ == Side::Active) {
            meet(rpma_.answer_data());
        }
        life_.enter(life_.error() == 0 ? Phase::Established : Phase::Over);
        for (const ibv_wc &completion : std::exchange(early_completions_, {})) {
            take_completion(completion);
        }
        return;
    }
    if (life_.peer_left()) {
        life_.enter(Phase::Over);
    } else {
        // Without an error, and without an end that the peer announced, the stream was reset. So was a stream
        // whose device refused an access: the peer may write to a mapping whose end it does not know yet.
        const int error = rpma_.error();
        const bool was_refused = error == EPROTO && life_.established();
        fail(error == 0 || was_refused ? ECONNRESET : error);
    }
}

base::Result<sockaddr_storage> Connection::name(base::End end) const {
    if (on_socket_ || (end == base::End::Peer && life_.phase() == Phase::Connecting)) {
        return base::failure(ENOTCONN);
    }
    return end == base::End::Peer ? rpma_.peer_name() : rpma_.local_name();
}

std::span<const std::byte> Connection::answer() const {
    if (!rpma_) {
        return {};
    }
    const rpma_conn_private_data data = rpma_.answer_data();
    return {static_cast<const std::byte *>(data.ptr), data.len};
}

}  // namespace stream
