/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernel_device.h"

#include <errno.h>
#include <string.h>

/* The tests' symbols are hidden by default. librpma finds these instead of the libraries'. */
#define EVERYWHERE __attribute__((visibility("default")))
#undef ibv_reg_mr

struct kernel_device kernel;

static struct ibv_pd pd;
static struct ibv_mr regions[MOST];
static struct ibv_comp_channel channels[MOST];
static int channels_made;
static struct ibv_cq cqs[MOST];
static struct ibv_srq srq;
static struct ibv_qp qp;
static struct rdma_event_channel event_channels[MOST];
static int event_channels_made;
static struct rdma_cm_id ids[MOST];
static int ids_made;
/* The last rdma_resolve_ call left this event, until rdma_get_cm_event fetches it. */
static struct rdma_cm_event resolved;
static bool is_resolved;

/* Remembers the call, and returns true when it has to fail. */
static bool fails(const char *function) {
    const size_t used = strlen(kernel.calls);
    snprintf(kernel.calls + used, sizeof(kernel.calls) - used, "%s ", function);
    if (kernel.failing == NULL || strcmp(kernel.failing, function) != 0) {
        return false;
    }
    if (kernel.failures > 0 && --kernel.failures == 0) {
        kernel.failing = NULL;
    }
    if (kernel.number != 0) {
        errno = kernel.number;
    }
    return true;
}

void let_fail(const char *function, int number) {
    kernel.failing = function;
    kernel.number = number;
    kernel.failures = 0;
}

void forget_calls(void) {
    kernel.calls[0] = '\0';
}

static int query_device(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
                        struct ibv_device_attr_ex *attributes, size_t size) {
    (void)context;
    (void)input;
    if (fails("ibv_query_device_ex")) {
        return kernel.number;
    }
    memcpy(attributes, &kernel.attributes,
           size < sizeof(kernel.attributes) ? size : sizeof(kernel.attributes));
    return 0;
}

static int advise(struct ibv_pd *domain, enum ibv_advise_mr_advice advice, uint32_t flags,
                  struct ibv_sge *parts, uint32_t count) {
    assert_ptr_equal(domain, &pd);
    assert_int_equal(advice, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE);
    assert_int_equal(flags, IBV_ADVISE_MR_FLAG_FLUSH);
    assert_int_equal(count, 1);
    kernel.advised = parts[0];
    return fails("ibv_advise_mr") ? kernel.number : 0;
}

static int poll_cq(struct ibv_cq *cq, int count, struct ibv_wc *wc) {
    (void)cq;
    (void)count;
    (void)wc;
    return kernel.polled;
}

static int notify(struct ibv_cq *cq, int solicited_only) {
    (void)cq;
    assert_int_equal(solicited_only, 0);
    return fails("ibv_req_notify_cq") ? kernel.number : 0;
}

static int post_send(struct ibv_qp *queue_pair, struct ibv_send_wr *request, struct ibv_send_wr **refused) {
    assert_ptr_equal(queue_pair, &qp);
    kernel.sent = *request;
    if (request->num_sge == 1) {
        kernel.sent_element = request->sg_list[0];
    }
    *refused = request;
    return fails("ibv_post_send") ? kernel.number : 0;
}

static int remember_receive(struct ibv_recv_wr *request, struct ibv_recv_wr **refused, const char *function) {
    kernel.received = *request;
    if (request->num_sge == 1) {
        kernel.received_element = request->sg_list[0];
    }
    *refused = request;
    return fails(function) ? kernel.number : 0;
}

static int post_receive(struct ibv_qp *queue_pair, struct ibv_recv_wr *request,
                        struct ibv_recv_wr **refused) {
    assert_ptr_equal(queue_pair, &qp);
    return remember_receive(request, refused, "ibv_post_recv");
}

static int post_shared_receive(struct ibv_srq *queue, struct ibv_recv_wr *request,
                               struct ibv_recv_wr **refused) {
    assert_ptr_equal(queue, &srq);
    return remember_receive(request, refused, "ibv_post_srq_recv");
}

int make_kernel_device(void **state) {
    (void)state;
    memset(&kernel, 0, sizeof(kernel));
    channels_made = event_channels_made = ids_made = 0;
    is_resolved = false;
    memset(ids, 0, sizeof(ids));
    snprintf(kernel.device.name, sizeof(kernel.device.name), "remembering0");
    kernel.device.transport_type = IBV_TRANSPORT_IB;
    kernel.verbs.sz = sizeof(kernel.verbs);
    kernel.verbs.query_device_ex = query_device;
    kernel.verbs.advise_mr = advise;
    struct ibv_context *const context = &kernel.verbs.context;
    context->device = &kernel.device;
    context->abi_compat = __VERBS_ABI_IS_EXTENDED;
    context->ops.poll_cq = poll_cq;
    context->ops.req_notify_cq = notify;
    context->ops.post_send = post_send;
    context->ops.post_recv = post_receive;
    context->ops.post_srq_recv = post_shared_receive;
    kernel.attributes.orig_attr.max_cqe = 1000;
    kernel.attributes.orig_attr.max_qp_wr = 500;
    kernel.attributes.orig_attr.max_srq_wr = 250;
    qp = (struct ibv_qp){.context = context, .pd = &pd, .qp_num = 4711};
    capture_log(RPMA_LOG_LEVEL_INFO);
    return 0;
}

