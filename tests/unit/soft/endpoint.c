/* SPDX-License-Identifier: BSD-3-Clause */
/* unit/soft: tests endpoints with rdma_verbs.h. An endpoint is an id that waits
 * in its calls and makes its own queues. */
#include "endpoint.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum { message_bytes = 16, watchdog_s = 50 };

static struct ibv_qp_init_attr one_of_each(void) {
    return (struct ibv_qp_init_attr){
        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
        .sq_sig_all = 1,
    };
}

static struct rdma_cm_id *listening(struct ibv_qp_init_attr *attributes) {
    struct rdma_addrinfo *here = loopback(RAI_PASSIVE, 0);
    struct rdma_cm_id *id = NULL;
    assert_int_equal(softrdma_rdma_create_ep(&id, here, NULL, attributes), 0);
    softrdma_rdma_freeaddrinfo(here);
    assert_int_equal(softrdma_rdma_listen(id, 0), 0);
    assert_int_not_equal(softrdma_rdma_get_src_port(id), 0);
    return id;
}

static int begin_test(void **state) {
    (void)state;
    alarm(watchdog_s);
    return 0;
}

/* ---- a client in a thread: it sends "ping" and expects "pong" ---- */

struct client {
    pthread_t thread;
    uint16_t port;
    const char *wrong; /* what went wrong; assertions are the main thread's */
    int error;         /* errno of a connect that failed */
};

static const char *converse(struct rdma_cm_id *id, struct client *client) {
    char bytes[message_bytes] = "ping";
    struct ibv_mr *region = rdma_reg_msgs(id, bytes, sizeof(bytes));
    struct ibv_wc completion;
    const char *wrong = NULL;
    if (region == NULL || rdma_post_recv(id, NULL, bytes, sizeof(bytes), region) != 0) {
        wrong = "no receive";
    } else if (softrdma_rdma_connect(id, NULL) != 0) {
        client->error = errno;
    } else if (id->event->event != RDMA_CM_EVENT_ESTABLISHED) {
        wrong = "connected without its event";
    } else if (rdma_post_send(id, NULL, bytes, sizeof(bytes), region, 0) != 0 ||
               rdma_get_send_comp(id, &completion) != 1 || completion.status != IBV_WC_SUCCESS) {
        wrong = "no send";
    } else if (rdma_get_recv_comp(id, &completion) != 1 || completion.status != IBV_WC_SUCCESS ||
               strcmp(bytes, "pong") != 0) {
        wrong = "no answer";
    } else if (softrdma_rdma_disconnect(id) != 0 || id->event->event != RDMA_CM_EVENT_DISCONNECTED ||
               softrdma_rdma_disconnect(id) != 0) {
        wrong = "no end";
    }
    if (region != NULL) {
        (void)rdma_dereg_mr(region);
    }
    return wrong;
}

static void *run_client(void *argument) {
    struct client *client = argument;
    struct sockaddr_in there = {.sin_family = AF_INET, .sin_port = client->port};
    there.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    struct rdma_addrinfo to = {.ai_qp_type = IBV_QPT_RC,
                               .ai_port_space = RDMA_PS_TCP,
                               .ai_dst_addr = (struct sockaddr *)&there,
                               .ai_dst_len = sizeof(there)};
    struct ibv_qp_init_attr attributes = one_of_each();
    struct rdma_cm_id *id = NULL;
    if (softrdma_rdma_create_ep(&id, &to, NULL, &attributes) != 0) {
        client->wrong = "no endpoint";
        return NULL;
    }
    client->wrong = converse(id, client);
    softrdma_rdma_destroy_ep(id);
    return NULL;
}

static void start(struct client *client, __be16 port) {
    *client = (struct client){.port = port};
    assert_int_equal(pthread_create(&client->thread, NULL, run_client, client), 0);
}

static void finish(struct client *client) {
    assert_int_equal(pthread_join(client->thread, NULL), 0);
    if (client->wrong != NULL) {
        fail_msg("the client: %s", client->wrong);
    }
}

/* ---- the server's side of it ---- */

/* Starts a client, and returns its request. */
static struct rdma_cm_id *request_of(struct client *client, struct rdma_cm_id *listener) {
    start(client, softrdma_rdma_get_src_port(listener));
    struct rdma_cm_id *id = NULL;
    assert_int_equal(softrdma_rdma_get_request(listener, &id), 0);
    return id;
}

