/* SPDX-License-Identifier: BSD-3-Clause */
/* unit/soft: tests calls of the connection manager around a connection: options, addresses, devices, the
 * members of an id, and queue pairs that are not the id's own. */
#define _GNU_SOURCE /* pthread_tryjoin_np */
#include "endpoint.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "channel.h"

enum { most_descriptors = 1024, rounds_of_readers = 50, turns_more = 10 };

static void *context_of_ids = &channel;

static struct rdma_cm_id *new_id(void) {
    struct rdma_cm_id *id = NULL;
    assert_int_equal(softrdma_rdma_create_id(channel, &id, context_of_ids, RDMA_PS_TCP), 0);
    return id;
}

/* Asserts that the next event is of this type, and returns its id. */
static struct rdma_cm_id *expect(enum rdma_cm_event_type type) {
    struct rdma_cm_event *event = NULL;
    assert_int_equal(softrdma_rdma_get_cm_event(channel, &event), 0);
    struct rdma_cm_id *id = event->id;
    assert_string_equal(softrdma_rdma_event_str(event->event), softrdma_rdma_event_str(type));
    assert_int_equal(softrdma_rdma_ack_cm_event(event), 0);
    return id;
}

/* ---- options ---- */

static void options_have_their_sizes(void **state) {
    (void)state;
    static const int flags[] = {RDMA_OPTION_ID_REUSEADDR, RDMA_OPTION_ID_AFONLY};
    static const int numbers[] = {RDMA_OPTION_ID_TOS, RDMA_OPTION_ID_ACK_TIMEOUT};
    struct rdma_cm_id *id = new_id();
    int flag = 1;
    uint8_t number = 16;
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(softrdma_rdma_set_option(id, RDMA_OPTION_ID, flags[i], &flag, sizeof(flag)), 0);
        fails(softrdma_rdma_set_option(id, RDMA_OPTION_ID, flags[i], &number, sizeof(number)), EINVAL);
        fails(softrdma_rdma_set_option(id, RDMA_OPTION_ID, flags[i], NULL, sizeof(flag)), EINVAL);
        assert_int_equal(softrdma_rdma_set_option(id, RDMA_OPTION_ID, numbers[i], &number, sizeof(number)),
                         0);
        fails(softrdma_rdma_set_option(id, RDMA_OPTION_ID, numbers[i], &flag, sizeof(flag)), EINVAL);
    }
    fails(softrdma_rdma_set_option(id, RDMA_OPTION_ID, 4, &flag, sizeof(flag)), ENOSYS);
    fails(softrdma_rdma_set_option(id, 2, RDMA_OPTION_ID_TOS, &number, sizeof(number)), ENOSYS);
    fails(softrdma_rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &flag, sizeof(flag)), EOPNOTSUPP);
    assert_int_equal(softrdma_rdma_listen(id, 1), 0);
    fails(softrdma_rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &flag, sizeof(flag)),
          EINVAL);
    assert_int_equal(softrdma_rdma_destroy_id(id), 0);
}

/* Returns the type of service of the socket that is bound to the port of the id. */
static int service_type_of(struct rdma_cm_id *id) {
    for (int fd = 0; fd < most_descriptors; fd++) {
        struct sockaddr_in bound = {.sin_family = AF_UNSPEC};
        socklen_t length = sizeof(bound);
        if (getsockname(fd, (struct sockaddr *)&bound, &length) == 0 && bound.sin_family == AF_INET &&
            bound.sin_port == softrdma_rdma_get_src_port(id)) {
            int type = -1;
            length = sizeof(type);
            assert_int_equal(getsockopt(fd, IPPROTO_IP, IP_TOS, &type, &length), 0);
            return type;
        }
    }
    fail_msg("no socket is bound to the id's port");
    return -1;
}

