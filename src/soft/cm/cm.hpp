// SPDX-License-Identifier: BSD-3-Clause
// soft/cm/cm: the connection manager, rdma_cm's ids and event channels.
//   cm/id.cpp        what an id of either kind has: addresses, its end
//   cm/id_events.cpp where the events of an id go, and how a synchronous id waits for them
//   cm/options.cpp   what can be set on an id
//   cm/create.cpp    an id of the kind that its port space asks for
//   cm/tcp_id.hpp    an id of RDMA_PS_TCP: tcp_id_connect.cpp has the initiator's side, tcp_id_listen.cpp
//                    rdma_listen and how a request becomes an id, tcp_id_respond.cpp how that is answered,
//                    wanted.hpp what a program asks for
//   cm/listener.hpp  the part of it that listens: its socket, and connections until their requests are whole
//   cm/handshake.hpp the MPA start-up of one link
//   cm/meeting.hpp   how two processes of one host find each other, and change to a link through memory
//   cm/rejection.hpp the reply that rejects a request
//   cm/datagram_id.hpp   an id of RDMA_PS_UDP or RDMA_PS_IPOIB; datagram_group.cpp has its multicast groups
//   cm/channel.hpp   event channels and events
//   api/endpoint.cpp  the C face of what an id makes for itself: queues, queue pair, whole endpoints
//   api/address_info.cpp   rdma_getaddrinfo
//   api/cm.cpp       the rest of the C face
//
// Locks, in this order: the group of a channel (listeners and handshakes), the table of queue pairs by
// number, the group of a queue pair, an id's mutex_ (a listener's before that of a request), a channel's, an
// EventCount's. An id's mutex_ guards the channel that its events go to; no group's lock is taken with it
// held.
#pragma once

#include <rdma/rdma_cma.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

#include "base/fd.hpp"
#include "base/result.hpp"
#include "soft/cm/channel.hpp"
#include "soft/cm/librdmacm_id.hpp"
#include "soft/ground/environment.hpp"
#include "soft/ground/tcp.hpp"
#include "soft/progress/progress.hpp"

namespace soft {

class TlsReading;

// An id of either kind. cm/tcp_id.hpp and cm/datagram_id.hpp have the kinds. doc/ARCHITECTURE.md draws the
// states.
class CmId : public LibrdmacmId {
public:
    // With a null channel the id is synchronous: it has a channel of its own, and calls wait for their
    // events.
    [[nodiscard]] static base::Result<CmId *> create(EventChannel *channel, void *context,
                                                     rdma_port_space port_space = RDMA_PS_TCP);
    // Waits until every event of the id is acknowledged.
    virtual ~CmId();
    CmId(const CmId &) = delete;
    CmId &operator=(const CmId &) = delete;

    // Returns whether a parent process made the id.
    [[nodiscard]] bool inherited() const;