static void answer(struct rdma_cm_id *id) {
    char bytes[message_bytes] = "";
    struct ibv_mr *region = rdma_reg_msgs(id, bytes, sizeof(bytes));
    assert_non_null(region);
    assert_int_equal(rdma_post_recv(id, NULL, bytes, sizeof(bytes), region), 0);
    assert_int_equal(softrdma_rdma_accept(id, NULL), 0);
    assert_int_equal(id->event->event, RDMA_CM_EVENT_ESTABLISHED);
    struct ibv_wc completion;
    assert_int_equal(rdma_get_recv_comp(id, &completion), 1);
    assert_int_equal(completion.status, IBV_WC_SUCCESS);
    assert_string_equal(bytes, "ping");
    (void)strcpy(bytes, "pong");
    assert_int_equal(rdma_post_send(id, NULL, bytes, sizeof(bytes), region, 0), 0);
    assert_int_equal(rdma_get_send_comp(id, &completion), 1);
    assert_int_equal(completion.status, IBV_WC_SUCCESS);
    assert_int_equal(softrdma_rdma_disconnect(id), 0);
    assert_int_equal(id->event->event, RDMA_CM_EVENT_DISCONNECTED);
    assert_int_equal(rdma_dereg_mr(region), 0);
}

static void endpoints_make_what_they_need(void **state) {
    (void)state;
    struct ibv_qp_init_attr attributes = one_of_each();
    struct rdma_cm_id *listener = listening(&attributes);
    assert_null(listener->qp);
    struct client client;
    struct rdma_cm_id *id = request_of(&client, listener);
    assert_int_equal(id->event->event, RDMA_CM_EVENT_CONNECT_REQUEST);
    assert_ptr_equal(id->event->listen_id, listener);
    assert_ptr_not_equal(id->channel, listener->channel);
    assert_non_null(id->qp);
    assert_ptr_equal(id->pd, id->qp->pd);
    assert_ptr_equal(id->qp->send_cq, id->send_cq);
    assert_ptr_equal(id->qp->recv_cq, id->recv_cq);
    assert_ptr_equal(id->send_cq->channel, id->send_cq_channel);
    assert_ptr_equal(id->recv_cq->channel, id->recv_cq_channel);
    assert_ptr_equal(id->send_cq->cq_context, id);
    answer(id);
    finish(&client);
    softrdma_rdma_destroy_ep(id);
    softrdma_rdma_destroy_ep(listener);
}

/* In librdmacm this call would wait for ever, because the request's event counts for the listener there. */
static void a_request_outlives_its_endpoint(void **state) {
    (void)state;
    struct ibv_qp_init_attr attributes = one_of_each();
    struct rdma_cm_id *listener = listening(&attributes);
    struct client client;
    struct rdma_cm_id *id = request_of(&client, listener);
    softrdma_rdma_destroy_ep(listener);
    answer(id);
    finish(&client);
    softrdma_rdma_destroy_ep(id);
}

static void a_request_that_is_destroyed_is_rejected(void **state) {
    (void)state;
    struct rdma_cm_id *listener = listening(NULL);
    struct client client;
    struct rdma_cm_id *id = request_of(&client, listener);
    assert_null(id->qp);
    assert_non_null(id->pd); /* the device's */
    softrdma_rdma_destroy_ep(id);
    finish(&client);
    assert_int_equal(client.error, ECONNREFUSED);
    softrdma_rdma_destroy_ep(listener);
}

static void a_request_without_room_for_its_queue_pair_is_rejected(void **state) {
    (void)state;
    struct ibv_qp_init_attr attributes = one_of_each();
    attributes.cap.max_send_wr = UINT16_MAX;
    struct rdma_cm_id *listener = listening(&attributes);
    struct client client;
    start(&client, softrdma_rdma_get_src_port(listener));
    struct rdma_cm_id *id = NULL;
    fails(softrdma_rdma_get_request(listener, &id), EINVAL);
    assert_null(id);
    finish(&client);
    assert_int_equal(client.error, ECONNREFUSED);
    softrdma_rdma_destroy_ep(listener);
}

/* Queues that the program brings stay the program's own. */
static void queues_of_the_program_are_not_the_ids(void **state) {
    (void)state;
    struct rdma_cm_id *listener = listening(NULL);
    struct client client;
    struct rdma_cm_id *id = request_of(&client, listener);
    struct ibv_qp_init_attr attributes = one_of_each();
    struct ibv_pd *pd = softrdma_ibv_alloc_pd(id->verbs);
    attributes.send_cq = softrdma_ibv_create_cq(id->verbs, 2, NULL, NULL, 0);
    attributes.qp_type = IBV_QPT_RC;
    assert_int_equal(softrdma_rdma_create_qp(id, pd, &attributes), 0);
    assert_ptr_equal(id->pd, pd);
    assert_null(id->send_cq);
    assert_null(id->send_cq_channel);
    assert_ptr_equal(id->recv_cq, attributes.recv_cq);
    fails(softrdma_rdma_create_qp(id, pd, &attributes), EINVAL);
    softrdma_rdma_destroy_qp(id);
    assert_null(id->qp);
    assert_null(id->recv_cq);
    assert_null(id->recv_cq_channel);
    assert_int_equal(softrdma_ibv_destroy_cq(attributes.send_cq), 0);
    softrdma_rdma_destroy_ep(id);
    assert_int_equal(softrdma_ibv_dealloc_pd(pd), 0);
    finish(&client);
    softrdma_rdma_destroy_ep(listener);
}

