// SPDX-License-Identifier: BSD-3-Clause
// verbs_preload/ibverbs: the functions of libibverbs. A function that is neither here nor in newer.cpp takes
// no object of ours, and stays the real library's; tests/compat/preload_symbols.sh has the list.
#include <algorithm>
#include <cstring>

#include "softrdma.h"
#include "verbs_preload/forward.hpp"

// verbs.h has macros of these names.
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

// ---- devices ----
FORWARD(1, ibv_get_device_list)
FORWARD(1, ibv_free_device_list)
FORWARD(1, ibv_get_device_name)
FORWARD(1, ibv_get_device_guid)
FORWARD(1, ibv_open_device)
FORWARD(1, ibv_close_device)
REFUSE(1, ibv_import_device, nullptr)
FORWARD(2, ibv_query_device)
FORWARD(4, ibv_query_gid)
FORWARD(4, ibv_query_pkey)
FORWARD(3, ibv_get_pkey_index)

// ---- memory ----
FORWARD(1, ibv_alloc_pd)
FORWARD(1, ibv_dealloc_pd)
FORWARD(4, ibv_reg_mr)
FORWARD(5, ibv_reg_mr_iova2)
FORWARD(1, ibv_dereg_mr)
FORWARD(6, ibv_rereg_mr)
REFUSE(6, ibv_reg_dmabuf_mr, nullptr)
REFUSE(2, ibv_import_pd, nullptr)
REFUSE(1, ibv_unimport_pd, )
REFUSE(2, ibv_import_mr, nullptr)
REFUSE(1, ibv_unimport_mr, )
REFUSE(2, ibv_import_dm, nullptr)
REFUSE(1, ibv_unimport_dm, )

// ---- completion ----
FORWARD(1, ibv_create_comp_channel)
FORWARD(1, ibv_destroy_comp_channel)
FORWARD(5, ibv_create_cq)
FORWARD(1, ibv_destroy_cq)
FORWARD(2, ibv_resize_cq)
FORWARD(3, ibv_get_cq_event)
FORWARD(2, ibv_ack_cq_events)

// ---- queue pairs ----
FORWARD(2, ibv_create_qp)
FORWARD(1, ibv_destroy_qp)
FORWARD(4, ibv_query_qp)
FORWARD(3, ibv_modify_qp)
FORWARD(1, ibv_qp_to_qp_ex)
REFUSE(3, ibv_query_qp_data_in_order, 0)
REFUSE(2, ibv_query_ece, EOPNOTSUPP)
REFUSE(2, ibv_set_ece, EOPNOTSUPP)

// ---- datagrams ----
FORWARD(1, ibv_destroy_ah)
FORWARD(4, ibv_create_ah_from_wc)
FORWARD(5, ibv_init_ah_from_wc)
REFUSE(4, ibv_resolve_eth_l2_from_gid, EOPNOTSUPP)
FORWARD(3, ibv_attach_mcast)
FORWARD(3, ibv_detach_mcast)

// ---- shared receive queues ----
FORWARD(2, ibv_create_srq)
FORWARD(1, ibv_destroy_srq)
FORWARD(2, ibv_query_srq)
FORWARD(3, ibv_modify_srq)

// ---- asynchronous events ----
FORWARD(2, ibv_get_async_event)
FORWARD(1, ibv_ack_async_event)

extern "C" {

// The kernel has no index for this device.
[[gnu::visibility("default")]] int ibv_get_device_index(ibv_device *) {
    return -1;
}

// The function of this name fills only the members before port_cap_flags2; verbs.h's inline calls the
// context's query_port for all of them.
[[gnu::visibility("default")]] int ibv_query_port(ibv_context *context, uint8_t port_num,
                                                  _compat_ibv_port_attr *port_attr) {
    ibv_port_attr whole;
    const int result = softrdma_ibv_query_port(context, port_num, &whole);
    if (result == 0) {
        std::memcpy(port_attr, &whole, offsetof(ibv_port_attr, port_cap_flags2));
    }
    return result;
}

[[gnu::visibility("default")]] ibv_mr *ibv_reg_mr_iova(ibv_pd *pd, void *addr, size_t length, uint64_t iova,
                                                       int access) {
    return softrdma_ibv_reg_mr_iova2(pd, addr, length, iova, static_cast<unsigned>(access));
}

// verbs.h's inlines ibv_query_gid_ex and ibv_query_gid_table call these, with the size of the struct that
// they were compiled with.
[[gnu::visibility("default")]] int _ibv_query_gid_ex(ibv_context *context, uint32_t port_num,
                                                     uint32_t gid_index, ibv_gid_entry *entry, uint32_t flags,
                                                     size_t entry_size) {
    ibv_gid_entry whole;
    const int result = softrdma_ibv_query_gid_ex(context, port_num, gid_index, &whole, flags);
    if (result == 0) {
        std::memcpy(entry, &whole, std::min(entry_size, sizeof(whole)));
    }
    return result;
}

[[gnu::visibility("default")]] ssize_t _ibv_query_gid_table(ibv_context *context, ibv_gid_entry *entries,
                                                            size_t max_entries, uint32_t flags,
                                                            size_t entry_size) {
    if (entry_size != sizeof(ibv_gid_entry)) {
        return -EINVAL;
    }
    return softrdma_ibv_query_gid_table(context, entries, max_entries, flags);
}

// It is one of libibverbs' private names, for ibv_devinfo. Type 0 is that of InfiniBand and RoCE version 1,
// and 1 that of RoCE version 2.
[[gnu::visibility("default")]] int ibv_query_gid_type(ibv_context *context, uint8_t port_num, unsigned index,
                                                      int *type) {
    ibv_gid_entry entry;
    if (const int error = softrdma_ibv_query_gid_ex(context, port_num, index, &entry, 0); error != 0) {
        errno = error;
        return -1;
    }
    *type = entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? 1 : 0;
    return 0;
}

}  // extern "C"