    // ---- rdma_cm ----
    [[nodiscard]] base::Result<void> set_option(int level, int name, const void *value, std::size_t size);
    // Makes the id's connections use TLS as this text asks (TlsAsked); null stands for RPMA_TLS. Fails with
    // EINVAL when the text is not valid, or the id has begun and does not use that already, or with
    // EOPNOTSUPP when the id is not of RDMA_PS_TCP.
    [[nodiscard]] base::Result<void> set_tls(const char *text);
    [[nodiscard]] virtual base::Result<void> bind(const sockaddr &address) = 0;
    [[nodiscard]] base::Result<void> resolve_address(const sockaddr *source, const sockaddr &asked_for);
    [[nodiscard]] virtual base::Result<void> resolve_route();
    virtual void destroy_queue_pair();
    [[nodiscard]] virtual base::Result<void> connect(const rdma_conn_param *parameters) = 0;
    // Ends connecting, after CONNECT_RESPONSE, for an id that connects a queue pair which the id has not
    // made.
    [[nodiscard]] virtual base::Result<void> establish() { return base::failure(EINVAL); }
    [[nodiscard]] virtual base::Result<void> listen(int backlog) = 0;
    [[nodiscard]] virtual base::Result<void> accept(const rdma_conn_param *parameters) = 0;
    [[nodiscard]] virtual base::Result<void> reject(std::span<const std::byte> private_data) = 0;
    // Returns the next request of a synchronous listener, as an id that is synchronous too and keeps its
    // event.
    [[nodiscard]] base::Result<CmId *> next_request();
    // Is called when the caller has made the id's queue pair.
    virtual void queue_pair_created() {}
    [[nodiscard]] virtual base::Result<void> disconnect() = 0;
    // Disconnects when the operations that are posted now are done, and does not wait for that. Fails with
    // EINVAL when the id is not of RDMA_PS_TCP.
    [[nodiscard]] virtual base::Result<void> disconnect_when_sent() { return base::failure(EINVAL); }
    [[nodiscard]] base::Result<void> migrate(EventChannel *to);
    // Returns the identity with which the peer has authenticated itself, as text that stays as long as the
    // id; null when it has not.
    [[nodiscard]] virtual const char *identity() const { return nullptr; }
    // Returns whether the peer, which has authenticated itself, would be let in now too. Fails with EINVAL
    // when it has not, or as the files of TLS cannot be read. Throws std::bad_alloc.
    [[nodiscard]] virtual base::Result<bool> peer_is_known(TlsReading &) const {
        return base::failure(EINVAL);
    }
    // Returns whether the id listens, or has a peer.
    [[nodiscard]] bool has_begun() const { return state_.load() > State::RouteResolved; }
    // Makes this id a request for a connection, which waits in that channel.
    void arrived_on(EventChannel &events);

    // An endpoint that listens makes the queue pair of each request's id from this.
    std::optional<ibv_qp_init_attr> children_queue_pair;

protected:
    enum class State {
        Idle,
        Bound,
        AddressResolved,
        RouteResolved,
        Connecting,
        Responded,  // the reply has come; establish() does the rest
        Connected,
        Listening,
        Adopting,  // a TCP connection whose request has not come yet
        Requested,
        Closed
    };

    CmId(EventChannel *channel, void *context);

    // Pushes an event. An event that no call of the program causes needs no memory, because it was made with
    // the id.
    void push(rdma_cm_event_type type, int status = 0,
              std::unique_ptr<Event> made = std::make_unique<Event>());
    void push(std::unique_ptr<Event> made);
    [[nodiscard]] base::Result<void> wait_if_synchronous();
    void drop_event();
    // Finds the device. When there is none, `verbs` stays null. Fails when the addresses cannot be read.
    base::Result<void> set_source(const tcp::Address &address);
    void set_destination(const sockaddr &address);
    [[nodiscard]] const tcp::Address &peer() const { return route.addr.dst_storage; }
    // Returns the group of the channel that its events go to now.
    [[nodiscard]] std::shared_ptr<Group> channel_group() EXCLUDES(mutex_);
    // Returns the id's TCP socket while no queue pair has that, or -1.
    [[nodiscard]] virtual int connection_socket() const { return socket_.get(); }
    // Changes the state, logs that, and returns the one before.
    State enter(State next);
    void awaited_no_more();
    [[nodiscard]] bool has_device(const tcp::Address &peer) const;

    base::Mutex mutex_;
    // Only the program's own calls change it, so they need no lock to read it.
    void reads_channel() const ASSERT_SHARED_CAPABILITY(mutex_) {}
    EventChannel *channel_ GUARDED_BY(mutex_);  // null until a request is delivered
    OwnChannel own_channel_;                    // for a synchronous id
    EventCount count_;
    std::atomic<State> state_{State::Idle};
    std::unique_ptr<Event> outcome_ = std::make_unique<Event>();  // the event of connecting or asking
    std::unique_ptr<Event> end_ = std::make_unique<Event>();      // the event of a connection's end

    base::Fd socket_;  // bound or adopted
    tcp::Options options_;
    std::uint8_t ack_timeout_ = 0;
    base::SharedTls tls_ = tls_of_new_ids();  // does not change once the id has begun
    std::uint32_t qp_num_ = 0;  // of the chosen queue pair; that may be gone, so no pointer is kept
};

}  // namespace soft
