// SPDX-License-Identifier: BSD-3-Clause
// librpma/conn_req: a request for a connection, of this side or of a peer, that is not answered yet.
#pragma once

#include <cerrno>
#include <cstdint>

#include "base/mutex.hpp"
#include "librpma/conn.hpp"
#include "librpma/connection_resources.hpp"

struct rpma_conn_req final : librpma::IdOwner {
public:
    using Made = librpma::Result<std::unique_ptr<rpma_conn_req>>;

    // These make a request of this side. ask() blocks until address and route are resolved, up to the timeout
    // for each of the two; begin() leaves that to proceed().
    [[nodiscard]] static Made ask(const rpma_peer &peer, const char *address, const char *port,
                                  const librpma::ConnectionConfiguration &configuration);
    [[nodiscard]] static Made begin(const rpma_peer &peer, const char *address, const char *port,
                                    const librpma::ConnectionConfiguration &configuration);
    // Makes a peer's request of its id. Rejects the peer when it fails.
    [[nodiscard]] static Made make_with_queues(const rpma_peer &peer, verbs::Id id,
                                               librpma::PrivateData private_data,
                                               const librpma::ConnectionConfiguration &configuration);
    // Does the same, but makes no queues before prepare().
    [[nodiscard]] static Made make_bare(const rpma_peer &peer, verbs::Id id,
                                        librpma::PrivateData private_data, const rpma_events *events);
    // Makes a peer's request that is about to come on a TCP socket.
    [[nodiscard]] static Made adopt(const rpma_peer &peer, int fd, int flags,
                                    const librpma::ConnectionConfiguration &configuration);
    rpma_conn_req(const rpma_peer &peer, librpma::ConnectionConfiguration configuration)
        : IdOwner{Kind::Request}, peer_{&peer}, configuration_{std::move(configuration)} {}
    // Rejects a peer's request.
    ~rpma_conn_req() { (void)close(); }
    rpma_conn_req(const rpma_conn_req &) = delete;
    rpma_conn_req &operator=(const rpma_conn_req &) = delete;

    // Returns whether there is a queue pair, and everything that connecting needs is known.
    [[nodiscard]] bool ready() const { return state_ == State::Ready; }
    [[nodiscard]] int proceed();
    // Makes the queues of a request that has none, with this peer, which must be on the device that the
    // request came by.
    [[nodiscard]] int prepare(const rpma_peer &peer, const librpma::ConnectionConfiguration &configuration);
    // Takes an event that came to the rpma_events. Returns true when the program is to be told: the request
    // is ready, or has failed.
    [[nodiscard]] bool take(verbs::Event event) EXCLUDES(beginning_);
    // Returns whether the program calls proceed() when the descriptor is readable.
    [[nodiscard]] bool waits_on_descriptor() const { return waits_on_descriptor_; }
    [[nodiscard]] int event_fd() const { return connection_.event_channel->fd; }

    [[nodiscard]] const rpma_peer &peer() const { return *peer_; }
    [[nodiscard]] ibv_qp *qp() const { return connection_.id->qp; }
    [[nodiscard]] const rdma_cm_id &id() const { return *connection_.id; }
    [[nodiscard]] rpma_conn_private_data private_data() const {
        return passive_ ? connection_.private_data.view() : rpma_conn_private_data{};
    }
    [[nodiscard]] bool checks_bounds() const { return configuration_.bounds_check; }
    // On success the request is empty afterwards.
    [[nodiscard]] librpma::Result<std::unique_ptr<rpma_conn>> connect(const rpma_conn_private_data *data);
    [[nodiscard]] int close() { return connection_.close(peer_->provider(), passive_); }
    // Rejects a peer's request with private data. The request is to be destroyed then.
    [[nodiscard]] int reject(const rpma_conn_private_data *data);

    // The program uses it first, and the connection later. Returns the reason why proceed() fails, as an
    // errno value; 0 when it does not fail.
    [[nodiscard]] int error() const {
        const int local = error_ != 0 ? error_ : ECONNABORTED;
        return state_ == State::Failed ? local : 0;
    }

    void set_context(void *context) { context_ = context; }
    [[nodiscard]] void *context() const { return context_; }

private:
    [[nodiscard]] static Made create(const rpma_peer &peer,
                                     const librpma::ConnectionConfiguration &configuration);
    // Makes a channel that does not block. The program waits on its descriptor and calls proceed().
    [[nodiscard]] int wait_on_own_channel();
    // Returns the channel for the events of an id that begins with this request.
    [[nodiscard]] rdma_event_channel *channel() const;
    [[nodiscard]] int ask_on_channel(const char *address, const char *port);
    [[nodiscard]] int set_blocking(bool blocking) const;
    // Takes one event of the request's own channel. Returns RPMA_E_AGAIN when there is none and the channel
    // does not block.
    [[nodiscard]] int step();
    [[nodiscard]] int advance(verbs::Event event);
    void arrived(librpma::PrivateData private_data);
    [[nodiscard]] int make_ready();
    [[nodiscard]] int fail(int result);
    [[nodiscard]] librpma::Result<std::unique_ptr<rpma_conn>> prepare_connection();

    //  ask(), begin(), adopt() ─► Underway ─ events ─────────┐
    //  make_with_queues(), adopt() of an initiator ──────────┼─► Ready      a step that fails ─► Failed
    //  make_bare() ─► Bare ─ prepare() ──────────────────────┘
    enum class State : std::uint8_t { Underway, Bare, Ready, Failed };

    const rpma_peer *peer_;
    librpma::ConnectionConfiguration configuration_;
    State state_ = State::Underway;
    int failure_ = 0;       // in Failed: what proceed() returns
    int error_ = 0;         // an errno value, when the network or the peer is the reason of that
    bool passive_ = false;  // a peer waits for the answer
    bool waits_on_descriptor_ = false;
    void *context_ = nullptr;
    base::Mutex beginning_;  // held while the request is made, because its first event may come in another
                             // thread meanwhile
    librpma::ConnectionResources connection_;
};
