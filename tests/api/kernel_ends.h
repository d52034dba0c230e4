/* SPDX-License-Identifier: BSD-3-Clause */
/* kernel_ends: has fixtures on a device of the kernel, and the objects that tests make. */
#ifndef KERNEL_ENDS_H
#define KERNEL_ENDS_H 1

#include "kernel_device.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* A test keeps its objects here. end_kernel deletes those that are left, also after a failed assertion. */
extern struct rpma_peer *peer;
extern struct rpma_ep *ep;
extern struct rpma_conn_cfg *cfg;
extern struct rpma_srq *srq;
extern struct rpma_conn_req *request;
extern struct rpma_conn *conn;

/* rdma_get_cm_event gives this event next. It comes from gives(), or from
 * request_arrives(), which makes it a request of a peer. */
extern struct rdma_cm_event event;
void gives(enum rdma_cm_event_type type);
void request_arrives(void);

/* These are cmocka set-ups on a device without abilities. make_kernel_peer makes a peer and a configuration,
 * and make_kernel_endpoint an endpoint too. */
int make_kernel_peer(void **state);
int make_kernel_endpoint(void **state);
int end_kernel(void **state);

/* Makes the peer again, after the device has got other abilities. */
void renew_peer(void);

/* Makes a request of this side and asserts that it succeeds. The configuration may be NULL. */
struct rpma_conn_req *kernel_request(const struct rpma_conn_cfg *configuration);

/* Returns an established connection that this side asked for. */
struct rpma_conn *kernel_connection(const struct rpma_conn_cfg *configuration);

/* Asserts that each object made since forget_calls() has been destroyed. */
void assert_nothing_is_left(void);

#endif