static void an_id_has_a_shared_receive_queue(void **state) {
    (void)state;
    struct rdma_cm_id *listener = listening(NULL);
    struct client client;
    struct rdma_cm_id *id = request_of(&client, listener);
    struct ibv_srq_init_attr_ex shared = {.attr = {.max_wr = 4, .max_sge = 1}};
    fails(softrdma_rdma_create_srq_ex(id, &shared), EINVAL); /* of no type */
    shared.comp_mask = IBV_SRQ_INIT_ATTR_TYPE;
    shared.srq_type = IBV_SRQT_TM;
    fails(softrdma_rdma_create_srq_ex(id, &shared), EOPNOTSUPP);
    struct ibv_srq_init_attr basic = {.attr = {.max_wr = 4, .max_sge = 1}};
    assert_int_equal(softrdma_rdma_create_srq(id, NULL, &basic), 0);
    assert_ptr_equal(id->srq->pd, id->pd);
    struct ibv_qp_init_attr attributes = one_of_each();
    attributes.qp_type = IBV_QPT_RC;
    attributes.cap.max_recv_wr = 0;
    assert_int_equal(softrdma_rdma_create_qp(id, NULL, &attributes), 0);
    assert_ptr_equal(id->qp->srq, id->srq);
    assert_true(id->recv_cq->cqe >= 4); /* one for each receive that is shared */
    answer(id);
    finish(&client);
    softrdma_rdma_destroy_ep(id);
    softrdma_rdma_destroy_ep(listener);
}

static void endpoints_that_cannot_be(void **state) {
    (void)state;
    struct rdma_addrinfo *there = loopback(0, 1);
    struct rdma_cm_id *id = NULL;
    fails(softrdma_rdma_create_ep(&id, NULL, NULL, NULL), EINVAL);
    fails(softrdma_rdma_create_ep(NULL, there, NULL, NULL), EINVAL);
    there->ai_qp_type = IBV_QPT_XRC_SEND;
    fails(softrdma_rdma_create_ep(&id, there, NULL, NULL), EINVAL);
    there->ai_qp_type = IBV_QPT_RC;
    there->ai_port_space = RDMA_PS_IB;
    fails(softrdma_rdma_create_ep(&id, there, NULL, NULL), EPROTONOSUPPORT);
    there->ai_port_space = RDMA_PS_TCP;
    there->ai_route_len = 1;
    fails(softrdma_rdma_create_ep(&id, there, NULL, NULL), EOPNOTSUPP);
    there->ai_route_len = 0;
    struct ibv_qp_init_attr attributes = one_of_each();
    attributes.cap.max_send_sge = UINT16_MAX;
    fails(softrdma_rdma_create_ep(&id, there, NULL, &attributes), EINVAL);
    assert_null(attributes.send_cq);
    assert_null(id);
    /* No program listens at port 1. */
    assert_int_equal(softrdma_rdma_create_ep(&id, there, NULL, NULL), 0);
    attributes = one_of_each();
    attributes.qp_type = IBV_QPT_UD;
    fails(softrdma_rdma_create_qp(id, NULL, &attributes), EINVAL);
    attributes.qp_type = IBV_QPT_RC;
    assert_int_equal(softrdma_rdma_create_qp(id, NULL, &attributes), 0);
    fails(softrdma_rdma_connect(id, NULL), ECONNREFUSED);
    assert_int_equal(id->event->event, RDMA_CM_EVENT_REJECTED);
    softrdma_rdma_destroy_ep(id);
    softrdma_rdma_freeaddrinfo(there);
}

static void only_synchronous_ids_wait_for_requests(void **state) {
    (void)state;
    struct rdma_event_channel *channel = softrdma_rdma_create_event_channel();
    assert_non_null(channel);
    struct rdma_cm_id *listener = listening(NULL);
    fails(softrdma_rdma_migrate_id(listener, NULL), EINVAL);
    assert_int_equal(softrdma_rdma_migrate_id(listener, channel), 0);
    struct rdma_cm_id *id = NULL;
    fails(softrdma_rdma_get_request(listener, &id), EINVAL);
    assert_null(id);
    softrdma_rdma_destroy_ep(listener);
    softrdma_rdma_destroy_event_channel(channel);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(endpoints_make_what_they_need, begin_test),
        cmocka_unit_test_setup(a_request_outlives_its_endpoint, begin_test),
        cmocka_unit_test_setup(a_request_that_is_destroyed_is_rejected, begin_test),
        cmocka_unit_test_setup(a_request_without_room_for_its_queue_pair_is_rejected, begin_test),
        cmocka_unit_test_setup(queues_of_the_program_are_not_the_ids, begin_test),
        cmocka_unit_test_setup(an_id_has_a_shared_receive_queue, begin_test),
        cmocka_unit_test_setup(endpoints_that_cannot_be, begin_test),
        cmocka_unit_test_setup(only_synchronous_ids_wait_for_requests, begin_test),
    };
    return cmocka_run_group_tests_name("endpoint", tests, NULL, NULL);
}
