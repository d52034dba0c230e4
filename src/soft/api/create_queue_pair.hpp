// SPDX-License-Identifier: BSD-3-Clause
// soft/api/create_queue_pair: creates a queue pair of the requested type.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "base/result.hpp"
#include "soft/queues/any_queue_pair.hpp"
#include "soft/queues/xrc_domain.hpp"

namespace soft {

// Who connects a queue pair of type RC: the id that has it, or the program, which leaves that to an id that
// names the queue pair's number, or names the peer's number itself (ibv_modify_qp).
enum class ConnectedBy : std::uint8_t { ItsId, Program };

// Creates a queue pair of attributes.qp_type. send_operations are the IBV_QP_EX_WITH_ bits of the operations
// that are posted through ibv_qp_ex, 0 for none. One of type XRC_RECV belongs to `xrcd`, whose protection
// domain and completion queue it has. Writes the sizes of the queues into the attributes.
[[nodiscard]] base::Result<AnyQueuePair *> create_queue_pair(ibv_pd &domain, ibv_qp_init_attr &attributes,
                                                             std::uint64_t send_operations, ConnectedBy who,
                                                             XrcHandle *xrcd = nullptr);
// Does what ibv_create_qp_ex does. Returns null, and sets errno, when there is none.
[[nodiscard]] ibv_qp *create_queue_pair(ibv_context &context, ibv_qp_init_attr_ex &attributes,
                                        ConnectedBy who);

// Returns the send operations that the attributes of ibv_create_qp_ex ask for. Fails with EOPNOTSUPP when no
// queue pair has one of them. The members up to sq_sig_all are those of ibv_qp_init_attr.
[[nodiscard]] base::Result<std::uint64_t> send_operations_of(const ibv_qp_init_attr_ex &attributes);

}  // namespace soft