static void the_service_type_is_the_sockets(void **state) {
    (void)state;
    struct rdma_addrinfo *here = loopback(RAI_PASSIVE, 0);
    uint8_t before = 0x20;
    uint8_t after = 0x40;
    struct rdma_cm_id *id = new_id();
    assert_int_equal(
        softrdma_rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &before, sizeof(before)), 0);
    assert_int_equal(softrdma_rdma_bind_addr(id, here->ai_src_addr), 0);
    assert_int_equal(service_type_of(id), before);
    assert_int_equal(softrdma_rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &after, sizeof(after)),
                     0);
    assert_int_equal(service_type_of(id), after);
    softrdma_rdma_freeaddrinfo(here);
    assert_int_equal(softrdma_rdma_destroy_id(id), 0);
}

/* ---- addresses ---- */

static struct rdma_addrinfo *found(const char *node, const char *service, const struct rdma_addrinfo *hints) {
    struct rdma_addrinfo *answer = NULL;
    assert_int_equal(softrdma_rdma_getaddrinfo(node, service, hints, &answer), 0);
    assert_non_null(answer);
    return answer;
}

static void answers_without_hints(void **state) {
    (void)state;
    struct rdma_addrinfo *answer = found("127.0.0.1", "7204", NULL);
    assert_int_equal(answer->ai_flags, 0);
    assert_int_equal(answer->ai_family, AF_INET);
    assert_int_equal(answer->ai_qp_type, IBV_QPT_RC);
    assert_int_equal(answer->ai_port_space, RDMA_PS_TCP);
    assert_int_equal(answer->ai_src_len, 0);
    assert_null(answer->ai_src_addr);
    assert_int_equal(answer->ai_dst_len, sizeof(struct sockaddr_in));
    assert_int_equal(((struct sockaddr_in *)answer->ai_dst_addr)->sin_port, htons(7204));
    assert_null(answer->ai_next);
    softrdma_rdma_freeaddrinfo(answer);
    answer = found("::1", "7204", NULL);
    assert_int_equal(answer->ai_family, AF_INET6);
    assert_int_equal(answer->ai_dst_len, sizeof(struct sockaddr_in6));
    softrdma_rdma_freeaddrinfo(answer);
    softrdma_rdma_freeaddrinfo(NULL);
}

static void answers_to_hints(void **state) {
    (void)state;
    struct rdma_addrinfo hints = {.ai_flags = RAI_PASSIVE | RAI_FAMILY | RAI_NOROUTE, .ai_family = AF_INET6};
    struct rdma_addrinfo *answer = found(NULL, "7204", &hints);
    assert_int_equal(answer->ai_flags & RAI_PASSIVE, RAI_PASSIVE);
    assert_null(answer->ai_dst_addr);
    const struct sockaddr_in6 *anywhere = (const struct sockaddr_in6 *)answer->ai_src_addr;
    assert_memory_equal(&anywhere->sin6_addr, &in6addr_any, sizeof(in6addr_any));
    assert_int_equal(anywhere->sin6_port, htons(7204));
    softrdma_rdma_freeaddrinfo(answer);

    hints = (struct rdma_addrinfo){.ai_port_space = RDMA_PS_UDP};
    answer = found("127.0.0.1", NULL, &hints);
    assert_int_equal(answer->ai_port_space, RDMA_PS_UDP);
    assert_int_equal(answer->ai_qp_type, IBV_QPT_UD);
    softrdma_rdma_freeaddrinfo(answer);
    hints = (struct rdma_addrinfo){.ai_qp_type = IBV_QPT_UD};
    answer = found("127.0.0.1", NULL, &hints);
    assert_int_equal(answer->ai_port_space, RDMA_PS_UDP);
    softrdma_rdma_freeaddrinfo(answer);

    /* The call accepts a source too. Without names the hints are the answer. */
    struct sockaddr_in source = {.sin_family = AF_INET, .sin_port = htons(1)};
    hints = (struct rdma_addrinfo){.ai_src_addr = (struct sockaddr *)&source, .ai_src_len = sizeof(source)};
    answer = found("127.0.0.1", "7204", &hints);
    assert_memory_equal(answer->ai_src_addr, &source, sizeof(source));
    softrdma_rdma_freeaddrinfo(answer);
    hints.ai_dst_addr = hints.ai_src_addr;
    hints.ai_dst_len = hints.ai_src_len;
    answer = found(NULL, NULL, &hints);
    assert_memory_equal(answer->ai_dst_addr, &source, sizeof(source));
    assert_int_equal(answer->ai_qp_type, IBV_QPT_RC);
    softrdma_rdma_freeaddrinfo(answer);
}

