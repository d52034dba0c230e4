// SPDX-License-Identifier: BSD-3-Clause
// librpma/conn_req_api: the C functions of a connection request.
#include <utility>

#include "librpma/accessor.hpp"
#include "librpma/conn_req.hpp"

int rpma_conn_req_new(struct rpma_peer *peer, const char *addr, const char *port,
                      const struct rpma_conn_cfg *cfg, struct rpma_conn_req **req_ptr) {
    if (peer == nullptr || addr == nullptr || port == nullptr || req_ptr == nullptr) {
        return librpma::invalid("peer, addr, port or req_ptr is NULL");
    }
    return librpma::give(rpma_conn_req::ask(*peer, addr, port, librpma::configuration_of(cfg)), req_ptr);
}

int rpma_conn_req_begin(struct rpma_peer *peer, const char *addr, const char *port,
                        const struct rpma_conn_cfg *cfg, struct rpma_conn_req **req_ptr) {
    if (peer == nullptr || addr == nullptr || port == nullptr || req_ptr == nullptr) {
        return librpma::invalid("peer, addr, port or req_ptr is NULL");
    }
    return librpma::give(rpma_conn_req::begin(*peer, addr, port, librpma::configuration_of(cfg)), req_ptr);
}

int rpma_conn_req_adopt(struct rpma_peer *peer, int fd, const struct rpma_conn_cfg *cfg,
                        struct rpma_conn_req **req_ptr) {
    return rpma_conn_req_adopt_fd(peer, fd, 0, cfg, req_ptr);
}

int rpma_conn_req_adopt_fd(struct rpma_peer *peer, int fd, int flags, const struct rpma_conn_cfg *cfg,
                           struct rpma_conn_req **req_ptr) {
    constexpr int two_ways = RPMA_ADOPT_KEEP_FD | RPMA_ADOPT_SHARE_FD;
    if (peer == nullptr || fd < 0 || (flags & ~(RPMA_ADOPT_INITIATOR | two_ways)) != 0 ||
        (flags & two_ways) == two_ways || req_ptr == nullptr) {
        return librpma::invalid(
            "peer or req_ptr is NULL, fd is negative, or flags has unknown bits or both of KEEP_FD and "
            "SHARE_FD");
    }
    return librpma::give(rpma_conn_req::adopt(*peer, fd, flags, librpma::configuration_of(cfg)), req_ptr);
}

int rpma_conn_req_get_fd(const struct rpma_conn_req *req, int *fd) {
    if (req == nullptr || fd == nullptr) {
        return librpma::invalid("req or fd is NULL");
    }
    if (!req->waits_on_descriptor()) {
        return RPMA_E_NOSUPP;
    }
    *fd = req->event_fd();
    return 0;
}

int rpma_conn_req_proceed(struct rpma_conn_req *req) {
    return req == nullptr ? librpma::invalid("req is NULL") : req->proceed();
}

int rpma_conn_req_get_error(const struct rpma_conn_req *req, int *error) {
    if (req == nullptr || error == nullptr) {
        return librpma::invalid("req or error is NULL");
    }
    *error = req->error();
    return 0;
}

int rpma_conn_req_prepare(struct rpma_conn_req *req, struct rpma_peer *peer,
                          const struct rpma_conn_cfg *cfg) {
    if (req == nullptr || peer == nullptr) {
        return librpma::invalid("req or peer is NULL");
    }
    return req->prepare(*peer, librpma::configuration_of(cfg));
}

int rpma_conn_req_get_ibv_context(const struct rpma_conn_req *req, struct ibv_context **ibv_ctx_ptr) {
    if (req == nullptr || ibv_ctx_ptr == nullptr) {
        return librpma::invalid("req or ibv_ctx_ptr is NULL");
    }
    if (req->id().verbs == nullptr) {
        return RPMA_E_AGAIN;
    }
    *ibv_ctx_ptr = req->id().verbs;
    return 0;
}

int rpma_conn_req_set_context(struct rpma_conn_req *req, void *context) {
    if (req == nullptr) {
        return librpma::invalid("req is NULL");
    }
    req->set_context(context);
    return 0;
}

int rpma_conn_req_get_context(const struct rpma_conn_req *req, void **context) {
    if (req == nullptr || context == nullptr) {
        return librpma::invalid("req or context is NULL");
    }
    *context = req->context();
    return 0;
}

int rpma_conn_req_delete(struct rpma_conn_req **req_ptr) {
    return librpma::destroy(req_ptr);
}

int rpma_conn_req_connect(struct rpma_conn_req **req_ptr, const struct rpma_conn_private_data *pdata,
                          struct rpma_conn **conn_ptr) {
    if (req_ptr == nullptr || *req_ptr == nullptr) {
        return librpma::invalid("req_ptr or *req_ptr is NULL");
    }
    const std::unique_ptr<rpma_conn_req> req{std::exchange(*req_ptr, nullptr)};
    if (conn_ptr == nullptr || (pdata != nullptr && (pdata->ptr == nullptr || pdata->len == 0))) {
        return librpma::invalid("conn_ptr is NULL, or pdata has no bytes");
    }
    return librpma::give(req->connect(pdata), conn_ptr);
}

int rpma_conn_req_reject(struct rpma_conn_req **req_ptr, const struct rpma_conn_private_data *pdata) {
    if (req_ptr == nullptr || *req_ptr == nullptr) {
        return librpma::invalid("req_ptr or *req_ptr is NULL");
    }
    const std::unique_ptr<rpma_conn_req> req{std::exchange(*req_ptr, nullptr)};
    if (pdata != nullptr && (pdata->ptr == nullptr || pdata->len == 0)) {
        return librpma::invalid("pdata has no bytes");
    }
    const int result = req->reject(pdata);
    const int closed = req->close();
    return result != 0 ? result : closed;
}

int rpma_conn_req_get_private_data(const struct rpma_conn_req *req, struct rpma_conn_private_data *pdata) {
    if (req == nullptr || pdata == nullptr) {
        return librpma::invalid("req or pdata is NULL");
    }
    *pdata = req->private_data();
    return 0;
}

int rpma_conn_req_get_identity(const struct rpma_conn_req *req, const char **identity) {
    if (req == nullptr || identity == nullptr) {
        return librpma::invalid("req or identity is NULL");
    }
    *identity = librpma::identity_of(req->peer().provider(), req->id());
    return 0;
}

int rpma_conn_req_check_identity(const struct rpma_conn_req *req, bool *known) {
    if (req == nullptr || known == nullptr) {
        return librpma::invalid("req or known is NULL");
    }
    return librpma::check_identity(req->peer().provider(), req->id(), known);
}

int rpma_conn_req_get_local_addr(const struct rpma_conn_req *req, struct sockaddr_storage *addr) {
    return librpma::get_address(req, &rdma_addr::src_storage, addr);
}

int rpma_conn_req_get_peer_addr(const struct rpma_conn_req *req, struct sockaddr_storage *addr) {
    return librpma::get_address(req, &rdma_addr::dst_storage, addr);
}
