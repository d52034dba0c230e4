// SPDX-License-Identifier: BSD-3-Clause
// soft/cm/datagram_id: an rdma_cm id of RDMA_PS_UDP or RDMA_PS_IPOIB. There is no connection: `connect` asks
// the service on a UDP port for its queue pair, and `accept` answers. The id also has memberships in
// multicast groups.
//
// The locks are those of cm.hpp. A listener, and an id that asks, are in the group of their channel.
#pragma once

#include <infiniband/sa.h>

#include <memory>
#include <vector>

#include "soft/cm/cm.hpp"
#include "soft/datagram/lookup.hpp"
#include "soft/datagram/queue_pair.hpp"
#include "soft/progress/progress.hpp"

namespace soft {

class DatagramId final : public CmId, public Source {
public:
    DatagramId(EventChannel *channel, void *context, rdma_port_space port_space);
    ~DatagramId() override;

    // ---- rdma_cm ----
    [[nodiscard]] base::Result<void> bind(const sockaddr &address) override;
    [[nodiscard]] base::Result<void> resolve_route() override;
    [[nodiscard]] base::Result<void> connect(const rdma_conn_param *parameters) override;
    [[nodiscard]] base::Result<void> listen(int backlog) override;
    [[nodiscard]] base::Result<void> accept(const rdma_conn_param *parameters) override;
    [[nodiscard]] base::Result<void> reject(std::span<const std::byte> private_data) override;
    void queue_pair_created() override;
    [[nodiscard]] base::Result<void> disconnect() override;
    // Makes the queue pair, if there is one, a member, unless it only sends.
    [[nodiscard]] base::Result<void> join(const sockaddr &address, bool only_sends, void *join_context);
    [[nodiscard]] base::Result<void> leave(const sockaddr &address);

    // ---- Source ----
    void progress() override;
    void expire() override;

private:
    struct Membership {
        ibv_gid group;
        bool attached;
    };

    // Returns the id's own queue pair, which exists.
    [[nodiscard]] DatagramQueuePair *datagram_qp() const {
        return static_cast<DatagramQueuePair *>(AnyQueuePair::of(qp));
    }
    // Detaches the id's own queue pair, which the program may have destroyed with ibv_destroy_qp.
    void detach(const Membership &membership) const;
    [[nodiscard]] const Device &device() const { return *static_cast<const Device *>(verbs->device); }
    [[nodiscard]] ibv_gid source_gid() const { return route.addr.addr.ibaddr.sgid; }

    void ask() REQUIRES(handshake_group_->mutex());
    void stop_asking(rdma_cm_event_type outcome, int status, const wire::LookupReply &reply)
        REQUIRES(handshake_group_->mutex());
    void stop_listening() REQUIRES(handshake_group_->mutex());
    void request_arrived(const udp::Arrival &arrival, const wire::LookupRequest &request)
        REQUIRES(handshake_group_->mutex());

    std::shared_ptr<Group> handshake_group_;    // the group of the channel at connect or listen
    std::shared_ptr<LookupService> service_;    // for a listener, and for a request that came to it
    Lookup lookup_;                             // for a request
    wire::LookupRequestBytes request_bytes_{};  // for an id that asks
    std::uint64_t token_ = 0;
    int attempts_ = 0;
    ibv_sa_path_rec path_{};
    std::vector<Membership> memberships_;  // only the program's calls use it
};

}  // namespace soft
