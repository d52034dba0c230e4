// SPDX-License-Identifier: BSD-3-Clause
// soft/cm/cm: the connection manager, rdma_cm's ids and event channels.
//   cm/channel.cpp   event channels and events
//   cm/id_events.cpp where the events of an id go, and how a synchronous id waits for them
//   cm/id.cpp        an id: addresses, queue pair, disconnect, end
//   cm/options.cpp   what can be set on an id
//   cm/connect.cpp   the initiator's side: connect, establish
//   cm/listener.cpp  the responder's side: sockets that come to a listener
//   cm/listen.cpp    the responder's side: listen, the requests that come, accept, reject
//   api/endpoint.cpp  the C face of what an id makes for itself: queues, queue pair, whole endpoints
//   api/address_info.cpp   rdma_getaddrinfo
//   api/cm.cpp       the rest of the C face
//   handshake.cpp    the MPA start-up of one link
//
// Locks, in this order: the group of a channel (listeners and handshakes), the table of queue pairs by
// number, the group of a queue pair, an id's mutex_, a channel's, an id's EventCount's. An id's mutex_ guards
// where its events go; no group's lock is taken with it held.
#pragma once

#include <rdma/rdma_cma.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/fd.hpp"
#include "base/result.hpp"
#include "soft/cm/channel.hpp"
#include "soft/cm/handshake.hpp"
#include "soft/cm/librdmacm_id.hpp"
#include "soft/cm/listener.hpp"
#include "soft/connected/queue_pair.hpp"
#include "soft/ground/limits.hpp"
#include "soft/ground/origin.hpp"
#include "soft/ground/tcp.hpp"
#include "soft/progress/progress.hpp"
#include "soft/wire/mpa.hpp"

namespace soft {

// An id of RDMA_PS_TCP; cm/datagram_id.hpp has the other kind.
class CmId : public LibrdmacmId, public ConnectionOwner, public HandshakeOwner, public Listener::Owner {
public:
    // With a null channel the id is synchronous: it has a channel of its own, and calls wait for their
    // events.
    [[nodiscard]] static base::Result<CmId *> create(EventChannel *channel, void *context,
                                                     rdma_port_space port_space = RDMA_PS_TCP);
    // A request that will come on a TCP connection, which the id then owns unless it shares it. flags:
    // SOFTRDMA_ADOPT_.
    [[nodiscard]] static base::Result<CmId *> adopt(EventChannel &channel, int fd, int flags, void *context);
    // Waits until every event of the id is acknowledged.
    virtual ~CmId();
    CmId(const CmId &) = delete;
    CmId &operator=(const CmId &) = delete;

    // Made before a fork, and so the parent's.
    [[nodiscard]] bool inherited() const;

    // ---- rdma_cm ----
    [[nodiscard]] base::Result<void> set_option(int level, int name, const void *value, std::size_t size);
    [[nodiscard]] virtual base::Result<void> bind(const sockaddr &address);
    [[nodiscard]] base::Result<void> resolve_address(const sockaddr *source, const sockaddr &asked_for);
    [[nodiscard]] virtual base::Result<void> resolve_route();
    void destroy_queue_pair();
    [[nodiscard]] virtual base::Result<void> connect(const rdma_conn_param *parameters);
    // The rest of it after CONNECT_RESPONSE, of an id that connects a queue pair it has not made.
    [[nodiscard]] base::Result<void> establish();
    [[nodiscard]] virtual base::Result<void> listen(int backlog);
    [[nodiscard]] virtual base::Result<void> accept(const rdma_conn_param *parameters);
    [[nodiscard]] virtual base::Result<void> reject(std::span<const std::byte> private_data);
    // The next request of a synchronous listener, as an id that is synchronous too and keeps its event.
    [[nodiscard]] base::Result<CmId *> next_request();
    // It has a queue pair now.
    virtual void queue_pair_created() {}
    [[nodiscard]] virtual base::Result<void> disconnect();
    // Disconnects when what is posted now is done; does not wait for it. Only for RDMA_PS_TCP.
    [[nodiscard]] base::Result<void> disconnect_when_sent();
    [[nodiscard]] base::Result<void> migrate(EventChannel *to);
    // It listens, or has a peer.
    [[nodiscard]] bool has_begun() const { return state_.load() > State::RouteResolved; }
    // A request for a connection, this id, waits in that channel.
    void arrived_on(EventChannel &events);

    // An endpoint that listens makes the queue pair of each request's id from this.
    std::optional<ibv_qp_init_attr> children_queue_pair;

    // ---- what becomes of a connection ----
    void connection_established() override;
    void connection_ended() override;
    void handshake_done(Handshake &handshake, const wire::MpaFrame &frame) override;
    void handshake_failed(Handshake &handshake, int error) override;

