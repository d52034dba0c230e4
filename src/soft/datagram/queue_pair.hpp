// SPDX-License-Identifier: BSD-3-Clause
// soft/datagram/queue_pair: an unreliable-datagram queue pair on one UDP socket, and one more for each
// multicast group.
//   datagram/queue_pair.cpp  its life and states, groups
//   datagram/send.cpp        from ibv_post_send into UDP
//   datagram/receive.cpp     from UDP into posted receives
//
// Its number is its address: the low 16 bits are its UDP port. The others are random, so that a message for
// an earlier queue pair on the port does not reach this one. A message is one datagram. A send is done when
// the socket has taken it; a message that finds no receive, or one that is too small, is dropped.
//
// The locks are those of a connected queue pair (connected/queue_pair.hpp).
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <memory>
#include <vector>

#include "base/mutex.hpp"
#include "soft/datagram/address.hpp"
#include "soft/datagram/socket.hpp"
#include "soft/ground/limits.hpp"
#include "soft/memory/memory.hpp"
#include "soft/progress/progress.hpp"
#include "soft/queues/any_queue_pair.hpp"
#include "soft/queues/completion_queue.hpp"
#include "soft/queues/posted_sends.hpp"
#include "soft/queues/receive_queue.hpp"
#include "soft/wire/datagram.hpp"

namespace soft {

class DatagramQueuePair final : public AnyQueuePair, public Source {
public:
    [[nodiscard]] static base::Result<DatagramQueuePair *> create(ibv_pd &pd, ibv_qp_init_attr &attributes);

    // ---- AnyQueuePair ----
    void release(CompletionQueue::WorkQueue queue, unsigned slots) override;

    // ---- multicast groups: they return 0 or an errno value ----
    int attach(const ibv_gid &group);
    int detach(const ibv_gid &group);

    // ---- connection manager: as rdma_create_qp leaves it ----
    void make_ready(std::uint32_t qkey);

    // ---- Source ----
    void progress() override;

private:
    void leave() override;
    int post_sends(ibv_send_wr *request, ibv_send_wr **bad, ChainPart when_bad) override;
    int post_receives(ibv_recv_wr *request, ibv_recv_wr **bad) override;
    int change_state(const ibv_qp_attr &attributes, int mask) override;
    void query_state(ibv_qp_attr &attributes) const override;

    struct PostedDatagram {
        wire::MessageHeader header;
        udp::Endpoint to;
        ibv_gid source{};
        std::uint64_t wr_id = 0;
        std::uint32_t length = 0;
        std::uint8_t flags = 0;  // IBV_SEND_
        std::uint8_t sges = 0;
        std::byte *kept = nullptr;  // the copy of inline data
        ibv_sge *list = nullptr;

        [[nodiscard]] bool is(ibv_send_flags flag) const { return (flags & flag) != 0; }
    };
    struct Attachment {
        ibv_gid group;
        base::Fd socket;
    };
    // The reasons for which datagrams were dropped, for the log when the queue pair is destroyed.
    enum class Drop : std::uint8_t { Malformed, Misaddressed, Unready, NoReceive, TooLong };
    static constexpr std::size_t drop_reasons = 5;

    DatagramQueuePair(ibv_pd &domain, const ibv_qp_init_attr &attributes, base::Fd socket,
                      std::uint32_t interface);

    // datagram/queue_pair.cpp
    void enter(ibv_qp_state next) REQUIRES(group_->mutex(), send_mutex_);
    void log_drops() const REQUIRES(group_->mutex());
    void watch(const Attachment &attachment, bool wanted) REQUIRES(group_->mutex());

    // datagram/send.cpp
    [[nodiscard]] int check(const ibv_send_wr &request) const;
    [[nodiscard]] int enqueue(const ibv_send_wr &request, ChainPart when_bad) REQUIRES(send_mutex_);
    void transmit() REQUIRES(send_mutex_);
    enum class SendOutcome : std::uint8_t {
        Gone,        // to the network, which may have lost it
        SocketFull,  // not sent: it waits for room
        BadMemory    // not sent: the program's memory cannot be read
    };
    [[nodiscard]] SendOutcome send_now(const PostedDatagram &request) REQUIRES(send_mutex_);
    // Works as Sender::wait_for_posts().
    void wait_for_posts() const EXCLUDES(send_mutex_);
    void complete(const PostedDatagram &request, ibv_wc_status status) REQUIRES(send_mutex_);
    void fail_sending() REQUIRES(send_mutex_);
    void flush_requests() REQUIRES(send_mutex_);
    void want_writable(bool wanted) REQUIRES(send_mutex_);

    // datagram/receive.cpp
    void receive_from(int socket, bool multicast) REQUIRES(group_->mutex());
    [[nodiscard]] std::optional<Drop> deliver(std::span<const std::byte> datagram,
                                              const udp::Arrival &arrival, bool multicast)
        REQUIRES(group_->mutex());
    [[nodiscard]] bool addressed(const wire::MessageHeader &header, const udp::Arrival &arrival,
                                 bool multicast) REQUIRES(group_->mutex());
    [[nodiscard]] bool is_of_device(const ibv_gid &gid) REQUIRES(group_->mutex());
    [[nodiscard]] ibv_wc_status scatter(std::span<const std::byte> route,
                                        std::span<const std::byte> payload) const REQUIRES(group_->mutex());
    void fail_receiving() REQUIRES(group_->mutex()) EXCLUDES(send_mutex_);
    void flush_receives() REQUIRES(group_->mutex());

    const std::shared_ptr<Group> group_;
    const base::Fd socket_;
    const std::uint32_t interface_;

    // It is changed with send_mutex_, and also with the group's lock except where sending fails. It is read
    // with either lock, or as a hint. `state` is the same value for the program.
    std::atomic<ibv_qp_state> phase_{IBV_QPS_RESET};
    std::atomic<std::uint32_t> qkey_{0};

    // ---- guarded by the group's lock ----
    std::vector<Attachment> attachments_ GUARDED_BY(group_->mutex());
    ibv_gid last_destination_
        GUARDED_BY(group_->mutex()){};  // the device's GID to which the last message came
    ReceiveQueue receives_;
    Receive receive_ GUARDED_BY(group_->mutex());  // the next one, when has_receive_ is true
    bool has_receive_ GUARDED_BY(group_->mutex()) = false;
    std::array<std::uint64_t, drop_reasons> drops_ GUARDED_BY(group_->mutex()){};

    // ---- guarded by send_mutex_ ----
    mutable base::Mutex send_mutex_;
    std::uint32_t send_psn_ GUARDED_BY(send_mutex_) = 0;  // kept for ibv_query_qp
    // Tells the analysis that the count of free places needs no lock.
    void uses_what_stays() const ASSERT_SHARED_CAPABILITY(send_mutex_) {}
    PostedSends<PostedDatagram> requests_ GUARDED_BY(send_mutex_);
    unsigned unsignaled_ GUARDED_BY(send_mutex_) =
        0;  // completed since the last completion entry; the next one frees them
    std::atomic<bool> waits_for_socket_{false};
};

}  // namespace soft
