// SPDX-License-Identifier: BSD-3-Clause
// librpma/conn_req: a connection that is asked for, here or by a peer, and not answered yet.
#include "librpma/conn_req.hpp"

#include <cerrno>

#include "librpma/mr_local.hpp"
#include "verbs/post.hpp"

namespace {

// As often as the field can say; for receiver-not-ready that is without end.
constexpr std::uint8_t retries = 7;

rdma_conn_param connection_parameters(const rpma_conn_private_data *data) {
    rdma_conn_param parameters{};
    if (data != nullptr) {
        parameters.private_data = data->ptr;
        parameters.private_data_len = data->len;
    }
    parameters.responder_resources = RDMA_MAX_RESP_RES;
    parameters.initiator_depth = RDMA_MAX_INIT_DEPTH;
    parameters.flow_control = 1;
    parameters.retry_count = retries;
    parameters.rnr_retry_count = retries;
    return parameters;
}

}  // namespace

librpma::Result<std::unique_ptr<rpma_conn_req>> rpma_conn_req::ask(
    const rpma_peer &peer, const char *address, const char *port,
    const librpma::ConnectionParameters &parameters) {
    const verbs::Provider &provider = peer.provider();
    const auto refuse = [&](const char *step, const char *reason) {
        BASE_LOG(Error, "no way from %s to %s:%s: %s: %s", peer.pd()->context->device->name, address, port,
                 step, reason);
        return librpma::Failure{RPMA_E_PROVIDER};
    };
    const auto info = verbs::look_up(provider, address, port, verbs::Side::Remote);
    if (!info) {
        return refuse("rdma_getaddrinfo", info.error());
    }
    rdma_cm_id *raw = nullptr;
    // Without an event channel the id is synchronous: its calls return when their event is there.
    if (provider.create_id(nullptr, &raw, nullptr, RDMA_PS_TCP) != 0) {
        return refuse("rdma_create_id", librpma::error_text(errno));
    }
    verbs::Id id{provider, raw};
    if (provider.resolve_addr(raw, (*info)->ai_src_addr, (*info)->ai_dst_addr, parameters.timeout_ms) != 0) {
        return refuse("rdma_resolve_addr", librpma::error_text(errno));
    }
    if (provider.resolve_route(raw, parameters.timeout_ms) != 0) {
        return refuse("rdma_resolve_route", librpma::error_text(errno));
    }
    auto req = librpma::make<rpma_conn_req>(peer, std::move(id), false);
    if (req == nullptr) {
        return librpma::Failure{RPMA_E_NOMEM};
    }
    if (const int result = req->connection_.make_queues(peer, parameters); result != 0) {
        (void)req->close();
        return librpma::Failure{result};
    }
    BASE_LOG(Notice, "Requesting a connection to %s:%s", address, port);
    return req;
}

librpma::Result<std::unique_ptr<rpma_conn_req>> rpma_conn_req::answer(
    const rpma_peer &peer, verbs::Id id, librpma::PrivateData private_data,
    const librpma::ConnectionParameters &parameters) {
    auto req = librpma::make<rpma_conn_req>(peer, std::move(id), true);
    if (req == nullptr) {
        // Nothing was constructed, so the id is still here.
        peer.provider().reject(id.get(), nullptr, 0);  // NOLINT(bugprone-use-after-move)
        return librpma::Failure{RPMA_E_NOMEM};
    }
    req->connection_.private_data = std::move(private_data);
    // Off the endpoint's channel at once: the request may outlive the endpoint.
    int result = req->connection_.make_event_channel(peer.provider());
    if (result == 0) {
        result = req->connection_.make_queues(peer, parameters);
    }
    if (result != 0) {
        (void)req->close();
        return librpma::Failure{result};
    }
    return req;
}

librpma::Result<std::unique_ptr<rpma_conn>> rpma_conn_req::connect(const rpma_conn_private_data *data) {
    const verbs::Provider &provider = peer_.provider();
    // All that can fail here comes before the answer: a peer that is accepted has a connection.
    if (!connection_.event_channel) {
        if (const int result = connection_.make_event_channel(provider); result != 0) {
            return librpma::Failure{result};
        }
    }
    auto flush_buffer = librpma::FlushBuffer::create(peer_);
    if (!flush_buffer) {
        return librpma::Failure{flush_buffer.error()};
    }
    auto conn = librpma::make<rpma_conn>(provider, std::move(*flush_buffer));
    if (conn == nullptr) {
        return librpma::Failure{RPMA_E_NOMEM};
    }
    rdma_conn_param parameters = connection_parameters(data);
    rdma_cm_id *const id = connection_.id.get();
    if ((passive_ ? provider.accept(id, &parameters) : provider.connect(id, &parameters)) != 0) {
        BASE_LOG(Error, "%s (%u bytes of private data) failed: %s", passive_ ? "rdma_accept" : "rdma_connect",
                 unsigned{parameters.private_data_len}, librpma::error_text(errno));
        return librpma::Failure{RPMA_E_PROVIDER};
    }
    conn->begin(std::move(connection_));
    return conn;
}

int rpma_conn_req_new(struct rpma_peer *peer, const char *addr, const char *port,
                      const struct rpma_conn_cfg *cfg, struct rpma_conn_req **req_ptr) {
    if (peer == nullptr || addr == nullptr || port == nullptr || req_ptr == nullptr) {
        return RPMA_E_INVAL;
    }
    return librpma::give(rpma_conn_req::ask(*peer, addr, port, librpma::parameters_of(cfg)), req_ptr);
}

int rpma_conn_req_delete(struct rpma_conn_req **req_ptr) {
    return librpma::destroy(req_ptr);
}

int rpma_conn_req_connect(struct rpma_conn_req **req_ptr, const struct rpma_conn_private_data *pdata,
                          struct rpma_conn **conn_ptr) {
    if (req_ptr == nullptr || *req_ptr == nullptr) {
        return RPMA_E_INVAL;
    }
    const std::unique_ptr<rpma_conn_req> req{std::exchange(*req_ptr, nullptr)};
    if (conn_ptr == nullptr || (pdata != nullptr && (pdata->ptr == nullptr || pdata->len == 0))) {
        (void)req->close();
        return RPMA_E_INVAL;
    }
    auto conn = req->connect(pdata);
    if (!conn) {
        (void)req->close();
    }
    return librpma::give(std::move(conn), conn_ptr);
}

int rpma_conn_req_recv(struct rpma_conn_req *req, struct rpma_mr_local *dst, size_t offset, size_t len,
                       const void *op_context) {
    if (req == nullptr || dst == nullptr) {
        return RPMA_E_INVAL;
    }
    ibv_sge part = dst->part(offset, len);
    const int number = verbs::post_receive(req->qp(), &part, std::bit_cast<std::uintptr_t>(op_context));
    if (number != 0) {
        BASE_LOG(Error, "ibv_post_recv failed: %s", librpma::error_text(number));
        return RPMA_E_PROVIDER;
    }
    return 0;
}

int rpma_conn_req_get_private_data(const struct rpma_conn_req *req, struct rpma_conn_private_data *pdata) {
    if (req == nullptr || pdata == nullptr) {
        return RPMA_E_INVAL;
    }
    *pdata = req->private_data();
    return 0;
}