static void what_has_no_answer(void **state) {
    (void)state;
    struct rdma_addrinfo *answer = NULL;
    fails(softrdma_rdma_getaddrinfo(NULL, NULL, NULL, &answer), EINVAL);
    struct rdma_addrinfo hints = {.ai_flags = RAI_NUMERICHOST};
    // The codes of getaddrinfo(3), as those of librdmacm.
    assert_int_equal(softrdma_rdma_getaddrinfo("localhost", "1", &hints, &answer), EAI_NONAME);
    hints.ai_family = AF_UNIX;
    assert_int_equal(softrdma_rdma_getaddrinfo("127.0.0.1", "1", &hints, &answer), EAI_FAMILY);
    hints = (struct rdma_addrinfo){.ai_src_len = sizeof(struct sockaddr_in)};
    fails(softrdma_rdma_getaddrinfo("127.0.0.1", "1", &hints, &answer), EINVAL);
    struct sockaddr_in source = {.sin_family = AF_INET};
    hints.ai_src_addr = (struct sockaddr *)&source;
    hints.ai_src_len = sizeof(struct sockaddr_storage) + 1;
    fails(softrdma_rdma_getaddrinfo("127.0.0.1", "1", &hints, &answer), EINVAL);
    assert_null(answer);
}

static void addresses_that_ids_do_not_take(void **state) {
    (void)state;
    struct sockaddr unix_name = {.sa_family = AF_UNIX};
    struct rdma_addrinfo *v4 = loopback(RAI_PASSIVE, 0);
    struct rdma_addrinfo *v6 = found("::1", "1", NULL);
    struct rdma_cm_id *id = new_id();
    fails(softrdma_rdma_bind_addr(id, NULL), EINVAL);
    fails(softrdma_rdma_bind_addr(id, &unix_name), EINVAL);
    fails(softrdma_rdma_resolve_addr(id, NULL, NULL, 1), EINVAL);
    fails(softrdma_rdma_resolve_addr(id, &unix_name, v6->ai_dst_addr, 1), EINVAL);
    fails(softrdma_rdma_resolve_addr(id, v4->ai_src_addr, v6->ai_dst_addr, 1), EINVAL);
    fails(softrdma_rdma_get_cm_event(channel, NULL), EINVAL);
    fails(softrdma_rdma_ack_cm_event(NULL), EINVAL);
    softrdma_rdma_freeaddrinfo(v4);
    softrdma_rdma_freeaddrinfo(v6);
    assert_int_equal(softrdma_rdma_destroy_id(id), 0);
}

/* ---- devices, and what an id shows ---- */

static void devices_are_open(void **state) {
    (void)state;
    int count = 0;
    struct ibv_context **contexts = softrdma_rdma_get_devices(&count);
    assert_non_null(contexts);
    assert_in_range(count, 1, most_descriptors);
    for (int i = 0; i < count; i++) {
        assert_true(softrdma_owns(contexts[i]));
    }
    assert_null(contexts[count]);
    softrdma_rdma_free_devices(contexts);
    contexts = softrdma_rdma_get_devices(NULL);
    assert_non_null(contexts);
    softrdma_rdma_free_devices(contexts);
}

