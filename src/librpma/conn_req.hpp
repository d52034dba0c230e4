// SPDX-License-Identifier: BSD-3-Clause
// librpma/conn_req: a connection that is asked for, here or by a peer, and not answered yet.
#pragma once

#include "librpma/conn.hpp"
#include "librpma/connection.hpp"

struct rpma_conn_req final {
public:
    // A request of our own, address and route resolved. Blocks up to the timeout for each of the two.
    [[nodiscard]] static librpma::Result<std::unique_ptr<rpma_conn_req>> ask(
        const rpma_peer &peer, const char *address, const char *port,
        const librpma::ConnectionParameters &parameters);
    // A peer's request, which came as id; rejected when this fails.
    [[nodiscard]] static librpma::Result<std::unique_ptr<rpma_conn_req>> answer(
        const rpma_peer &peer, verbs::Id id, librpma::PrivateData private_data,
        const librpma::ConnectionParameters &parameters);
    rpma_conn_req(const rpma_peer &peer, verbs::Id &&id, bool passive) : peer_{peer}, passive_{passive} {
        connection_.id = std::move(id);
    }

    [[nodiscard]] ibv_qp *qp() const { return connection_.id->qp; }
    [[nodiscard]] rpma_conn_private_data private_data() const {
        return passive_ ? connection_.private_data.view() : rpma_conn_private_data{};
    }
    // On success this is empty, on failure it is to be closed.
    [[nodiscard]] librpma::Result<std::unique_ptr<rpma_conn>> connect(const rpma_conn_private_data *data);
    // Rejects a peer's request.
    [[nodiscard]] int close() { return connection_.close(peer_.provider(), passive_); }

private:
    const rpma_peer &peer_;
    bool passive_;
    librpma::Connection connection_;
};
