// SPDX-License-Identifier: BSD-3-Clause
// verbs_preload/rdmacm: the functions of librdmacm; rsocket() is in rsockets.cpp.
#include <rdma/rdma_verbs.h>

#include "softrdma.h"
#include "verbs_preload/forward.hpp"

// ---- events ----
FORWARD(0, rdma_create_event_channel)
FORWARD(1, rdma_destroy_event_channel)
FORWARD(2, rdma_get_cm_event)
FORWARD(1, rdma_ack_cm_event)
FORWARD(1, rdma_event_str)

// ---- ids ----
FORWARD(4, rdma_create_id)
FORWARD(1, rdma_destroy_id)
FORWARD(2, rdma_migrate_id)
FORWARD(5, rdma_set_option)
FORWARD(2, rdma_bind_addr)
FORWARD(4, rdma_resolve_addr)
FORWARD(2, rdma_resolve_route)
FORWARD(1, rdma_get_src_port)
FORWARD(1, rdma_get_dst_port)
FORWARD(4, rdma_getaddrinfo)
FORWARD(1, rdma_freeaddrinfo)
FORWARD(4, rdma_create_ep)
FORWARD(1, rdma_destroy_ep)
FORWARD(1, rdma_get_devices)
FORWARD(1, rdma_free_devices)

// ---- queue pairs ----
FORWARD(3, rdma_create_qp)
FORWARD(2, rdma_create_qp_ex)
FORWARD(1, rdma_destroy_qp)
FORWARD(3, rdma_create_srq)
FORWARD(2, rdma_create_srq_ex)
FORWARD(1, rdma_destroy_srq)
FORWARD(3, rdma_init_qp_attr)

// ---- connections ----
FORWARD(2, rdma_listen)
FORWARD(2, rdma_get_request)
FORWARD(2, rdma_connect)
FORWARD(2, rdma_accept)
FORWARD(3, rdma_reject)
FORWARD(1, rdma_disconnect)
FORWARD(1, rdma_establish)
FORWARD(2, rdma_notify)
FORWARD(3, rdma_reject_ece)
FORWARD(2, rdma_set_local_ece)
FORWARD(2, rdma_get_remote_ece)

// ---- multicast ----
FORWARD(3, rdma_join_multicast)
FORWARD(3, rdma_join_multicast_ex)
FORWARD(2, rdma_leave_multicast)
