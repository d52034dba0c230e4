// SPDX-License-Identifier: BSD-3-Clause
// soft/cm/tcp_id: an rdma_cm id of RDMA_PS_TCP. When it is made, it is not known whether it will listen or
// have a peer. rdma_listen gives it a Listener; the other members are for an id with a peer.
//
// The locks are those of cm.hpp.
#pragma once

#include <rdma/rdma_cma.h>

#include <atomic>
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
    // Makes the id of a request that will come on a TCP connection, which the id then owns unless it shares
    // it. `flags` are SOFTRDMA_ADOPT_ bits.
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

    [[nodiscard]] const char *identity() const override { return identity_.load(std::memory_order_acquire); }
    [[nodiscard]] base::Result<bool> peer_is_known(TlsReading &files) const override;

    // ---- events of a connection, and of its handshake ----
    [[nodiscard]] bool offers_memory(Handshake &handshake) override;
    void connection_established() override;
    void connection_ended() override;
    void handshake_done(Handshake &handshake, const wire::MpaFrame &frame) override;
    void handshake_failed(Handshake &handshake, int error) override;

    // ---- events of its Listener ----
    void request_arrived(Handshake &handshake, const wire::MpaFrame &request) override;

private:
    // The queue pair of a connection, which is not destroyed while this lives.
    class HeldQueuePair {
    public:
        explicit HeldQueuePair(AnyQueuePair::Hold found);
        explicit operator bool() const { return queue_pair_ != nullptr; }
        QueuePair *operator->() const { return queue_pair_; }

    private:
        QueuePair *queue_pair_ = nullptr;
        AnyQueuePair::Hold hold_;
    };
    // Returns the chosen queue pair; none when there is none, or it was destroyed, because a program may
    // destroy an id's own with ibv_destroy_qp.
    [[nodiscard]] HeldQueuePair queue_pair() const;
    // Chooses the queue pair of a connection that begins: the id's own, or the one with the number. Fails
    // with EINVAL, and changes nothing, when there is none, or it was connected before.
    [[nodiscard]] base::Result<HeldQueuePair> choose_queue_pair(std::uint32_t number);
    void keep_proof(std::unique_ptr<TlsProof> proof);
    [[nodiscard]] base::Result<void> answer(const rdma_conn_param &wanted);
    void end_handshake();
    [[nodiscard]] int connection_socket() const override;
    void adopted_request_arrived(Handshake &handshake, const wire::MpaFrame &request);
    // Returns whether a request from an origin may wait for the program. Another request may be rejected for
    // it.
    [[nodiscard]] bool make_room_for_request(base::Origin origin);
    void look_at_awaited(base::Origin origin);
    void end_surplus_awaited();
    void adoption_failed(int error);
    // Makes this id the request that came on the handshake's link. Returns false when no device serves the
    // address that it came to (logged); then it must not be delivered.
    [[nodiscard]] bool become(Handshake &handshake, const wire::MpaFrame &request);
    [[nodiscard]] std::unique_ptr<Event> request_event(TcpId &child, const wire::MpaFrame &request);
    void reply_arrived(Handshake &handshake, const wire::MpaFrame &reply);
    void rejected(const Handshake &handshake, const wire::MpaFrame &reply);
    void fail_to_connect(int error);
    void push_outcome(rdma_cm_event_type type);

    std::unique_ptr<Listener> listener_;  // for an id that listens
    std::unique_ptr<Link> link_;          // of a request, or of a reply
    ConnectionParameters parameters_;
    wire::MpaFrame request_;  // the peer's request, without its private data
    std::vector<std::byte> reply_data_;
    std::unique_ptr<TlsProof> proof_;              // of the peer's identity; written once
    std::atomic<const char *> identity_{nullptr};  // its characters from then on
    std::shared_ptr<Group> handshake_group_;       // the group of the channel when the handshake began
    std::unique_ptr<Handshake> handshake_ GUARDED_BY(handshake_group_->mutex());
    // It exists while it waits for a reply. connect() makes it before the handshake; then the lock of
    // handshake_group_ guards it.
    std::unique_ptr<Meeting> meeting_;
};

}  // namespace soft