static void ids_have_the_identity_of_their_addresses(void **state) {
    (void)state;
    struct rdma_addrinfo *there = loopback(0, 7204);
    struct rdma_cm_id *id = new_id();
    assert_int_equal(softrdma_rdma_resolve_addr(id, NULL, there->ai_dst_addr, 1), 0);
    assert_ptr_equal(expect(RDMA_CM_EVENT_ADDR_RESOLVED), id);
    union ibv_gid gid = {.raw = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1}};
    assert_memory_equal(&id->route.addr.addr.ibaddr.sgid, &gid, sizeof(gid));
    assert_memory_equal(&id->route.addr.addr.ibaddr.dgid, &gid, sizeof(gid));
    assert_int_equal(id->route.addr.addr.ibaddr.pkey, 0xffff);
    assert_int_equal(id->port_num, 1);
    assert_int_equal(rdma_get_local_addr(id)->sa_family, AF_INET);
    assert_int_equal(softrdma_rdma_get_dst_port(id), htons(7204));
    assert_int_equal(id->ps, RDMA_PS_TCP);
    assert_int_equal(id->qp_type, IBV_QPT_RC);
    assert_null(id->route.path_rec);
    assert_int_equal(id->route.num_paths, 0);
    /* Only the device may deallocate its protection domain. */
    assert_ptr_equal(id->pd->context, id->verbs);
    assert_int_equal(softrdma_ibv_dealloc_pd(id->pd), EBUSY);
    softrdma_rdma_freeaddrinfo(there);
    assert_int_equal(softrdma_rdma_destroy_id(id), 0);
}

/* A socket that was bound without an address gets a device with its destination, and keeps its port. */
static void listeners_and_clients_without_an_address(void **state) {
    (void)state;
    struct rdma_cm_id *listener = new_id();
    assert_int_equal(softrdma_rdma_listen(listener, 1), 0);
    assert_null(listener->verbs);
    assert_null(listener->pd);
    assert_int_not_equal(softrdma_rdma_get_src_port(listener), 0);
    struct rdma_addrinfo *there = loopback(0, ntohs(softrdma_rdma_get_src_port(listener)));
    struct sockaddr_in anywhere = {.sin_family = AF_INET};
    struct rdma_cm_id *id = new_id();
    assert_int_equal(softrdma_rdma_bind_addr(id, (struct sockaddr *)&anywhere), 0);
    const __be16 port = softrdma_rdma_get_src_port(id);
    assert_int_equal(softrdma_rdma_resolve_addr(id, NULL, there->ai_dst_addr, 1), 0);
    assert_ptr_equal(expect(RDMA_CM_EVENT_ADDR_RESOLVED), id);
    assert_non_null(id->verbs);
    assert_int_equal(softrdma_rdma_get_src_port(id), port);
    assert_int_equal(((struct sockaddr_in *)rdma_get_local_addr(id))->sin_addr.s_addr,
                     htonl(INADDR_LOOPBACK));
    softrdma_rdma_freeaddrinfo(there);
    assert_int_equal(softrdma_rdma_destroy_id(id), 0);
    assert_int_equal(softrdma_rdma_destroy_id(listener), 0);
}

static void enhanced_establishment_is_refused(void **state) {
    (void)state;
    struct rdma_cm_id *id = new_id();
    struct ibv_ece ece = {.vendor_id = 1};
    fails(softrdma_rdma_set_local_ece(NULL, &ece), EINVAL);
    fails(softrdma_rdma_set_local_ece(id, NULL), EINVAL);
    fails(softrdma_rdma_set_local_ece(id, &ece), EOPNOTSUPP);
    fails(softrdma_rdma_get_remote_ece(id, &ece), EOPNOTSUPP);
    fails(softrdma_rdma_reject_ece(id, NULL, 0), EINVAL);
    assert_int_equal(softrdma_rdma_destroy_id(id), 0);
}

/* ---- queue pairs that the program destroys with ibv_destroy_qp, as rping and fio do ---- */

struct ends {
    struct rdma_cm_id *listener;
    struct rdma_cm_id *client;
    struct rdma_cm_id *server;
};

static void create_queue_pair(struct rdma_cm_id *id) {
    struct ibv_qp_init_attr attributes = {.qp_type = IBV_QPT_RC};
    assert_int_equal(softrdma_rdma_create_qp(id, NULL, &attributes), 0);
}

