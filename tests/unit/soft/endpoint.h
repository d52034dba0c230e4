/* SPDX-License-Identifier: BSD-3-Clause */
/* unit/soft: gives the calls of the soft device librdmacm's names, so that the helpers of rdma_verbs.h run
 * unchanged. It also has the addresses of these tests, and asserts how calls fail. */
#ifndef ENDPOINT_H
#define ENDPOINT_H 1

#include <infiniband/verbs.h>

#include "softrdma.h"

#undef ibv_reg_mr
#define ibv_reg_mr softrdma_ibv_reg_mr
#define ibv_dereg_mr softrdma_ibv_dereg_mr
#define ibv_get_cq_event softrdma_ibv_get_cq_event
#define ibv_ack_cq_events softrdma_ibv_ack_cq_events
#include <rdma/rdma_verbs.h>

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* rdma_verbs.h comes last, and only here, because it needs the other headers. */
#include <cmocka.h>

/* Returns the loopback address for a side that listens (RAI_PASSIVE) or
 * connects. With port 0 the address has any port. */
static inline struct rdma_addrinfo *loopback(int flags, uint16_t port) {
    const struct rdma_addrinfo hints = {.ai_flags = flags | RAI_NUMERICHOST, .ai_port_space = RDMA_PS_TCP};
    char service[8];
    (void)snprintf(service, sizeof(service), "%u", port);
    struct rdma_addrinfo *found = NULL;
    assert_int_equal(softrdma_rdma_getaddrinfo("127.0.0.1", service, &hints, &found), 0);
    return found;
}

static inline void fails(int result, int error) {
    assert_int_equal(result, -1);
    assert_int_equal(errno, error);
}

#endif
