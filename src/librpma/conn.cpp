// SPDX-License-Identifier: BSD-3-Clause
// librpma/conn: a connection, from its request or its acceptance on.
#include "librpma/conn.hpp"

#include <cerrno>
#include <new>
#include <span>
#include <vector>

#include "librpma/accessor.hpp"
#include "librpma/event_channel.hpp"
#include "librpma/peer_cfg.hpp"

void rpma_conn::begin(librpma::ConnectionResources connection) {
    connection_ = std::move(connection);
    qp_ = connection_.id->qp;
    connection_.id->context = static_cast<librpma::IdOwner *>(this);
}

librpma::ConnectionResources rpma_conn::give_back() {
    connection_.id->context = nullptr;
    return std::move(connection_);
}

void rpma_conn::learn_native_operations() {
    const unsigned asked_for = connection_.native_operations;
    native_operations_.store(asked_for != 0 ? asked_for & provider_.native.of_queue_pair(qp_) : 0,
                             std::memory_order_relaxed);
}

int rpma_conn::establish(const rdma_cm_event &event) {
    learn_native_operations();
    BASE_LOG(
        Info,
        "flush is %s, atomic write is %s, native only to regions whose descriptor says that they take it",
        has_native(verbs::native_flush) ? "native" : "a read after write",
        has_native(verbs::native_atomic_write) ? "native" : "a fenced write");
    return learn_private_data(event);
}

int rpma_conn::learn_private_data(const rdma_cm_event &event) {
    if (!connection_.private_data.empty()) {
        return 0;
    }
    auto private_data = librpma::PrivateData::copy(event.param.conn);
    if (!private_data) {
        return private_data.error();
    }
    connection_.private_data = std::move(*private_data);
    return 0;
}

// An event's status is a negative errno value, or a reason of InfiniBand's connection manager.
void rpma_conn::learn_error(rdma_cm_event_type event, int status) {
    int error = 0;
    switch (event) {
        case RDMA_CM_EVENT_REJECTED:
            error = status < 0 ? -status : ECONNREFUSED;
            break;
        case RDMA_CM_EVENT_UNREACHABLE:
            error = status < 0 ? -status : ETIMEDOUT;
            break;
        case RDMA_CM_EVENT_CONNECT_ERROR:
            error = status < 0 ? -status : EPROTO;
            break;
        case RDMA_CM_EVENT_DEVICE_REMOVAL:
            error = ENODEV;
            break;
        case RDMA_CM_EVENT_DISCONNECTED:
            error = provider_.capabilities.tells_end_error ? provider_.beyond.end_error(qp_) : 0;
            break;
        default:
            return;
    }
    error_.store(error, std::memory_order_release);
}

librpma::Result<rpma_conn_event> rpma_conn::take_event(verbs::Event event) {
    const rdma_cm_event_type type = event->event;
    const int status = event->status;
    const int learned = type == RDMA_CM_EVENT_ESTABLISHED ? establish(*event)
                        : type == RDMA_CM_EVENT_REJECTED  ? learn_private_data(*event)
                                                          : 0;
    if (const int number = event.reset(); number != 0) {
        BASE_LOG(Error, "rdma_ack_cm_event failed: %s", librpma::error_text(number));
        return librpma::Failure{RPMA_E_PROVIDER};
    }
    if (learned != 0) {
        return librpma::Failure{learned};
    }
    BASE_LOG(Notice, "connection event %s, status %d", provider_.cm.event_str(type), status);
    learn_error(type, status);
    switch (type) {
        case RDMA_CM_EVENT_ESTABLISHED:
            return RPMA_CONN_ESTABLISHED;
        case RDMA_CM_EVENT_CONNECT_ERROR:
        case RDMA_CM_EVENT_DEVICE_REMOVAL:
            return RPMA_CONN_LOST;
        case RDMA_CM_EVENT_DISCONNECTED:
        case RDMA_CM_EVENT_TIMEWAIT_EXIT:
            return RPMA_CONN_CLOSED;
        case RDMA_CM_EVENT_REJECTED:
            return RPMA_CONN_REJECTED;
        case RDMA_CM_EVENT_UNREACHABLE:
            return RPMA_CONN_UNREACHABLE;
        default:
            BASE_LOG(Warning, "%s is not an event of a connection", provider_.cm.event_str(type));
            return librpma::Failure{RPMA_E_UNKNOWN};
    }
}

librpma::Result<rpma_conn_event> rpma_conn::next_event() {
    auto event = librpma::next_event(provider_, connection_.event_channel.get());
    return event ? take_event(std::move(*event)) : librpma::Failure{event.error()};
}