    // ---- what comes to a listener ----
    void request_arrived(Handshake &handshake, const wire::MpaFrame &request) override;

protected:
    enum class State {
        Idle,
        Bound,
        AddressResolved,
        RouteResolved,
        Connecting,
        Responded,  // the reply is here; the rest is establish()'s
        Connected,
        Listening,
        Adopting,  // a TCP connection whose request is on its way
        Requested,
        Closed
    };

    CmId(EventChannel *channel, void *context);

    // News that no call of the program makes are in one of the events that were made with the id.
    void push(rdma_cm_event_type type, int status = 0,
              std::unique_ptr<Event> made = std::make_unique<Event>());
    void push(std::unique_ptr<Event> made);
    [[nodiscard]] base::Result<void> wait_if_synchronous();
    void drop_event();
    // The queue pair of a connection, which is not destroyed while this lives.
    class InUse {
    public:
        explicit InUse(AnyQueuePair::Hold found);
        explicit operator bool() const { return queue_pair_ != nullptr; }
        QueuePair *operator->() const { return queue_pair_; }

    private:
        QueuePair *queue_pair_ = nullptr;
        AnyQueuePair::Hold hold_;
    };
    // The one that was chosen; none when there is none, or it was destroyed, which the program may do to an
    // id's own with ibv_destroy_qp.
    [[nodiscard]] InUse queue_pair() const;
    // For a connection that begins: the id's own, or that with the number. EINVAL, and all is as it was, when
    // there is none, or it was connected before.
    [[nodiscard]] base::Result<InUse> choose_queue_pair(std::uint32_t number);
    [[nodiscard]] base::Result<void> answer(const rdma_conn_param &wanted);
    // Finds the device; there may be none, and then `verbs` stays null. Fails when that cannot be known.
    base::Result<void> set_source(const tcp::Address &address);
    void set_destination(const sockaddr &address);
    [[nodiscard]] const tcp::Address &peer() const { return route.addr.dst_storage; }
    void end_handshake();
    // Of the channel that its events go to now.
    [[nodiscard]] std::shared_ptr<Group> channel_group() EXCLUDES(mutex_);
    // Its TCP socket while no queue pair has it; -1 when there is none.
    [[nodiscard]] int connection_socket() const;
    void adopted_request_arrived(Handshake &handshake, const wire::MpaFrame &request);
    // Whether a request from there may wait for the program; another may have to go for it.
    [[nodiscard]] bool has_room_for_request(Origin origin);
    void look_at_accepted(Origin origin);
    void awaited_no_more();
    void adoption_failed(int error);
    // This id is the request that came on the handshake's link. False when no device serves the address it
    // came to (logged): then it is not to be delivered.
    [[nodiscard]] bool become(Handshake &handshake, const wire::MpaFrame &request);
    [[nodiscard]] bool has_device(const tcp::Address &peer) const;
    [[nodiscard]] std::unique_ptr<Event> request_event(CmId &child, const wire::MpaFrame &request);
    void reply_arrived(Handshake &handshake, const wire::MpaFrame &reply);
    void push_outcome(rdma_cm_event_type type);

    base::Mutex mutex_;
    // The program's own calls alone change it, and need not lock to read it.
    void reads_channel() const ASSERT_SHARED_CAPABILITY(mutex_) {}
    EventChannel *channel_ GUARDED_BY(mutex_);  // null until a request is delivered
    OwnChannel own_channel_;                    // of a synchronous id
    EventCount count_;
    std::atomic<State> state_{State::Idle};
    std::unique_ptr<Event> outcome_ = std::make_unique<Event>();  // of connecting or asking
    std::unique_ptr<Event> end_ = std::make_unique<Event>();      // of a connection
    bool established_told_ GUARDED_BY(mutex_) = false;

    base::Fd socket_;             // bound or adopted
    std::unique_ptr<Link> link_;  // requested, or responded to
    tcp::Options options_;
    std::uint32_t qp_num_ = 0;  // of the queue pair that was chosen, which may be gone: no pointer is kept
    ConnectionParameters parameters_;
    wire::MpaFrame request_;  // what the peer asked for, without its private data
    std::vector<std::byte> reply_data_;

    std::unique_ptr<Listener> listener_;      // of an id that listens
    std::shared_ptr<Group> handshake_group_;  // of the channel, when the handshake began
    std::unique_ptr<Handshake> handshake_ GUARDED_BY(handshake_group_->mutex());  // of an id with a peer
};

// Whether the environment (SOFTRDMA_CRC) asks for CRC32C on the wire.
[[nodiscard]] bool crc_wanted();
// Returns what the program gave, checked, or the most the device has when it gave nothing.
[[nodiscard]] base::Result<rdma_conn_param> wanted_parameters(const rdma_conn_param *given);
// A depth of the peer's as events have it, which is eight bits.
[[nodiscard]] std::uint8_t told_depth(std::uint16_t depth);
// Reads and flushes at once that this end grants when so many are asked for.
[[nodiscard]] std::uint16_t granted_depth(std::uint8_t wanted);

}  // namespace soft
