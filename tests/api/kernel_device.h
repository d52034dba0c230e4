/* SPDX-License-Identifier: BSD-3-Clause */
/* kernel_device: remembers librpma's calls to a device of the kernel. The functions of
 * libibverbs and librdmacm are replaced, for the whole process, by functions that only
 * remember their calls, and fail on request. */
#ifndef KERNEL_DEVICE_H
#define KERNEL_DEVICE_H 1

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>

#include "log_capture.h"
#include "test.h"

#define MOST 64

struct kernel_device {
    struct verbs_context verbs;
    struct ibv_device device;

    /* The test sets these members. */
    struct ibv_device_attr_ex attributes;
    /* let_fail sets these. With 0 errno is not touched. */
    const char *failing;
    int number;
    /* The function fails this many times and then succeeds. With 0 it always fails. */
    int failures;
    /* rdma_get_cm_event and ibv_get_cq_event give these. They fail with EAGAIN when theirs is NULL. */
    struct rdma_cm_event *cm_event;
    struct ibv_cq *cq_event;
    /* ibv_poll_cq returns `polled`, and ibv_qp_to_qp_ex returns `qp_ex`. */
    int polled;
    struct ibv_qp_ex *qp_ex;

    /* The device remembers the calls: the names of the functions in order, each with
     * a blank behind it, and the arguments. */
    char calls[4096];
    int registrations;
    int access[MOST];
    struct ibv_sge advised;
    int cq_sizes[MOST];
    int cqs;
    struct ibv_srq_init_attr srq_attributes;
    int queue_pairs;
    struct ibv_qp_init_attr_ex qp_attributes[MOST];
    struct rdma_conn_param parameters;
    int resolve_timeouts_ms[2];
    int acknowledged_events;
    struct ibv_send_wr sent;
    struct ibv_sge sent_element;
    struct ibv_recv_wr received;
    struct ibv_sge received_element;
};
extern struct kernel_device kernel;

/* This is a cmocka set-up. It forgets everything, makes a device without any
 * abilities, and captures the log from INFO on. */
int make_kernel_device(void **state);

/* From now on this function fails with this errno, until the next call of
 * let_fail. With NULL no function fails. */
void let_fail(const char *function, int number);

/* Forgets the calls so far. */
void forget_calls(void);

/* Returns how many times the function was called. */
int called(const char *function);

struct rpma_peer *kernel_peer(void);

#endif