int rpma_conn::wait(int flags, rpma_cq **ready, bool *is_rcq) {
    if (shared_channel() == nullptr) {
        return RPMA_E_NOT_SHARED_CHNL;
    }
    ibv_cq *queue = nullptr;
    void *context = nullptr;
    if (provider_.completion.get_cq_event(shared_channel(), &queue, &context) != 0) {
        return RPMA_E_NO_COMPLETION;
    }
    const bool receives = rcq() != nullptr && rcq()->get() == queue;
    if (!receives && cq()->get() != queue) {
        BASE_LOG(Error, "the channel gave an event of a completion queue that is not the connection's");
        return RPMA_E_UNKNOWN;
    }
    rpma_cq *const owner = receives ? rcq() : cq();
    if (const int result = owner->take_event(flags); result != 0) {
        *ready = nullptr;
        return result;
    }
    *ready = owner;
    if (is_rcq != nullptr) {
        *is_rcq = receives;
    }
    return 0;
}

int rpma_conn::disconnect() {
    if (provider_.cm.disconnect(connection_.id.get()) != 0) {
        if (errno == EINVAL) {
            BASE_LOG(Notice, "there is nothing to disconnect: the connection was not established");
        } else {
            BASE_LOG(Error, "rdma_disconnect failed: %s", librpma::error_text(errno));
        }
        return RPMA_E_PROVIDER;
    }
    BASE_LOG(Notice, "disconnecting");
    return 0;
}

int rpma_conn::drain() {
    if (!provider_.capabilities.ends_when_sent) {
        BASE_LOG(Error,
                 "this device does not disconnect behind what is posted: await its last completion, "
                 "then rpma_conn_disconnect");
        return RPMA_E_NOSUPP;
    }
    if (provider_.beyond.disconnect_when_sent(connection_.id.get()) != 0) {
        return librpma::log_provider_failure("softrdma_disconnect_when_sent", errno);
    }
    BASE_LOG(Notice, "disconnecting when all is sent");
    return 0;
}

int rpma_conn::close() {
    librpma::FirstError error;
    // A flush that is under way reads into the buffer, so the connection is closed first.
    error.add_code(connection_.close(provider_, false));
    error.add_code(flush_buffer_.close());
    return error.code();
}

int rpma_conn_get_event_fd(const struct rpma_conn *conn, int *fd) {
    if (conn == nullptr || fd == nullptr) {
        return librpma::invalid("conn or fd is NULL");
    }
    if (conn->event_channel() == nullptr) {
        return RPMA_E_NOSUPP;
    }
    *fd = conn->event_channel()->fd;
    return 0;
}

int rpma_conn_next_event(struct rpma_conn *conn, enum rpma_conn_event *event) {
    if (conn == nullptr || event == nullptr) {
        return librpma::invalid("conn or event is NULL");
    }
    if (conn->event_channel() == nullptr) {
        return RPMA_E_NOSUPP;
    }
    const auto next = conn->next_event();
    if (!next) {
        return next.error();
    }
    *event = *next;
    return 0;
}

int rpma_conn_get_private_data(const struct rpma_conn *conn, struct rpma_conn_private_data *pdata) {
    if (conn == nullptr || pdata == nullptr) {
        return librpma::invalid("conn or pdata is NULL");
    }
    *pdata = conn->private_data();
    return 0;
}

int rpma_conn_apply_remote_peer_cfg(struct rpma_conn *conn, const struct rpma_peer_cfg *pcfg) {
    if (conn == nullptr || pcfg == nullptr) {
        return librpma::invalid("conn or pcfg is NULL");
    }
    conn->set_direct_write_to_pmem(pcfg->direct_write_to_pmem());
    return 0;
}

int rpma_conn_get_qp_num(const struct rpma_conn *conn, uint32_t *qp_num) {
    if (conn == nullptr || qp_num == nullptr) {
        return librpma::invalid("conn or qp_num is NULL");
    }
    *qp_num = conn->qp()->qp_num;
    return 0;
}

int rpma_conn_get_cq(const struct rpma_conn *conn, struct rpma_cq **cq_ptr) {
    if (conn == nullptr || cq_ptr == nullptr) {
        return librpma::invalid("conn or cq_ptr is NULL");
    }
    *cq_ptr = conn->cq();
    return 0;
}

int rpma_conn_get_rcq(const struct rpma_conn *conn, struct rpma_cq **rcq_ptr) {
    if (conn == nullptr || rcq_ptr == nullptr) {
        return librpma::invalid("conn or rcq_ptr is NULL");
    }
    *rcq_ptr = conn->rcq();
    return 0;
}

int rpma_conn_get_compl_fd(const struct rpma_conn *conn, int *fd) {
    if (conn == nullptr || fd == nullptr) {
        return librpma::invalid("conn or fd is NULL");
    }
    if (conn->shared_channel() == nullptr) {
        return RPMA_E_NOT_SHARED_CHNL;
    }
    *fd = conn->shared_channel()->fd;
    return 0;
}

