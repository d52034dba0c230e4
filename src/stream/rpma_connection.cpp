// SPDX-License-Identifier: BSD-3-Clause
#include "stream/rpma_connection.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "stream/outgoing.hpp"

namespace stream {

void RpmaConnection::end(bool disconnects) {
    shard_.mutex().assert_held();
    if (conn_ != nullptr && disconnects) {
        disconnect();
    }
    request_.reset();
    if (conn_ != nullptr) {
        conn_.reset();
        shard_.detach(*lane_, number_);
    }
    expect_event(false);
    if (lane_ != nullptr) {
        Shard::leave(*lane_, completions_);
    }
}

base::Result<void> RpmaConnection::ask(Member &member, const Settings &settings, MakeRequest make_request) {
    shard_.mutex().assert_held();
    const auto lane = shard_.join(completions_);
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
    result = result != 0 ? result : rpma_conn_cfg_set_events(cfg, shard_.events());
    result = result != 0 ? result : rpma_conn_cfg_set_sq_size(cfg, settings.sends + Outgoing::kept_places);
    result = result != 0 ? result : rpma_conn_cfg_set_rq_size(cfg, settings.receives);
    result = result != 0 ? result : rpma_conn_cfg_set_inline_size(cfg, settings.inline_bytes);
    if (result != 0) {
        return failure_of(result);
    }
    auto request = make_request(cfg);
    if (!request) {
        return std::unexpected{request.error()};
    }
    request_ = std::move(*request);
    (void)rpma_conn_req_set_context(request_.get(), &member);
    expect_event(true);
    return {};
}

base::Result<bool> RpmaConnection::proceed() {
    const int result = rpma_conn_req_proceed(request_.get());
    if (result == 0 || result == RPMA_E_AGAIN) {
        return result == 0;
    }
    int error = 0;
    (void)rpma_conn_req_get_error(request_.get(), &error);
    request_.reset();
    return base::failure(error);
}

rpma_conn_private_data RpmaConnection::request_data() const {
    rpma_conn_private_data data{};
    (void)rpma_conn_req_get_private_data(request_.get(), &data);
    return data;
}

base::Result<void> RpmaConnection::connect(Member &member, std::span<const rpma_recv_op> receives,
                                           std::span<const std::byte> hello, bool reaches) {
    Request owned = std::move(request_);
    if (const int result = rpma_conn_req_recv_many(owned.get(), receives.data(), receives.size(), nullptr);
        result != 0) {
        return failure_of(result);
    }
    const rpma_conn_private_data data{.ptr = const_cast<std::byte *>(hello.data()),
                                      .len = static_cast<std::uint8_t>(hello.size())};
    rpma_conn_req *request = owned.release();
    rpma_conn *conn = nullptr;
    if (const int result = rpma_conn_req_connect(&request, &data, &conn); result != 0) {
        // siw connects to its peer in this call, which fails if no program listens there.
        return result == RPMA_E_PROVIDER && reaches ? base::failure(ECONNREFUSED) : failure_of(result);
    }
    conn_.reset(conn);
    (void)rpma_conn_get_qp_num(conn, &number_);
    Shard::attach(*lane_, number_, member);
    return {};
}

rpma_conn_private_data RpmaConnection::answer_data() const {
    rpma_conn_private_data data{};
    (void)rpma_conn_get_private_data(conn_.get(), &data);
    return data;
}

int RpmaConnection::error() const {
    int error = 0;
    (void)rpma_conn_get_error(conn_.get(), &error);
    return error;
}

registry::Link RpmaConnection::link() const {
    const char *name = "";
    (void)rpma_conn_get_link(conn_.get(), &name);
    const auto place = static_cast<std::size_t>(std::ranges::find(registry::link_names, name) -
                                                registry::link_names.begin());
    return place < registry::link_names.size() ? static_cast<registry::Link>(place) : registry::Link::None;
}

base::Result<sockaddr_storage> RpmaConnection::local_name() const {
    sockaddr_storage name{};
    const int result = conn_ != nullptr ? rpma_conn_get_local_addr(conn_.get(), &name)
                                        : rpma_conn_req_get_local_addr(request_.get(), &name);
    return result == 0 ? base::Result<sockaddr_storage>{name} : base::failure(ENOTCONN);
}

base::Result<sockaddr_storage> RpmaConnection::peer_name() const {
    sockaddr_storage name{};
    return conn_ != nullptr && rpma_conn_get_peer_addr(conn_.get(), &name) == 0
               ? base::Result<sockaddr_storage>{name}
               : base::failure(ENOTCONN);
}

void RpmaConnection::expect_event(bool expected) {
    shard_.mutex().assert_held();
    shard_.expect_events(int{expected} - int{expects_event_});
    expects_event_ = expected;
}

}  // namespace stream
