/* SPDX-License-Identifier: BSD-3-Clause */
/* begin: tests requests that do not block, of this side and of peers on a
 * TCP connection that the program accepted. */
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ends.h"

/* This comes last, because it asserts. */
#include "../sockets.h"

static void arguments_are_checked(void **state) {
    (void)state;
    struct rpma_peer *const peer = anything();
    struct rpma_conn_req *request = anything();
    struct sockaddr_storage address;
    int fd = -7;
    assert_code(rpma_conn_req_begin(NULL, ADDRESS, "1", NULL, &request), RPMA_E_INVAL);
    assert_code(rpma_conn_req_begin(peer, NULL, "1", NULL, &request), RPMA_E_INVAL);
    assert_code(rpma_conn_req_begin(peer, ADDRESS, NULL, NULL, &request), RPMA_E_INVAL);
    assert_code(rpma_conn_req_begin(peer, ADDRESS, "1", NULL, NULL), RPMA_E_INVAL);
    assert_code(rpma_conn_req_adopt(NULL, 0, NULL, &request), RPMA_E_INVAL);
    assert_code(rpma_conn_req_adopt(peer, -1, NULL, &request), RPMA_E_INVAL);
    assert_code(rpma_conn_req_adopt(peer, 0, NULL, NULL), RPMA_E_INVAL);
    assert_code(rpma_conn_req_adopt_fd(NULL, 0, 0, NULL, &request), RPMA_E_INVAL);
    assert_code(rpma_conn_req_adopt_fd(peer, 0, 1 << 3, NULL, &request), RPMA_E_INVAL);
    assert_code(rpma_conn_req_adopt_fd(peer, 0, RPMA_ADOPT_KEEP_FD | RPMA_ADOPT_SHARE_FD, NULL, &request),
                RPMA_E_INVAL);
    assert_code(rpma_conn_req_adopt_fd(peer, 0, 0, NULL, NULL), RPMA_E_INVAL);
    assert_code(rpma_conn_req_get_fd(NULL, &fd), RPMA_E_INVAL);
    assert_code(rpma_conn_req_get_fd(request, NULL), RPMA_E_INVAL);
    assert_code(rpma_conn_req_proceed(NULL), RPMA_E_INVAL);
    assert_code(rpma_conn_req_get_error(NULL, &fd), RPMA_E_INVAL);
    assert_code(rpma_conn_req_get_error(request, NULL), RPMA_E_INVAL);
    assert_code(rpma_conn_req_get_local_addr(NULL, &address), RPMA_E_INVAL);
    assert_code(rpma_conn_req_get_local_addr(request, NULL), RPMA_E_INVAL);
    assert_code(rpma_conn_req_get_peer_addr(NULL, &address), RPMA_E_INVAL);
    assert_code(rpma_conn_req_get_peer_addr(request, NULL), RPMA_E_INVAL);
    assert_ptr_equal(request, anything());
    assert_int_equal(fd, -7);
}

/* Proceeds whenever the descriptor is readable, and returns the result of the last step. */
static int proceed(struct rpma_conn_req *request) {
    int fd = -1;
    assert_ok(rpma_conn_req_get_fd(request, &fd));
    int result = rpma_conn_req_proceed(request);
    while (result == RPMA_E_AGAIN) {
        await_readable(fd);
        result = rpma_conn_req_proceed(request);
    }
    return result;
}

static void a_request_that_does_not_block(void **state) {
    struct ends *ends = *state;
    int fd = -7;
    assert_ok(rpma_conn_req_begin(ends->peer, ADDRESS, ends->port, NULL, &ends->request));
    assert_ok(proceed(ends->request));
    assert_ok(rpma_conn_req_proceed(ends->request)); /* there is nothing left to do */
    assert_ok(rpma_conn_req_connect(&ends->request, NULL, &ends->client));
    assert_ok(rpma_ep_next_conn_req(ends->ep, NULL, &ends->request));
    assert_code(rpma_conn_req_get_fd(ends->request, &fd), RPMA_E_NOSUPP);
    assert_int_equal(fd, -7);
    assert_ok(rpma_conn_req_connect(&ends->request, NULL, &ends->server));
    await_established(ends); /* and the connection's events block again */
}