int called(const char *function) {
    int count = 0;
    char word[64];
    const int size = snprintf(word, sizeof(word), "%s ", function);
    for (const char *at = kernel.calls; (at = strstr(at, word)) != NULL; at += size) {
        ++count;
    }
    return count;
}

struct rpma_peer *kernel_peer(void) {
    struct rpma_peer *peer = NULL;
    assert_ok(rpma_peer_new(&kernel.verbs.context, &peer));
    return peer;
}

/* ---- libibverbs ---- */

EVERYWHERE struct ibv_pd *ibv_alloc_pd(struct ibv_context *context) {
    pd.context = context;
    return fails("ibv_alloc_pd") ? NULL : &pd;
}

EVERYWHERE int ibv_dealloc_pd(struct ibv_pd *domain) {
    (void)domain;
    return fails("ibv_dealloc_pd") ? kernel.number : 0;
}

EVERYWHERE struct ibv_mr *ibv_reg_mr(struct ibv_pd *domain, void *address, size_t length, int access) {
    assert_true(kernel.registrations < MOST);
    kernel.access[kernel.registrations] = access;
    if (fails("ibv_reg_mr")) {
        ++kernel.registrations;
        return NULL;
    }
    struct ibv_mr *const region = &regions[kernel.registrations++];
    *region = (struct ibv_mr){.context = domain->context,
                              .pd = domain,
                              .addr = address,
                              .length = length,
                              .lkey = 100,
                              .rkey = 200};
    return region;
}

EVERYWHERE int ibv_dereg_mr(struct ibv_mr *region) {
    (void)region;
    return fails("ibv_dereg_mr") ? kernel.number : 0;
}

/* The device is not siw: its vendor is 0 (src/verbs/siw.hpp). */
EVERYWHERE int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attributes) {
    (void)context;
    *attributes = (struct ibv_device_attr){.vendor_id = 0};
    return 0;
}

EVERYWHERE struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context) {
    if (fails("ibv_create_comp_channel")) {
        return NULL;
    }
    assert_true(channels_made < MOST);
    channels[channels_made] = (struct ibv_comp_channel){.context = context, .fd = 1000 + channels_made};
    return &channels[channels_made++];
}

EVERYWHERE int ibv_destroy_comp_channel(struct ibv_comp_channel *channel) {
    (void)channel;
    return fails("ibv_destroy_comp_channel") ? kernel.number : 0;
}

EVERYWHERE struct ibv_cq *ibv_create_cq(struct ibv_context *context, int size, void *cq_context,
                                        struct ibv_comp_channel *channel, int vector) {
    assert_int_equal(vector, 0);
    assert_true(kernel.cqs < MOST);
    kernel.cq_sizes[kernel.cqs] = size;
    if (fails("ibv_create_cq")) {
        return NULL;
    }
    cqs[kernel.cqs] =
        (struct ibv_cq){.context = context, .channel = channel, .cq_context = cq_context, .cqe = size};
    return &cqs[kernel.cqs++];
}

EVERYWHERE int ibv_destroy_cq(struct ibv_cq *cq) {
    (void)cq;
    return fails("ibv_destroy_cq") ? kernel.number : 0;
}

EVERYWHERE int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context) {
    (void)channel;
    if (kernel.cq_event == NULL || fails("ibv_get_cq_event")) {
        errno = EAGAIN;
        return -1;
    }
    *cq = kernel.cq_event;
    *cq_context = NULL;
    return 0;
}

EVERYWHERE void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int count) {
    (void)cq;
    kernel.acknowledged_events += (int)count;
}

EVERYWHERE struct ibv_srq *ibv_create_srq(struct ibv_pd *domain, struct ibv_srq_init_attr *attributes) {
    kernel.srq_attributes = *attributes;
    srq = (struct ibv_srq){.context = domain->context, .pd = domain};
    return fails("ibv_create_srq") ? NULL : &srq;
}

EVERYWHERE int ibv_destroy_srq(struct ibv_srq *queue) {
    (void)queue;
    return fails("ibv_destroy_srq") ? kernel.number : 0;
}

EVERYWHERE struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *queue_pair) {
    (void)queue_pair;
    return kernel.qp_ex;
}

