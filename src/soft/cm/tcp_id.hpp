// SPDX-License-Identifier: BSD-3-Clause
// soft/cm/tcp_id: an rdma_cm id of RDMA_PS_TCP. Whether it listens or has a peer is not known when it is
// made: rdma_listen gives it a Listener, and the rest is of an id with a peer.
//
//     it listens:   Bound ─► Listening
//     it connects:  RouteResolved ─► Connecting ─┬──────────────┬─► Connected ─► Closed
//                                                └─► Responded ─┘
//     it is asked:  made with the request ─► Requested ─► Connecting ─► Connected ─► Closed
//     it adopts a socket:  Adopting ─► Requested, or RouteResolved as the initiator
//     Where it fails or rejects, each but Listening becomes Closed.
//
// Locks as in cm.hpp.
#pragma once

#include <rdma/rdma_cma.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "soft/cm/cm.hpp"
#include "soft/cm/handshake.hpp"
#include "soft/cm/listener.hpp"
#include "soft/cm/meeting.hpp"
#include "soft/connected/queue_pair.hpp"
#include "soft/wire/mpa.hpp"

namespace soft {

class TcpId final : public CmId, public ConnectionOwner, public HandshakeOwner, public Listener::Owner {
public:
    TcpId(EventChannel *channel, void *context);
    ~TcpId() override;
    // A request that will come on a TCP connection, which the id then owns unless it shares it. flags:
    // SOFTRDMA_ADOPT_.
    [[nodiscard]] static base::Result<CmId *> adopt(EventChannel &channel, int fd, int flags, void *context);

    // ---- rdma_cm ----
    [[nodiscard]] base::Result<void> bind(const sockaddr &address) override;
    void destroy_queue_pair() override;
    [[nodiscard]] base::Result<void> connect(const rdma_conn_param *parameters) override;
    [[nodiscard]] base::Result<void> establish() override;
    [[nodiscard]] base::Result<void> listen(int backlog) override;
    [[nodiscard]] base::Result<void> accept(const rdma_conn_param *parameters) override;
    [[nodiscard]] base::Result<void> reject(std::span<const std::byte> private_data) override;
    [[nodiscard]] base::Result<void> disconnect() override;
    [[nodiscard]] base::Result<void> disconnect_when_sent() override;

    // ---- what becomes of a connection, and of its handshake ----
    void connection_established() override;
    void connection_ended() override;
    void handshake_done(Handshake &handshake, const wire::MpaFrame &frame) override;
    void handshake_failed(Handshake &handshake, int error) override;

    // ---- what comes to its Listener ----
    void request_arrived(Handshake &handshake, const wire::MpaFrame &request) override;

private:
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
    void end_handshake();
    [[nodiscard]] int connection_socket() const override;
    void adopted_request_arrived(Handshake &handshake, const wire::MpaFrame &request);
    // Whether a request from there may wait for the program; another may have to go for it.
    [[nodiscard]] bool has_room_for_request(Origin origin);
    void look_at_accepted(Origin origin);
    void adoption_failed(int error);
    // This id is the request that came on the handshake's link. False when no device serves the address it
    // came to (logged): then it is not to be delivered.
    [[nodiscard]] bool become(Handshake &handshake, const wire::MpaFrame &request);
    [[nodiscard]] std::unique_ptr<Event> request_event(TcpId &child, const wire::MpaFrame &request);
    void reply_arrived(Handshake &handshake, const wire::MpaFrame &reply);
    [[nodiscard]] base::Result<std::unique_ptr<Link>> accepted_link(Handshake &handshake,
                                                                    const wire::MpaFrame &reply);
    void rejected(const Handshake &handshake, const wire::MpaFrame &reply);
    void fail_to_connect(int error);
    void push_outcome(rdma_cm_event_type type);

    std::unique_ptr<Listener> listener_;  // of an id that listens
    std::unique_ptr<Link> link_;          // requested, or responded to
    ConnectionParameters parameters_;
    wire::MpaFrame request_;  // what the peer asked for, without its private data
    std::vector<std::byte> reply_data_;
    bool established_told_ GUARDED_BY(mutex_) = false;
    std::shared_ptr<Group> handshake_group_;  // of the channel, when the handshake began
    std::unique_ptr<Handshake> handshake_ GUARDED_BY(handshake_group_->mutex());
    std::unique_ptr<Meeting> meeting_;  // while it waits for a reply
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