int rpma_conn_wait(struct rpma_conn *conn, int flags, struct rpma_cq **cq, bool *is_rcq) {
    if (conn == nullptr || cq == nullptr) {
        return librpma::invalid("conn or cq is NULL");
    }
    return conn->wait(flags, cq, is_rcq);
}

int rpma_conn_disconnect(struct rpma_conn *conn) {
    if (conn == nullptr) {
        return librpma::invalid("conn is NULL");
    }
    return conn->disconnect();
}

int rpma_conn_drain(struct rpma_conn *conn) {
    return conn == nullptr ? RPMA_E_INVAL : conn->drain();
}

int rpma_conn_get_error(const struct rpma_conn *conn, int *error) {
    if (conn == nullptr || error == nullptr) {
        return RPMA_E_INVAL;
    }
    *error = conn->error();
    return 0;
}

int rpma_conn_get_link(const struct rpma_conn *conn, const char **link) {
    if (conn == nullptr || link == nullptr) {
        return librpma::invalid("conn or link is NULL");
    }
    const verbs::Provider &provider = conn->provider();
    const char *const name = provider.capabilities.tells_link ? provider.beyond.link(conn->qp()) : "device";
    if (name == nullptr) {
        return RPMA_E_AGAIN;
    }
    *link = name;
    return 0;
}

int rpma_conn_get_paths(const struct rpma_conn *conn, int *paths) {
    if (conn == nullptr || paths == nullptr) {
        return librpma::invalid("conn or paths is NULL");
    }
    const verbs::Provider &provider = conn->provider();
    if (!provider.capabilities.tells_link) {
        *paths = -1;
        return 0;
    }
    if (provider.beyond.link(conn->qp()) == nullptr) {
        return RPMA_E_AGAIN;
    }
    *paths = provider.beyond.paths(conn->qp());
    return 0;
}

int rpma_conn_get_identity(const struct rpma_conn *conn, const char **identity) {
    if (conn == nullptr || identity == nullptr) {
        return librpma::invalid("conn or identity is NULL");
    }
    const verbs::Provider &provider = conn->provider();
    const char *const found = librpma::identity_of(provider, conn->id());
    if (found == nullptr && provider.capabilities.tells_link && provider.beyond.link(conn->qp()) == nullptr) {
        return RPMA_E_AGAIN;
    }
    *identity = found;
    return 0;
}

int rpma_conn_check_identity(const struct rpma_conn *conn, bool *known) {
    if (conn == nullptr || known == nullptr) {
        return librpma::invalid("conn or known is NULL");
    }
    return librpma::check_identity(conn->provider(), conn->id(), known);
}

int rpma_conn_check_identities(const struct rpma_conn *const *conns, size_t num_conns, bool *known) {
    if (conns == nullptr || num_conns == 0 || known == nullptr) {
        return librpma::invalid("conns or known is NULL, or num_conns is 0");
    }
    try {
        std::vector<const rdma_cm_id *> ids;
        ids.reserve(num_conns);
        for (const rpma_conn *const conn : std::span{conns, num_conns}) {
            if (conn == nullptr) {
                return librpma::invalid("a connection is NULL");
            }
            if (librpma::identity_of(conn->provider(), conn->id()) == nullptr) {
                return RPMA_E_NOSUPP;
            }
            ids.push_back(&conn->id());
        }
        // One kind of device authenticates.
        return conns[0]->provider().beyond.peers_are_known(ids.data(), ids.size(), known) == 0
                   ? 0
                   : librpma::log_provider_failure("softrdma_peers_are_known", errno);
    } catch (const std::bad_alloc &) {
        return RPMA_E_NOMEM;
    }
}

int rpma_conn_delete(struct rpma_conn **conn_ptr) {
    return librpma::destroy(conn_ptr);
}

int rpma_conn_get_local_addr(const struct rpma_conn *conn, struct sockaddr_storage *addr) {
    return librpma::get_address(conn, &rdma_addr::src_storage, addr);
}

int rpma_conn_get_peer_addr(const struct rpma_conn *conn, struct sockaddr_storage *addr) {
    return librpma::get_address(conn, &rdma_addr::dst_storage, addr);
}

int rpma_conn_set_context(struct rpma_conn *conn, void *context) {
    if (conn == nullptr) {
        return librpma::invalid("conn is NULL");
    }
    conn->set_context(context);
    return 0;
}

int rpma_conn_get_context(const struct rpma_conn *conn, void **context) {
    if (conn == nullptr || context == nullptr) {
        return librpma::invalid("conn or context is NULL");
    }
    *context = conn->context();
    return 0;
}
