/* SPDX-License-Identifier: BSD-3-Clause */
/* Stands for a libibverbs and a librdmacm of a later version: names that they got after version 44. */
#include "newer_rdma_core.h"

#define THEIRS(name)                                         \
    __attribute__((visibility("default"))) void *name(void); \
    void *name(void) {                                       \
        return (void *)REACHED;                              \
    }
THEIRS(ibv_query_gid_type)
THEIRS(ibv_query_port_speed)
THEIRS(ibv_alloc_dmah)
THEIRS(ibv_dealloc_dmah)
THEIRS(ibv_reg_mr_ex)
THEIRS(ibv_dm_export_dmabuf_fd)
THEIRS(ibv_alloc_buf)
THEIRS(ibv_reg_buf_mr)
THEIRS(_ibv_query_comp_cntr_caps)
THEIRS(ibv_create_comp_cntr)
THEIRS(ibv_destroy_comp_cntr)
THEIRS(ibv_inc_comp_cntr)
THEIRS(ibv_inc_err_comp_cntr)
THEIRS(ibv_qp_attach_comp_cntr)
THEIRS(ibv_read_comp_cntr)
THEIRS(ibv_read_err_comp_cntr)
THEIRS(ibv_set_comp_cntr)
THEIRS(ibv_set_err_comp_cntr)
THEIRS(rdma_query_addrinfo)
THEIRS(rdma_resolve_addrinfo)
THEIRS(rdma_write_cm_event)
