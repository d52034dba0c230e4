/* SPDX-License-Identifier: BSD-3-Clause */
/* Small programs on librpma, Debian's or ours, share these functions. A program ends at the first call that
 * fails. */
#pragma once

#include <arpa/inet.h>
#include <errno.h>
#include <librpma.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../require.h"

/* The size of a port's text. */
#define PORT_SIZE 6

static inline void check(int result, const char *call) {
    if (result != 0) {
        fprintf(stderr, "%s: %s\n", call, rpma_err_2str(result));
        exit(EXIT_FAILURE);
    }
}
#define CHECK(call) check((call), #call)

/* Finds a free port of an address of this machine. */
static inline void find_port(const char *ip, char port[PORT_SIZE]) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t size = sizeof(address);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    REQUIRE(inet_pton(AF_INET, ip, &address.sin_addr) == 1);
    REQUIRE(bind(fd, (struct sockaddr *)&address, size) == 0);
    REQUIRE(getsockname(fd, (struct sockaddr *)&address, &size) == 0);
    close(fd);
    snprintf(port, PORT_SIZE, "%u", (unsigned)ntohs(address.sin_port));
}

static inline struct rpma_peer *new_peer(const char *ip) {
    struct ibv_context *context = NULL;
    struct rpma_peer *peer = NULL;
    CHECK(rpma_utils_get_ibv_context(ip, RPMA_UTIL_IBV_CONTEXT_LOCAL, &context));
    CHECK(rpma_peer_new(context, &peer));
    return peer;
}

static inline void await(struct rpma_conn *conn, enum rpma_conn_event expected) {
    enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
    CHECK(rpma_conn_next_event(conn, &event));
    if (event != expected) {
        fprintf(stderr, "event %s, expected %s\n", rpma_utils_conn_event_2str(event),
                rpma_utils_conn_event_2str(expected));
        exit(EXIT_FAILURE);
    }
}

/* Serves the next client of `ep` until it has gone. */
static inline void serve_client(struct rpma_ep *ep, const struct rpma_conn_private_data *data) {
    struct rpma_conn_req *request = NULL;
    struct rpma_conn *conn = NULL;
    CHECK(rpma_ep_next_conn_req(ep, NULL, &request));
    CHECK(rpma_conn_req_connect(&request, data, &conn));
    await(conn, RPMA_CONN_ESTABLISHED);
    await(conn, RPMA_CONN_CLOSED);
    CHECK(rpma_conn_disconnect(conn));
    CHECK(rpma_conn_delete(&conn));
}

static inline struct rpma_conn *connect_to(struct rpma_peer *peer, const char *ip, const char *port) {
    struct rpma_conn_req *request = NULL;
    struct rpma_conn *conn = NULL;
    CHECK(rpma_conn_req_new(peer, ip, port, NULL, &request));
    CHECK(rpma_conn_req_connect(&request, NULL, &conn));
    await(conn, RPMA_CONN_ESTABLISHED);
    return conn;
}

static inline void disconnect(struct rpma_conn *conn) {
    CHECK(rpma_conn_disconnect(conn));
    await(conn, RPMA_CONN_CLOSED);
    CHECK(rpma_conn_delete(&conn));
}

/* Waits for the next completion, which must be a success, and returns its opcode. It polls first, because one
 * event may stand for two completions, and sleeps in the kernel when there is none. */
static inline unsigned complete_on(struct rpma_cq *cq) {
    struct ibv_wc wc;
    int result = 0;
    while ((result = rpma_cq_get_wc(cq, 1, &wc, NULL)) == RPMA_E_NO_COMPLETION) {
        CHECK(rpma_cq_wait(cq));
    }
    CHECK(result);
    REQUIRE(wc.status == IBV_WC_SUCCESS);
    return wc.opcode;
}

static inline unsigned complete(struct rpma_conn *conn) {
    struct rpma_cq *cq = NULL;
    CHECK(rpma_conn_get_cq(conn, &cq));
    return complete_on(cq);
}