static void one_that_is_not_ready(void **state) {
    struct ends *ends = *state;
    struct rpma_conn *conn = anything();
    struct rpma_mr_local *const mr = reg(ends, ends->near, BUFFER_SIZE, RPMA_MR_USAGE_RECV);
    capture_log(RPMA_LOG_LEVEL_ERROR);
    assert_ok(rpma_conn_req_begin(ends->peer, ADDRESS, ends->port, NULL, &ends->request));
    assert_code(rpma_conn_req_recv(ends->request, mr, 0, 8, NULL), RPMA_E_INVAL);
    assert_code(rpma_conn_req_connect(&ends->request, NULL, &conn), RPMA_E_INVAL);
    assert_null(ends->request);
    assert_ptr_equal(conn, anything());
    assert_true(logged("rpma_conn_req_proceed", NULL));
    assert_ok(rpma_conn_req_begin(ends->peer, ADDRESS, ends->port, NULL, &ends->request));
    assert_ok(rpma_conn_req_delete(&ends->request));
}

/* librsocket works in this way. It listens in TCP itself, and hands over the connections that speak iWARP. */
static void a_tcp_connection_becomes_a_request(void **state) {
    struct ends *ends = *state;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    char hello[] = "hello";
    char welcome[] = "welcome";
    const struct rpma_conn_private_data asked = {hello, sizeof(hello)};
    const struct rpma_conn_private_data answered = {welcome, sizeof(welcome)};
    struct rpma_conn_private_data got = {NULL, 0};
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &size), 0);
    snprintf(ends->port, sizeof(ends->port), "%u", (unsigned)ntohs(address.sin_port));
    ask(ends, NULL, &asked);
    assert_ok(rpma_conn_req_adopt(ends->peer, accept(listener, NULL, NULL), NULL, &ends->request));
    close(listener);
    assert_ok(proceed(ends->request));
    assert_ok(rpma_conn_req_get_private_data(ends->request, &got));
    assert_int_equal(got.len, sizeof(hello));
    assert_memory_equal(got.ptr, hello, sizeof(hello));
    assert_ok(rpma_conn_req_connect(&ends->request, &answered, &ends->server));
    await_established(ends);
    assert_ok(rpma_conn_get_private_data(ends->client, &got));
    assert_memory_equal(got.ptr, welcome, sizeof(welcome));
    assert_ok(rpma_send(ends->client, NULL, 0, 0, RPMA_F_COMPLETION_ALWAYS, NULL));
    assert_int_equal(await_completion(ends->client).status, IBV_WC_SUCCESS);
}

/* Hands over both ends of one TCP connection. Each stays its owner's under the same number. */
static void adopt_both_ends(struct ends *ends, int way, int fds[2]) {
    char hello[] = "hello";
    const struct rpma_conn_private_data asked = {hello, sizeof(hello)};
    struct rpma_conn_private_data got = {NULL, 0};
    struct rpma_conn_req *asking = NULL;
    struct sockaddr_in seen;
    socklen_t size = sizeof(seen);
    connect_sockets(fds);
    assert_ok(rpma_conn_req_adopt_fd(ends->peer, fds[1], way, NULL, &ends->request));
    assert_ok(rpma_conn_req_adopt_fd(ends->peer, fds[0], way | RPMA_ADOPT_INITIATOR, NULL, &asking));
    assert_ok(rpma_conn_req_proceed(asking)); /* there is nothing to wait for */
    assert_ok(rpma_conn_req_connect(&asking, &asked, &ends->client));
    assert_ok(proceed(ends->request));
    assert_ok(rpma_conn_req_get_private_data(ends->request, &got));
    assert_int_equal(got.len, sizeof(hello));
    assert_ok(rpma_conn_req_connect(&ends->request, NULL, &ends->server));
    await_established(ends);
    assert_ok(rpma_send(ends->client, NULL, 0, 0, RPMA_F_COMPLETION_ALWAYS, NULL));
    assert_int_equal(await_completion(ends->client).status, IBV_WC_SUCCESS);
    assert_int_equal(getpeername(fds[0], (struct sockaddr *)&seen, &size), 0);
}

static void both_ends_of_a_tcp_connection(void **state) {
    int fds[2];
    adopt_both_ends(*state, RPMA_ADOPT_KEEP_FD, fds);
    assert_int_equal(close(fds[0]), 0);
    assert_int_equal(close(fds[1]), 0);
}

