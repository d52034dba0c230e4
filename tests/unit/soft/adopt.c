/* SPDX-License-Identifier: BSD-3-Clause */
/* unit/soft: tests softrdma_adopt, by which a TCP connection that the program accepted becomes an id. */
#include "endpoint.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "../../sockets.h"
#include "channel.h"

/* Returns a copy of the next event, which is acknowledged already. Only its plain members are valid. */
static struct rdma_cm_event next_event(void) {
    struct rdma_cm_event *event = NULL;
    assert_int_equal(softrdma_rdma_get_cm_event(channel, &event), 0);
    const struct rdma_cm_event seen = *event;
    assert_int_equal(softrdma_rdma_ack_cm_event(event), 0);
    return seen;
}

static struct rdma_cm_event expect(enum rdma_cm_event_type type, const struct rdma_cm_id *id) {
    const struct rdma_cm_event event = next_event();
    assert_string_equal(softrdma_rdma_event_str(event.event), softrdma_rdma_event_str(type));
    assert_ptr_equal(event.id, id);
    return event;
}

static bool is_open(int fd) {
    return fcntl(fd, F_GETFD) != -1;
}

static void create_queue_pair(struct rdma_cm_id *id) {
    struct ibv_qp_init_attr attributes = {
        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC};
    assert_int_equal(softrdma_rdma_create_qp(id, NULL, &attributes), 0);
}

static void it_is_a_request_and_then_a_connection(void **state) {
    (void)state;
    uint16_t port = 0;
    const int listener = listening_socket(&port);
    struct rdma_addrinfo *there = loopback(0, port);
    struct rdma_cm_id *client = NULL;
    assert_int_equal(softrdma_rdma_create_id(channel, &client, NULL, RDMA_PS_TCP), 0);
    assert_int_equal(softrdma_rdma_resolve_addr(client, NULL, there->ai_dst_addr, 1), 0);
    softrdma_rdma_freeaddrinfo(there);
    expect(RDMA_CM_EVENT_ADDR_RESOLVED, client);
    assert_int_equal(softrdma_rdma_resolve_route(client, 1), 0);
    expect(RDMA_CM_EVENT_ROUTE_RESOLVED, client);
    create_queue_pair(client);
    struct rdma_conn_param parameters = {.responder_resources = 3, .initiator_depth = 2};
    assert_int_equal(softrdma_rdma_connect(client, &parameters), 0);

    const int fd = accept(listener, NULL, NULL);
    struct rdma_cm_id *server = NULL;
    assert_int_equal(softrdma_adopt(channel, fd, &port, &server), 0);
    assert_false(is_open(fd));
    assert_ptr_equal(server->context, &port);
    assert_ptr_equal(server->channel, channel);
    const struct rdma_cm_event request = expect(RDMA_CM_EVENT_CONNECT_REQUEST, server);
    assert_null(request.listen_id);
    assert_int_equal(request.param.conn.responder_resources, 2);
    assert_int_equal(request.param.conn.initiator_depth, 3);
    assert_int_equal(softrdma_rdma_get_src_port(server), htons(port));
    create_queue_pair(server);
    assert_int_equal(softrdma_rdma_accept(server, &parameters), 0);
    const struct rdma_cm_event first = next_event();
    const struct rdma_cm_event second = next_event();
    assert_int_equal(first.event, RDMA_CM_EVENT_ESTABLISHED);
    assert_int_equal(second.event, RDMA_CM_EVENT_ESTABLISHED);
    assert_ptr_not_equal(first.id, second.id);

    softrdma_rdma_destroy_qp(client);
    assert_int_equal(softrdma_rdma_destroy_id(client), 0);
    expect(RDMA_CM_EVENT_DISCONNECTED, server);
    softrdma_rdma_destroy_qp(server);
    assert_int_equal(softrdma_rdma_destroy_id(server), 0);
    close(listener);
}

static void refused(int fd) {
    struct rdma_cm_id *id = NULL;
    fails(softrdma_adopt(channel, fd, NULL, &id), EINVAL);
    assert_null(id);
    assert_true(is_open(fd));
    assert_int_equal(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
    close(fd);
}

static void what_is_no_tcp_connection_stays_the_programs(void **state) {
    (void)state;
    struct rdma_cm_id *id = NULL;
    uint16_t port = 0;
    int fds[2];
    fails(softrdma_adopt(channel, -1, NULL, &id), EINVAL);
    refused(open("/dev/null", O_RDWR | O_CLOEXEC));
    refused(listening_socket(&port));
    refused(socket(AF_INET, SOCK_STREAM, 0));
    const int datagrams = socket(AF_INET, SOCK_DGRAM, 0);
    const struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(7204)};
    assert_int_equal(connect(datagrams, (const struct sockaddr *)&address, sizeof(address)), 0);
    refused(datagrams);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    refused(fds[0]);
    refused(fds[1]);

    connect_sockets(fds);
    fails(softrdma_adopt(NULL, fds[1], NULL, &id), EINVAL);
    fails(softrdma_adopt(channel, fds[1], NULL, NULL), EINVAL);
    assert_null(id);
    assert_true(is_open(fds[1]));
    close(fds[0]);
    close(fds[1]);
}

static void a_peer_that_speaks_something_else(void **state) {
    (void)state;
    static const char text[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    struct rdma_cm_id *id = NULL;
    int fds[2];
    connect_sockets(fds);
    assert_int_equal(softrdma_adopt(channel, fds[1], NULL, &id), 0);
    assert_int_equal(write(fds[0], text, strlen(text)), strlen(text));
    assert_int_equal(expect(RDMA_CM_EVENT_CONNECT_ERROR, id).status, -EPROTO);
    assert_int_equal(softrdma_rdma_destroy_id(id), 0);
    close(fds[0]);
}

static void a_peer_that_goes_away(void **state) {
    (void)state;
    struct rdma_cm_id *id = NULL;
    int fds[2];
    connect_sockets(fds);
    assert_int_equal(softrdma_adopt(channel, fds[1], NULL, &id), 0);
    close(fds[0]);
    assert_int_equal(expect(RDMA_CM_EVENT_CONNECT_ERROR, id).status, -ECONNRESET);
    assert_int_equal(softrdma_rdma_destroy_id(id), 0);
}

/* The id is destroyed before there is an event. The peer sees the end of its connection. */
static void an_id_that_goes_at_once(void **state) {
    (void)state;
    struct rdma_cm_id *id = NULL;
    char byte = 0;
    int fds[2];
    connect_sockets(fds);
    assert_int_equal(softrdma_adopt(channel, fds[1], NULL, &id), 0);
    assert_int_equal(softrdma_rdma_destroy_id(id), 0);
    assert_int_equal(read(fds[0], &byte, 1), 0);
    close(fds[0]);
}

#define in_a_channel(test) cmocka_unit_test_setup_teardown(test, begin_test, end_test)

int main(void) {
    const struct CMUnitTest tests[] = {
        in_a_channel(it_is_a_request_and_then_a_connection),
        in_a_channel(what_is_no_tcp_connection_stays_the_programs),
        in_a_channel(a_peer_that_speaks_something_else),
        in_a_channel(a_peer_that_goes_away),
        in_a_channel(an_id_that_goes_at_once),
    };
    return cmocka_run_group_tests_name("adopt", tests, NULL, NULL);
}
