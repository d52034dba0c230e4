/* SPDX-License-Identifier: BSD-3-Clause */
#include "ends.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct ends the_ends;

const char *test_address(void) {
    const char *const chosen = getenv("RPMA_TEST_ADDRESS");
    return chosen != NULL ? chosen : "127.0.0.1";
}

void choose_port(char port[6]) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t size = sizeof(address);
    assert_int_equal(inet_pton(AF_INET, ADDRESS, &address.sin_addr), 1);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, size), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    close(fd);
    snprintf(port, 6, "%u", (unsigned)ntohs(address.sin_port));
}

static enum device kind_of(const struct ibv_context *context) {
    if (context->device->transport_type == IBV_TRANSPORT_IB) {
        return KERNEL_INFINIBAND;
    }
    return strncmp(context->device->name, "soft_", 5) == 0 ? SOFT_DEVICE : KERNEL_IWARP;
}

int make_peer(void **state) {
    struct ibv_context *context = NULL;
    memset(&the_ends, 0, sizeof(the_ends));
    *state = &the_ends;
    capture_log(RPMA_LOG_LEVEL_WARNING);
    the_ends.near = aligned_alloc(BUFFER_SIZE, BUFFER_SIZE);
    the_ends.far = aligned_alloc(BUFFER_SIZE, BUFFER_SIZE);
    assert_non_null(the_ends.near);
    assert_non_null(the_ends.far);
    memset(the_ends.near, 0, BUFFER_SIZE);
    memset(the_ends.far, 0, BUFFER_SIZE);
    assert_ok(rpma_utils_get_ibv_context(ADDRESS, RPMA_UTIL_IBV_CONTEXT_LOCAL, &context));
    the_ends.device = kind_of(context);
    assert_ok(rpma_peer_new(context, &the_ends.peer));
    assert_ok(rpma_conn_cfg_new(&the_ends.cfg));
    return 0;
}

int make_endpoint(void **state) {
    make_peer(state);
    choose_port(the_ends.port);
    assert_ok(rpma_ep_listen(the_ends.peer, ADDRESS, the_ends.port, &the_ends.ep));
    return 0;
}

int make_connection(void **state) {
    make_endpoint(state);
    ask(&the_ends, NULL, NULL);
    answer(&the_ends, NULL, NULL);
    await_established(&the_ends);
    return 0;
}

int end_all(void **state) {
    struct ends *ends = *state;
    int failures = 0;
    failures += rpma_conn_delete(&ends->client) != 0;
    failures += rpma_conn_delete(&ends->server) != 0;
    failures += rpma_conn_req_delete(&ends->request) != 0;
    failures += rpma_ep_shutdown(&ends->ep) != 0;
    for (int i = 0; i < ends->locals; ++i) {
        failures += rpma_mr_dereg(&ends->local[i]) != 0;
    }
    for (int i = 0; i < ends->remotes; ++i) {
        failures += rpma_mr_remote_delete(&ends->remote[i]) != 0;
    }
    failures += rpma_conn_cfg_delete(&ends->cfg) != 0;
    failures += rpma_peer_delete(&ends->peer) != 0;
    free(ends->near);
    free(ends->far);
    return failures;
}

void ask(struct ends *ends, const struct rpma_conn_cfg *cfg, const struct rpma_conn_private_data *pdata) {
    assert_ok(rpma_conn_req_new(ends->peer, ADDRESS, ends->port, cfg, &ends->request));
    assert_ok(rpma_conn_req_connect(&ends->request, pdata, &ends->client));
    assert_null(ends->request);
}

void answer(struct ends *ends, const struct rpma_conn_cfg *cfg, const struct rpma_conn_private_data *pdata) {
    assert_ok(rpma_ep_next_conn_req(ends->ep, cfg, &ends->request));
    assert_ok(rpma_conn_req_connect(&ends->request, pdata, &ends->server));
    assert_null(ends->request);
}

void await_established(struct ends *ends) {
    await_event(ends->client, RPMA_CONN_ESTABLISHED);
    await_event(ends->server, RPMA_CONN_ESTABLISHED);
}

void await_event(struct rpma_conn *conn, enum rpma_conn_event expected) {
    enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
    assert_ok(rpma_conn_next_event(conn, &event));
    assert_string_equal(rpma_utils_conn_event_2str(event), rpma_utils_conn_event_2str(expected));
}

struct ibv_wc await_completion(struct rpma_conn *conn) {
    struct rpma_cq *cq = NULL;
    struct ibv_wc wc = {0};
    assert_ok(rpma_conn_get_cq(conn, &cq));
    int result = rpma_cq_get_wc(cq, 1, &wc, NULL);
    while (result == RPMA_E_NO_COMPLETION) {
        assert_ok(rpma_cq_wait(cq));
        result = rpma_cq_get_wc(cq, 1, &wc, NULL);
    }
    assert_ok(result);
    return wc;
}

void make_non_blocking(int fd) {
    assert_int_equal(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK), 0);
}

void await_readable(int fd) {
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&entry, 1, -1), 1);
    assert_int_equal(entry.revents, POLLIN);
}

struct rpma_mr_local *reg(struct ends *ends, void *memory, size_t size, int usage) {
    assert_true(ends->locals < MAX_REGIONS);
    assert_ok(rpma_mr_reg(ends->peer, memory, size, usage, &ends->local[ends->locals]));
    return ends->local[ends->locals++];
}

struct rpma_mr_remote *remote_of(struct ends *ends, const struct rpma_mr_local *mr) {
    char descriptor[64];
    size_t size = 0;
    assert_true(ends->remotes < MAX_REGIONS);
    assert_ok(rpma_mr_get_descriptor_size(mr, &size));
    assert_true(size <= sizeof(descriptor));
    assert_ok(rpma_mr_get_descriptor(mr, descriptor));
    assert_ok(rpma_mr_remote_from_descriptor(descriptor, size, &ends->remote[ends->remotes]));
    return ends->remote[ends->remotes++];
}

void declare_direct_write(struct ends *ends, bool supported) {
    struct rpma_peer_cfg *pcfg = NULL;
    assert_ok(rpma_peer_cfg_new(&pcfg));
    assert_ok(rpma_peer_cfg_set_direct_write_to_pmem(pcfg, supported));
    assert_ok(rpma_conn_apply_remote_peer_cfg(ends->client, pcfg));
    assert_ok(rpma_peer_cfg_delete(&pcfg));
}