/* Returns a client with a queue pair of its own, which has sent a request that is not answered yet. */
static struct ends ask(void) {
    struct rdma_cm_id *listener = new_id();
    struct rdma_cm_id *client = new_id();
    assert_int_equal(softrdma_rdma_listen(listener, 1), 0);
    struct rdma_addrinfo *there = loopback(0, ntohs(softrdma_rdma_get_src_port(listener)));
    assert_int_equal(softrdma_rdma_resolve_addr(client, NULL, there->ai_dst_addr, 1), 0);
    softrdma_rdma_freeaddrinfo(there);
    assert_ptr_equal(expect(RDMA_CM_EVENT_ADDR_RESOLVED), client);
    assert_int_equal(softrdma_rdma_resolve_route(client, 1), 0);
    assert_ptr_equal(expect(RDMA_CM_EVENT_ROUTE_RESOLVED), client);
    create_queue_pair(client);
    assert_int_equal(softrdma_rdma_connect(client, NULL), 0);
    return (struct ends){listener, client, expect(RDMA_CM_EVENT_CONNECT_REQUEST)};
}

static void accept_with_queue_pair(struct rdma_cm_id *server) {
    create_queue_pair(server);
    assert_int_equal(softrdma_rdma_accept(server, NULL), 0);
}

/* Destroys the ends. The client's queue pair is gone already, and the
 * objects that were made for it go here. */
static void destroy(const struct ends *ends) {
    ends->client->qp = NULL;
    softrdma_rdma_destroy_qp(ends->client);
    assert_int_equal(softrdma_rdma_destroy_id(ends->client), 0);
    softrdma_rdma_destroy_ep(ends->server);
    assert_int_equal(softrdma_rdma_destroy_id(ends->listener), 0);
}

static void queue_pairs_go_before_their_ids(void **state) {
    (void)state;
    const struct ends ends = ask();
    accept_with_queue_pair(ends.server);
    (void)expect(RDMA_CM_EVENT_ESTABLISHED);
    (void)expect(RDMA_CM_EVENT_ESTABLISHED);
    assert_int_equal(softrdma_ibv_destroy_qp(ends.client->qp), 0);
    fails(softrdma_rdma_disconnect(ends.client), EINVAL);
    assert_ptr_equal(expect(RDMA_CM_EVENT_DISCONNECTED), ends.server);
    destroy(&ends);
}

static void a_queue_pair_goes_before_the_reply(void **state) {
    (void)state;
    const struct ends ends = ask();
    assert_int_equal(softrdma_ibv_destroy_qp(ends.client->qp), 0);
    accept_with_queue_pair(ends.server);
    struct rdma_cm_id *const first = expect(RDMA_CM_EVENT_CONNECT_ERROR);
    assert_ptr_not_equal(expect(RDMA_CM_EVENT_CONNECT_ERROR), first);
    destroy(&ends);
}

/* ---- queue pairs that are not the id's ---- */

struct end {
    struct rdma_cm_id *id;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    char bytes[8];
};

static void prepare(struct end *end) {
    assert_int_not_equal(end->id->verbs, NULL);
    end->cq = softrdma_ibv_create_cq(end->id->verbs, 4, NULL, NULL, 0);
    struct ibv_qp_init_attr attributes = {
        .send_cq = end->cq,
        .recv_cq = end->cq,
        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC,
    };
    end->qp = softrdma_ibv_create_qp(end->id->pd, &attributes);
    assert_non_null(end->qp);
    end->mr = softrdma_ibv_reg_mr(end->id->pd, end->bytes, sizeof(end->bytes), IBV_ACCESS_LOCAL_WRITE);
    assert_non_null(end->mr);
}

static void finish(struct end *end) {
    assert_int_equal(softrdma_ibv_destroy_qp(end->qp), 0);
    assert_int_equal(softrdma_ibv_dereg_mr(end->mr), 0);
    assert_int_equal(softrdma_ibv_destroy_cq(end->cq), 0);
}

