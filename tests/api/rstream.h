/* SPDX-License-Identifier: BSD-3-Clause */
/* A program of libfabric that has both ends of its streams: one event queue for all of them, so that each
 * wait for an event advances every connection. */
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <string.h>

#include "test.h"

#define RSTREAM_API FI_VERSION(1, 17)

struct ends {
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_eq *eq;
    struct fid_pep *pep;
    struct sockaddr_storage address; /* at which it listens */
};

struct pair {
    struct fid_ep *client, *server;
};

/* The last error event, and the reason that came with it. */
extern struct fi_eq_err_entry last_error;
extern char last_reason[256];

struct fi_info *wanted_info(void);
void open_ends(struct ends *ends, const char *host);
void close_ends(struct ends *ends);
struct fid_ep *make_endpoint(struct ends *ends, struct fi_info *info);
/* Waits for the next event, and returns its type; the type of a failure is -1. */
int next_event(struct ends *ends, struct fi_eq_cm_entry *entry);
struct fi_info *wait_for_request(struct ends *ends);
void connect_pair(struct ends *ends, struct pair *pair);
void close_pair(struct pair *pair);
int descriptor_of(fid_t fid);
bool is_readable(int fd);
/* They wait by the descriptor of the endpoint, which the other end advances too. */
void send_all(struct fid_ep *from, const void *bytes, size_t size);
void receive_all(struct fid_ep *to, void *bytes, size_t size);
/* Returns what a receive gives as soon as that is not -FI_EAGAIN. */
ssize_t receive_some(struct fid_ep *to, void *bytes, size_t size);