/* ---- librdmacm ---- */

static int failed(const char *function) {
    return fails(function) ? -1 : 0;
}

EVERYWHERE int rdma_getaddrinfo(const char *node, const char *service, const struct rdma_addrinfo *hints,
                                struct rdma_addrinfo **found) {
    static struct rdma_addrinfo nowhere;
    (void)node;
    (void)service;
    assert_int_equal(hints->ai_port_space, RDMA_PS_TCP);
    assert_int_equal(hints->ai_qp_type, IBV_QPT_RC);
    *found = &nowhere;
    return failed("rdma_getaddrinfo");
}

EVERYWHERE void rdma_freeaddrinfo(struct rdma_addrinfo *found) {
    (void)found;
}

EVERYWHERE struct rdma_event_channel *rdma_create_event_channel(void) {
    if (fails("rdma_create_event_channel")) {
        return NULL;
    }
    assert_true(event_channels_made < MOST);
    event_channels[event_channels_made].fd = 2000 + event_channels_made;
    return &event_channels[event_channels_made++];
}

EVERYWHERE void rdma_destroy_event_channel(struct rdma_event_channel *channel) {
    (void)channel;
    (void)fails("rdma_destroy_event_channel");
}

EVERYWHERE int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event) {
    (void)channel;
    if (failed("rdma_get_cm_event") != 0) {
        return -1;
    }
    if (is_resolved) {
        is_resolved = false;
        *event = &resolved;
        return 0;
    }
    if (kernel.cm_event == NULL) {
        errno = EAGAIN;
        return -1;
    }
    *event = kernel.cm_event;
    kernel.cm_event = NULL;
    return 0;
}

EVERYWHERE int rdma_ack_cm_event(struct rdma_cm_event *event) {
    (void)event;
    return failed("rdma_ack_cm_event");
}

EVERYWHERE int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context,
                              enum rdma_port_space space) {
    assert_int_equal(space, RDMA_PS_TCP);
    if (fails("rdma_create_id")) {
        return -1;
    }
    assert_true(ids_made < MOST);
    ids[ids_made] = (struct rdma_cm_id){
        .channel = channel, .context = context, .verbs = &kernel.verbs.context, .ps = space};
    *id = &ids[ids_made++];
    return 0;
}

EVERYWHERE int rdma_destroy_id(struct rdma_cm_id *id) {
    (void)id;
    return failed("rdma_destroy_id");
}

EVERYWHERE int rdma_migrate_id(struct rdma_cm_id *id, struct rdma_event_channel *channel) {
    id->channel = channel;
    return failed("rdma_migrate_id");
}

EVERYWHERE int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *address) {
    (void)id;
    (void)address;
    return failed("rdma_bind_addr");
}

EVERYWHERE int rdma_listen(struct rdma_cm_id *id, int backlog) {
    (void)id;
    assert_int_equal(backlog, 0);
    return failed("rdma_listen");
}

static int resolve(const char *function, enum rdma_cm_event_type type) {
    is_resolved = !fails(function);
    resolved = (struct rdma_cm_event){.event = type};
    return is_resolved ? 0 : -1;
}

EVERYWHERE int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *source, struct sockaddr *destination,
                                 int timeout_ms) {
    (void)id;
    (void)source;
    (void)destination;
    kernel.resolve_timeouts_ms[0] = timeout_ms;
    return resolve("rdma_resolve_addr", RDMA_CM_EVENT_ADDR_RESOLVED);
}

EVERYWHERE int rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms) {
    (void)id;
    kernel.resolve_timeouts_ms[1] = timeout_ms;
    return resolve("rdma_resolve_route", RDMA_CM_EVENT_ROUTE_RESOLVED);
}

EVERYWHERE int rdma_create_qp_ex(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *attributes) {
    assert_true(kernel.queue_pairs < MOST);
    kernel.qp_attributes[kernel.queue_pairs++] = *attributes;
    if (fails("rdma_create_qp")) {
        return -1;
    }
    id->qp = &qp;
    return 0;
}

EVERYWHERE void rdma_destroy_qp(struct rdma_cm_id *id) {
    (void)id;
    (void)fails("rdma_destroy_qp");
}

EVERYWHERE int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *parameters) {
    (void)id;
    kernel.parameters = *parameters;
    return failed("rdma_connect");
}

EVERYWHERE int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *parameters) {
    (void)id;
    kernel.parameters = *parameters;
    return failed("rdma_accept");
}

EVERYWHERE int rdma_reject(struct rdma_cm_id *id, const void *data, uint8_t size) {
    (void)id;
    assert_null(data);
    assert_int_equal(size, 0);
    return failed("rdma_reject");
}

EVERYWHERE int rdma_disconnect(struct rdma_cm_id *id) {
    (void)id;
    return failed("rdma_disconnect");
}