/* A program may ask for attributes between the states, as rping -q does. */
static void attributes_are_given(struct end *end) {
    static const enum ibv_qp_state states[] = {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS};
    for (size_t i = 0; i < 3; i++) {
        struct ibv_qp_attr attributes = {.qp_state = states[i]};
        int mask = 0;
        assert_int_equal(softrdma_rdma_init_qp_attr(end->id, &attributes, &mask), 0);
        assert_int_equal(attributes.qp_state, states[i]);
        assert_int_equal(mask, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
        assert_int_equal(softrdma_ibv_modify_qp(end->qp, &attributes, mask), 0);
    }
    struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_SQD};
    int mask = 0;
    fails(softrdma_rdma_init_qp_attr(end->id, &attributes, &mask), EINVAL);
}

static void poll_one(struct end *end) {
    struct ibv_wc completion;
    int count = 0;
    while (count == 0) {
        count = ibv_poll_cq(end->cq, 1, &completion);
    }
    assert_int_equal(count, 1);
    assert_int_equal(completion.status, IBV_WC_SUCCESS);
}

static void send_one(struct end *from, struct end *to) {
    struct ibv_sge source = {(uintptr_t)from->bytes, sizeof(from->bytes), from->mr->lkey};
    struct ibv_send_wr request = {
        .sg_list = &source, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
    struct ibv_send_wr *bad = NULL;
    (void)strcpy(from->bytes, "message");
    assert_int_equal(ibv_post_send(from->qp, &request, &bad), 0);
    poll_one(from);
    poll_one(to);
    assert_string_equal(to->bytes, "message");
}

static void post_receive(struct end *end) {
    struct ibv_sge target = {(uintptr_t)end->bytes, sizeof(end->bytes), end->mr->lkey};
    struct ibv_recv_wr request = {.sg_list = &target, .num_sge = 1};
    struct ibv_recv_wr *bad = NULL;
    assert_int_equal(ibv_post_recv(end->qp, &request, &bad), 0);
}

/* Connects up to the response: the client knows that it is accepted. Returns the listener. */
static struct rdma_cm_id *begin(struct end *client, struct end *server) {
    struct rdma_cm_id *listener = new_id();
    assert_int_equal(softrdma_rdma_listen(listener, 1), 0);
    struct rdma_addrinfo *there = loopback(0, ntohs(softrdma_rdma_get_src_port(listener)));
    client->id = new_id();
    assert_int_equal(softrdma_rdma_resolve_addr(client->id, NULL, there->ai_dst_addr, 1), 0);
    softrdma_rdma_freeaddrinfo(there);
    assert_ptr_equal(expect(RDMA_CM_EVENT_ADDR_RESOLVED), client->id);
    assert_int_equal(softrdma_rdma_resolve_route(client->id, 1), 0);
    assert_ptr_equal(expect(RDMA_CM_EVENT_ROUTE_RESOLVED), client->id);
    prepare(client);
    struct rdma_conn_param parameters = {.responder_resources = 1, .initiator_depth = 1};
    fails(softrdma_rdma_connect(client->id, NULL), EINVAL);
    fails(softrdma_rdma_connect(client->id, &parameters), EINVAL);
    parameters.qp_num = client->qp->qp_num;
    parameters.initiator_depth = RDMA_MAX_INIT_DEPTH - 1;
    fails(softrdma_rdma_connect(client->id, &parameters), EINVAL); /* more than the device has */
    parameters.initiator_depth = RDMA_MAX_INIT_DEPTH;
    fails(softrdma_rdma_notify(client->id, IBV_EVENT_COMM_EST), EINVAL);
    assert_int_equal(softrdma_rdma_connect(client->id, &parameters), 0);
    assert_int_equal(softrdma_rdma_notify(client->id, IBV_EVENT_COMM_EST), 0);

    server->id = expect(RDMA_CM_EVENT_CONNECT_REQUEST);
    prepare(server);
    attributes_are_given(server);
    post_receive(server);
    fails(softrdma_rdma_accept(server->id, NULL), EINVAL);
    parameters.qp_num = server->qp->qp_num;
    assert_int_equal(softrdma_rdma_accept(server->id, &parameters), 0);
    assert_ptr_equal(expect(RDMA_CM_EVENT_CONNECT_RESPONSE), client->id);
    attributes_are_given(client);
    return listener;
}

static void queue_pairs_are_connected_by_number(void **state) {
    (void)state;
    struct end client = {0};
    struct end server = {0};
    struct rdma_cm_id *listener = begin(&client, &server);
    fails(softrdma_rdma_establish(server.id), EINVAL);
    assert_int_equal(softrdma_rdma_establish(client.id), 0);
    fails(softrdma_rdma_establish(client.id), EINVAL);
    assert_ptr_equal(expect(RDMA_CM_EVENT_ESTABLISHED), server.id);
    assert_null(client.id->qp);
    send_one(&client, &server);
    assert_int_equal(softrdma_rdma_disconnect(client.id), 0);
    struct rdma_cm_id *const first = expect(RDMA_CM_EVENT_DISCONNECTED);
    assert_ptr_not_equal(expect(RDMA_CM_EVENT_DISCONNECTED), first);
    finish(&client);
    finish(&server);
    assert_int_equal(softrdma_rdma_destroy_id(client.id), 0);
    assert_int_equal(softrdma_rdma_destroy_id(server.id), 0);
    assert_int_equal(softrdma_rdma_destroy_id(listener), 0);
}

/* One id is destroyed before it has established its connection, and one before its queue pair. */
static void ids_go_before_their_queue_pairs(void **state) {
    (void)state;
    struct end client = {0};
    struct end server = {0};
    struct rdma_cm_id *listener = begin(&client, &server);
    assert_int_equal(softrdma_rdma_destroy_id(client.id), 0);
    assert_ptr_equal(expect(RDMA_CM_EVENT_CONNECT_ERROR), server.id);
    assert_int_equal(softrdma_rdma_destroy_id(server.id), 0);
    finish(&client);
    finish(&server);
    assert_int_equal(softrdma_rdma_destroy_id(listener), 0);
}

/* A refused call changes nothing. An id knows the queue pair that it has connected, and no other. */
static void refused_calls_leave_queue_pairs_alone(void **state) {
    (void)state;
    struct end client = {0};
    struct end server = {0};
    struct rdma_cm_id *listener = begin(&client, &server);
    fails(softrdma_rdma_connect(client.id, NULL), EINVAL);
    assert_int_equal(softrdma_rdma_establish(client.id), 0);
    assert_ptr_equal(expect(RDMA_CM_EVENT_ESTABLISHED), server.id);
    fails(softrdma_rdma_accept(server.id, NULL), EINVAL);

    struct rdma_addrinfo *there = loopback(0, ntohs(softrdma_rdma_get_src_port(listener)));
    struct rdma_cm_id *stranger = NULL;
    assert_int_equal(softrdma_rdma_create_id(NULL, &stranger, NULL, RDMA_PS_TCP), 0);
    assert_int_equal(softrdma_rdma_resolve_addr(stranger, NULL, there->ai_dst_addr, 1), 0);
    assert_int_equal(softrdma_rdma_resolve_route(stranger, 1), 0);
    softrdma_rdma_freeaddrinfo(there);
    struct rdma_conn_param parameters = {.qp_num = client.qp->qp_num};
    fails(softrdma_rdma_connect(stranger, &parameters), EINVAL);
    fails(softrdma_rdma_disconnect(stranger), EINVAL);
    assert_int_equal(softrdma_rdma_destroy_id(stranger), 0);
    send_one(&client, &server);

    /* The ids are destroyed, and get no event of an end that comes later. */
    assert_int_equal(softrdma_rdma_destroy_id(client.id), 0);
    assert_int_equal(softrdma_rdma_destroy_id(server.id), 0);
    struct ibv_qp_attr failed = {.qp_state = IBV_QPS_ERR};
    assert_int_equal(softrdma_ibv_modify_qp(client.qp, &failed, IBV_QP_STATE), 0);
    assert_int_equal(softrdma_ibv_modify_qp(server.qp, &failed, IBV_QP_STATE), 0);
    finish(&client);
    finish(&server);
    assert_int_equal(softrdma_rdma_destroy_id(listener), 0);
}

/* A synchronous id waits for the end of a connection only when there was one. */
static void what_never_connected_cannot_disconnect(void **state) {
    (void)state;
    struct rdma_addrinfo *there = loopback(0, 7204);
    struct rdma_cm_id *id = NULL;
    assert_int_equal(softrdma_rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP), 0);
    assert_int_equal(softrdma_rdma_resolve_addr(id, NULL, there->ai_dst_addr, 1), 0);
    struct ibv_qp_init_attr attributes = {.qp_type = IBV_QPT_RC};
    assert_int_equal(softrdma_rdma_create_qp(id, NULL, &attributes), 0);
    fails(softrdma_rdma_disconnect(id), EINVAL);
    struct ibv_qp_attr failed = {.qp_state = IBV_QPS_ERR};
    assert_int_equal(softrdma_ibv_modify_qp(id->qp, &failed, IBV_QP_STATE), 0);
    fails(softrdma_rdma_disconnect(id), EINVAL);
    softrdma_rdma_freeaddrinfo(there);
    softrdma_rdma_destroy_ep(id);
}