/* The device makes no duplicates. The descriptors outlive the connections, and only the test closes them. */
static void both_ends_share_their_descriptors(void **state) {
    struct ends *ends = *state;
    int fds[2];
    adopt_both_ends(ends, RPMA_ADOPT_SHARE_FD, fds);
    assert_ok(rpma_conn_disconnect(ends->client));
    assert_ok(rpma_conn_delete(&ends->client));
    assert_ok(rpma_conn_delete(&ends->server));
    assert_int_equal(close(fds[0]), 0);
    assert_int_equal(close(fds[1]), 0);
}

static void an_initiator_gives_its_descriptor_away(void **state) {
    struct ends *ends = *state;
    int fds[2];
    connect_sockets(fds);
    assert_ok(rpma_conn_req_adopt_fd(ends->peer, fds[0], RPMA_ADOPT_INITIATOR, NULL, &ends->request));
    assert_ok(rpma_conn_req_delete(&ends->request)); /* the request asks nothing */
    char byte;
    assert_int_equal(read(fds[1], &byte, 1), 0);
    assert_int_equal(close(fds[1]), 0);
}

static void failed_by(const struct rpma_conn_req *request, int expected) {
    int error = -7;
    assert_ok(rpma_conn_req_get_error(request, &error));
    assert_string_equal(strerror(error), strerror(expected));
}

static void one_that_speaks_something_else(void **state) {
    struct ends *ends = *state;
    int fds[2];
    connect_sockets(fds);
    capture_log(RPMA_LOG_LEVEL_WARNING);
    assert_ok(rpma_conn_req_adopt(ends->peer, fds[1], NULL, &ends->request));
    failed_by(ends->request, 0);
    assert_int_equal(write(fds[0], "GET / HTTP/1.1\r\nHost: x\r\n\r\n", 27), 27);
    assert_code(proceed(ends->request), RPMA_E_PROVIDER);
    failed_by(ends->request, EPROTO);
    assert_true(logged("no connection", NULL));
    assert_ok(rpma_conn_req_delete(&ends->request));
    close(fds[0]);
}

static void one_that_goes_away(void **state) {
    struct ends *ends = *state;
    int fds[2];
    connect_sockets(fds);
    assert_ok(rpma_conn_req_adopt(ends->peer, fds[1], NULL, &ends->request));
    close(fds[0]);
    assert_code(proceed(ends->request), RPMA_E_PROVIDER);
    failed_by(ends->request, ECONNRESET);
    /* A request for which no thread waits does not stay in the device either. */
    assert_ok(rpma_conn_req_delete(&ends->request));
    connect_sockets(fds);
    assert_ok(rpma_conn_req_adopt(ends->peer, fds[1], NULL, &ends->request));
    assert_ok(rpma_conn_req_delete(&ends->request));
    char byte;
    assert_int_equal(read(fds[0], &byte, 1), 0);
    close(fds[0]);
}

static void what_cannot_be_adopted_stays_the_callers(void **state) {
    struct ends *ends = *state;
    int fds[2];
    struct rpma_conn_req *request = anything();
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    capture_log(RPMA_LOG_LEVEL_ERROR);
    assert_code(rpma_conn_req_adopt(ends->peer, fds[0], NULL, &request), RPMA_E_INVAL);
    assert_true(logged("connected TCP socket", NULL));
    assert_int_equal(close(fds[0]), 0);
    assert_int_equal(close(fds[1]), 0);
    const int lonely = socket(AF_INET, SOCK_STREAM, 0);
    assert_code(rpma_conn_req_adopt(ends->peer, lonely, NULL, &request), RPMA_E_INVAL);
    assert_int_equal(close(lonely), 0);
    assert_ptr_equal(request, anything());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arguments_are_checked),
        cmocka_unit_test_setup_teardown(a_request_that_does_not_block, make_endpoint, end_all),
        cmocka_unit_test_setup_teardown(one_that_is_not_ready, make_endpoint, end_all),
        cmocka_unit_test_setup_teardown(a_tcp_connection_becomes_a_request, make_peer, end_all),
        cmocka_unit_test_setup_teardown(both_ends_of_a_tcp_connection, make_peer, end_all),
        cmocka_unit_test_setup_teardown(both_ends_share_their_descriptors, make_peer, end_all),
        cmocka_unit_test_setup_teardown(an_initiator_gives_its_descriptor_away, make_peer, end_all),
        cmocka_unit_test_setup_teardown(one_that_speaks_something_else, make_peer, end_all),
        cmocka_unit_test_setup_teardown(one_that_goes_away, make_peer, end_all),
        cmocka_unit_test_setup_teardown(what_cannot_be_adopted_stays_the_callers, make_peer, end_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
