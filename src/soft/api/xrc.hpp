// SPDX-License-Identifier: BSD-3-Clause
// soft/api/xrc: XRC domains, their shared receive queues, and queue pairs that are opened again, which
// verbs.h's inlines reach by the table of calls.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace soft {

[[nodiscard]] ibv_xrcd *open_xrcd(ibv_context *context, ibv_xrcd_init_attr *attributes);
[[nodiscard]] int close_xrcd(ibv_xrcd *xrcd);
[[nodiscard]] ibv_qp *open_qp(ibv_context *context, ibv_qp_open_attr *attributes);
[[nodiscard]] int get_srq_num(ibv_srq *srq, std::uint32_t *number);
// Does what ibv_create_srq_ex does for IBV_SRQT_XRC.
[[nodiscard]] ibv_srq *create_xrc_srq(ibv_context &context, ibv_srq_init_attr_ex &attributes);
// Does what ibv_create_qp_ex does for IBV_QPT_XRC_RECV.
[[nodiscard]] ibv_qp *create_xrc_receiver(ibv_context &context, ibv_qp_init_attr_ex &attributes);

}  // namespace soft
