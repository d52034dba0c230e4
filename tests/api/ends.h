/* SPDX-License-Identifier: BSD-3-Clause */
/* ends: has fixtures with both ends of a connection in one thread, over the device that serves
 * RPMA_TEST_ADDRESS, or 127.0.0.1 when that is not set. */
#ifndef ENDS_H
#define ENDS_H 1

#include "log_capture.h"
#include "test.h"

#define ADDRESS test_address()
#define BUFFER_SIZE 4096
#define MAX_REGIONS 8

/* One of these devices serves ADDRESS. doc/LAB.md tells how devices of the kernel differ. */
enum device { SOFT_DEVICE, KERNEL_IWARP, KERNEL_INFINIBAND };

/* A test keeps its objects here. end_all deletes those that are left, also after a failed assertion. */
struct ends {
    enum device device;
    struct rpma_peer *peer;
    struct rpma_ep *ep;
    char port[6];
    struct rpma_conn_cfg *cfg;
    struct rpma_conn_req *request;
    struct rpma_conn *client;
    struct rpma_conn *server;
    struct rpma_mr_local *local[MAX_REGIONS];
    struct rpma_mr_remote *remote[MAX_REGIONS];
    int locals;
    int remotes;
    /* Tests register these buffers. They are aligned to their size. */
    char *near;
    char *far;
};

/* These are cmocka set-ups. make_peer makes a peer, the next one an endpoint as well, and the last one a
 * connection with the default configuration as well. */
int make_peer(void **state);
int make_endpoint(void **state);
int make_connection(void **state);
int end_all(void **state);

const char *test_address(void);

/* Chooses a port on which no program listens now. */
void choose_port(char port[6]);

/* These are the steps of connecting. cfg and pdata may be NULL. */
void ask(struct ends *ends, const struct rpma_conn_cfg *cfg, const struct rpma_conn_private_data *pdata);
void answer(struct ends *ends, const struct rpma_conn_cfg *cfg, const struct rpma_conn_private_data *pdata);
void await_established(struct ends *ends);

/* Waits for the next event, which must be this one. */
void await_event(struct rpma_conn *conn, enum rpma_conn_event expected);

/* Waits for the next completion of a connection's main queue. */
struct ibv_wc await_completion(struct rpma_conn *conn);

void make_non_blocking(int fd);
/* Waits until fd is readable. */
void await_readable(int fd);

struct rpma_mr_local *reg(struct ends *ends, void *memory, size_t size, int usage);
/* Returns the region as a peer would see it. */
struct rpma_mr_remote *remote_of(struct ends *ends, const struct rpma_mr_local *mr);

/* Tells the client's end whether its peer writes to persistent memory directly. */
void declare_direct_write(struct ends *ends, bool supported);

#endif
