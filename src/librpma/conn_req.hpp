// SPDX-License-Identifier: BSD-3-Clause
// librpma/conn_req: a connection that is asked for, here or by a peer, and not answered yet.
#pragma once

#include "librpma/conn.hpp"
#include "librpma/connection.hpp"

struct rpma_conn_req final {
public:
    using Made = librpma::Result<std::unique_ptr<rpma_conn_req>>;

    // A request of our own. ask() blocks until address and route are resolved, up to the timeout for each of
    // the two; begin() leaves that to proceed().
    [[nodiscard]] static Made ask(const rpma_peer &peer, const char *address, const char *port,
                                  const librpma::ConnectionParameters &parameters);
    [[nodiscard]] static Made begin(const rpma_peer &peer, const char *address, const char *port,
                                    const librpma::ConnectionParameters &parameters);
    // A peer's request, which came as id; rejected when this fails.
    [[nodiscard]] static Made answer(const rpma_peer &peer, verbs::Id id, librpma::PrivateData private_data,
                                     const librpma::ConnectionParameters &parameters);
    // A peer's request, which is about to come on a TCP socket.
    [[nodiscard]] static Made adopt(const rpma_peer &peer, int fd,
                                    const librpma::ConnectionParameters &parameters);
    rpma_conn_req(const rpma_peer &peer, const librpma::ConnectionParameters &parameters)
        : peer_{peer}, parameters_{parameters} {}
    // Rejects a peer's request.
    ~rpma_conn_req() { (void)close(); }
    rpma_conn_req(const rpma_conn_req &) = delete;
    rpma_conn_req &operator=(const rpma_conn_req &) = delete;

    // There is a queue pair, and all is known that connecting needs.
    [[nodiscard]] bool ready() const { return ready_; }
    [[nodiscard]] int proceed();
    // Whether proceed() is for the program to call, when the descriptor is readable.
    [[nodiscard]] bool waits_on_descriptor() const { return waits_on_descriptor_; }
    [[nodiscard]] int event_fd() const { return connection_.event_channel->fd; }
    [[nodiscard]] int wait_on_descriptor();

    [[nodiscard]] ibv_qp *qp() const { return connection_.id->qp; }
    [[nodiscard]] const rdma_cm_id &id() const { return *connection_.id; }
    [[nodiscard]] rpma_conn_private_data private_data() const {
        return passive_ ? connection_.private_data.view() : rpma_conn_private_data{};
    }
    [[nodiscard]] bool checks_bounds() const { return parameters_.bounds_check; }
    // On success this is empty.
    [[nodiscard]] librpma::Result<std::unique_ptr<rpma_conn>> connect(const rpma_conn_private_data *data);
    [[nodiscard]] int close() { return connection_.close(peer_.provider(), passive_); }

private:
    [[nodiscard]] static Made create(const rpma_peer &peer, const librpma::ConnectionParameters &parameters);
    [[nodiscard]] int set_blocking(bool blocking) const;
    // Takes one event. RPMA_E_AGAIN when there is none and the channel does not block.
    [[nodiscard]] int step();
    [[nodiscard]] int arrived(librpma::PrivateData private_data);
    [[nodiscard]] int make_ready();
    [[nodiscard]] librpma::Result<std::unique_ptr<rpma_conn>> prepare_connection();

    const rpma_peer &peer_;
    const librpma::ConnectionParameters parameters_;
    bool passive_ = false;  // a peer waits for the answer
    bool ready_ = false;
    bool waits_on_descriptor_ = false;
    librpma::Connection connection_;
};
