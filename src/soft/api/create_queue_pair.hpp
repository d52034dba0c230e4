// SPDX-License-Identifier: BSD-3-Clause
// soft/api/create_queue_pair: a queue pair of the type that is asked for.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "base/result.hpp"
#include "soft/queues/any_queue_pair.hpp"

namespace soft {

// One of attributes.qp_type; send_operations: IBV_QP_EX_WITH_ bits of what is posted through ibv_qp_ex, 0
// when nothing is. The attributes' sizes become those that are given.
[[nodiscard]] base::Result<AnyQueuePair *> create_queue_pair(ibv_pd &domain, ibv_qp_init_attr &attributes,
                                                             std::uint64_t send_operations = 0);

// The send operations that the attributes of ibv_create_qp_ex ask for; EOPNOTSUPP when they ask for what no
// queue pair has. Their members up to sq_sig_all are those of ibv_qp_init_attr.
[[nodiscard]] base::Result<std::uint64_t> send_operations_of(const ibv_qp_init_attr_ex &attributes);

}  // namespace soft