/* ---- channels that go while a thread reads them ---- */

static void interrupt_only(int signal) {
    (void)signal;
}

static void *is_interrupted(void *events) {
    struct rdma_cm_event *event = NULL;
    const int result = softrdma_rdma_get_cm_event(events, &event);
    return result == -1 && errno == EINTR ? events : NULL;
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* From round to round the reader has progressed further when the channel is destroyed: the
 * reader is about to call, polls, or sleeps. On a busy machine one sched_yield takes
 * milliseconds, so few of them suffice there. */
static void a_reader_sleeps_on_when_its_channel_is_gone(void **state) {
    (void)state;
    const struct sigaction interrupt = {.sa_handler = interrupt_only};
    assert_int_equal(sigaction(SIGUSR1, &interrupt, NULL), 0);
    for (int round = 0; round < rounds_of_readers; round++) {
        struct rdma_event_channel *events = softrdma_rdma_create_event_channel();
        assert_non_null(events);
        pthread_t reader;
        assert_int_equal(pthread_create(&reader, NULL, is_interrupted, events), 0);
        const double enough = seconds() + 0.02;
        for (int turn = 0; turn < round * turns_more && seconds() < enough; turn++) {
            (void)sched_yield();
        }
        softrdma_rdma_destroy_event_channel(events);
        void *interrupted = NULL;
        while (pthread_tryjoin_np(reader, &interrupted) == EBUSY) {
            assert_int_equal(pthread_kill(reader, SIGUSR1), 0);
            (void)sched_yield();
        }
        assert_non_null(interrupted);
    }
}

#define in_a_channel(test) cmocka_unit_test_setup_teardown(test, begin_test, end_test)

int main(void) {
    const struct CMUnitTest tests[] = {
        in_a_channel(options_have_their_sizes),
        in_a_channel(the_service_type_is_the_sockets),
        in_a_channel(answers_without_hints),
        in_a_channel(answers_to_hints),
        in_a_channel(what_has_no_answer),
        in_a_channel(addresses_that_ids_do_not_take),
        in_a_channel(devices_are_open),
        in_a_channel(ids_have_the_identity_of_their_addresses),
        in_a_channel(listeners_and_clients_without_an_address),
        in_a_channel(enhanced_establishment_is_refused),
        in_a_channel(queue_pairs_go_before_their_ids),
        in_a_channel(a_queue_pair_goes_before_the_reply),
        in_a_channel(queue_pairs_are_connected_by_number),
        in_a_channel(ids_go_before_their_queue_pairs),
        in_a_channel(refused_calls_leave_queue_pairs_alone),
        in_a_channel(what_never_connected_cannot_disconnect),
        in_a_channel(a_reader_sleeps_on_when_its_channel_is_gone),
    };
    return cmocka_run_group_tests_name("cm_calls", tests, NULL, NULL);
}
