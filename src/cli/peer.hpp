// SPDX-License-Identifier: BSD-3-Clause
// cli/peer: owners of librpma's objects, and the RDMA device that serves an address. The lifetimes follow
// librpma's rules: a peer outlives the others, and a connection ends before the memory that it uses.
#pragma once

#include <librpma.h>

#include <memory>
#include <span>
#include <string>

#include "cli/arguments.hpp"
#include "cli/failure.hpp"

namespace cli {

// Deletes the object at the end of the scope. An error is ignored, because librpma frees the object anyway.
template <auto Delete>
struct Deleter {
    template <typename T>
    void operator()(T *object) const {
        (void)Delete(&object);
    }
};

using Peer = std::unique_ptr<rpma_peer, Deleter<rpma_peer_delete>>;
using PeerConfiguration = std::unique_ptr<rpma_peer_cfg, Deleter<rpma_peer_cfg_delete>>;
// Deregisters memory. A region to which a peer on this host may still write stays (rpma_mr_dereg), and keeps
// its memory, until deregister_again() finds that it is over. Any thread may do both.
struct Deregistration {
    // NOLINTNEXTLINE(readability-redundant-member-init): g++ wants one where a deleter is made without
    std::shared_ptr<const void> memory{};  // nothing when the memory has an owner that outlives all regions
    void operator()(rpma_mr_local *region);
};
// Tries one of the regions that stay again, in turn. Blocks for a second at most.
void deregister_again();

using LocalRegion = std::unique_ptr<rpma_mr_local, Deregistration>;

using RemoteRegion = std::unique_ptr<rpma_mr_remote, Deleter<rpma_mr_remote_delete>>;
using ConnectionConfiguration = std::unique_ptr<rpma_conn_cfg, Deleter<rpma_conn_cfg_delete>>;
using ConnectionRequest = std::unique_ptr<rpma_conn_req, Deleter<rpma_conn_req_delete>>;
using Connection = std::unique_ptr<rpma_conn, Deleter<rpma_conn_delete>>;
using Completions = std::unique_ptr<rpma_cq, Deleter<rpma_cq_delete>>;
using Endpoint = std::unique_ptr<rpma_ep, Deleter<rpma_ep_shutdown>>;

struct DevicePeer {
    Peer peer;
    std::string name;
    bool is_soft = false;
};

// Refuses an environment with which no device opens, whatever the address is.
[[nodiscard]] Outcome<> check_device_choice();
// Refuses it also when the soft device's settings are wrong, such as a key that does not fit its certificate.
[[nodiscard]] Outcome<> check_settings();

// Returns a peer on the device that has this address (LOCAL), or on the way to it (REMOTE; blocks for up to a
// second).
[[nodiscard]] Outcome<DevicePeer> open_peer(const Address &address, rpma_util_ibv_context_type type);

// Registers memory. The memory outlives the region.
[[nodiscard]] Outcome<LocalRegion> register_memory(const DevicePeer &device, std::span<std::byte> memory,
                                                   int usage);

}  // namespace cli
