/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests connections on a device of the kernel: their beginning, methods, events and end. */
#include <errno.h>

#include "kernel_ends.h"

/* ---- connecting ---- */

static void parameters_are_the_most_there_is(const struct rpma_conn_private_data *data) {
    const struct rdma_conn_param *const given = &kernel.parameters;
    assert_int_equal(given->responder_resources, RDMA_MAX_RESP_RES);
    assert_int_equal(given->initiator_depth, RDMA_MAX_INIT_DEPTH);
    assert_int_equal(given->flow_control, 1);
    assert_int_equal(given->retry_count, 7);
    assert_int_equal(given->rnr_retry_count, 7);
    assert_ptr_equal(given->private_data, data != NULL ? data->ptr : NULL);
    assert_int_equal(given->private_data_len, data != NULL ? data->len : 0);
}

static void connecting_is_the_last_step(void **state) {
    (void)state;
    const struct rpma_conn_private_data data = {anything(), 22};
    request = kernel_request(NULL);
    forget_calls();
    assert_ok(rpma_conn_req_connect(&request, &data, &conn));
    assert_string_equal(kernel.calls, "rdma_connect ");
    parameters_are_the_most_there_is(&data);
}

static void accepting_is_the_last_step(void **state) {
    (void)state;
    request_arrives();
    assert_ok(rpma_ep_next_conn_req(ep, NULL, &request));
    forget_calls();
    assert_ok(rpma_conn_req_connect(&request, NULL, &conn));
    assert_string_equal(kernel.calls, "rdma_accept ");
    parameters_are_the_most_there_is(NULL);
}

/* The kernel's devices have no TLS. */
static void nobody_has_an_identity(void **state) {
    (void)state;
    const char *identity = anything();
    request_arrives();
    assert_ok(rpma_ep_next_conn_req(ep, NULL, &request));
    assert_ok(rpma_conn_req_get_identity(request, &identity));
    assert_null(identity);
    bool of_request = false;
    assert_code(rpma_conn_req_check_identity(request, &of_request), RPMA_E_NOSUPP);
    assert_ok(rpma_conn_req_connect(&request, NULL, &conn));
    identity = anything();
    assert_ok(rpma_conn_get_identity(conn, &identity));
    assert_null(identity);
    bool known = false;
    assert_code(rpma_conn_check_identity(conn, &known), RPMA_E_NOSUPP);
    const struct rpma_conn *const one = conn;
    assert_code(rpma_conn_check_identities(&one, 1, &known), RPMA_E_NOSUPP);
}

static void tls_is_refused(void **state) {
    (void)state;
    struct rpma_ep_cfg *ep_cfg = NULL;
    struct rpma_ep *none = anything();
    struct rpma_conn_req *no_request = anything();
    assert_ok(rpma_conn_cfg_set_tls(cfg, "psk:/etc/rpma/keys"));
    assert_code(rpma_conn_req_new(peer, "somewhere", "7204", cfg, &no_request), RPMA_E_NOSUPP);
    assert_true(logged("a kernel's device has no TLS", NULL));
    assert_ok(rpma_ep_cfg_new(&ep_cfg));
    assert_ok(rpma_ep_cfg_set_tls(ep_cfg, "psk:/etc/rpma/keys"));
    assert_code(rpma_ep_listen_cfg(peer, "anywhere", "7204", ep_cfg, &none), RPMA_E_NOSUPP);
    assert_ok(rpma_ep_cfg_delete(&ep_cfg));
    assert_ptr_equal(none, anything());
    assert_ptr_equal(no_request, anything());
    /* A request that came without is not accepted either. */
    request_arrives();
    assert_code(rpma_ep_next_conn_req(ep, cfg, &request), RPMA_E_INVAL);
    assert_true(logged("came without the TLS", NULL));
}

static void private_data_too_long_is_explained(void **state) {
    (void)state;
    const struct rpma_conn_private_data for_request = {anything(), 57};
    const struct rpma_conn_private_data for_answer = {anything(), 197};
    request = kernel_request(NULL);
    let_fail("rdma_connect", EINVAL);
    assert_code(rpma_conn_req_connect(&request, &for_request, &conn), RPMA_E_PROVIDER);
    assert_true(logged("rdma_connect", "57 bytes", "56", "Invalid argument", NULL));
    let_fail(NULL, 0);
    request_arrives();
    assert_ok(rpma_ep_next_conn_req(ep, NULL, &request));
    let_fail("rdma_accept", EINVAL);
    assert_code(rpma_conn_req_connect(&request, &for_answer, &conn), RPMA_E_PROVIDER);
    assert_true(logged("rdma_accept", "197 bytes", "196", "Invalid argument", NULL));
}

static void connecting_can_fail(void **state) {
    (void)state;
    struct rpma_conn *none = anything();
    forget_calls();
    request = kernel_request(NULL);
    let_fail("rdma_connect", EIO);
    assert_code(rpma_conn_req_connect(&request, NULL, &none), RPMA_E_PROVIDER);
    assert_null(request);
    assert_ptr_equal(none, anything());
    assert_true(logged("rdma_connect", "Input/output error", NULL));
    assert_nothing_is_left();
    assert_int_equal(called("rdma_reject"), 0);
}

/* ---- native operations ---- */

static void native_atomic_write(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t address, const void *source) {
    (void)qp;
    (void)rkey;
    (void)address;
    (void)source;
}

static void queue_pair_is_asked_for_the_devices_operations(void **state) {
    (void)state;
    const uint64_t atomic_write = UINT64_C(1) << 40;
    kernel.attributes.device_cap_flags_ex = atomic_write;
    renew_peer();
    request = kernel_request(NULL);
    assert_int_equal(kernel.qp_attributes[0].comp_mask,
                     IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS);
    assert_int_equal(kernel.qp_attributes[0].send_ops_flags, IBV_QP_EX_WITH_ATOMIC_WRITE);
}

static void driver_without_them_gets_a_plain_queue_pair(void **state) {
    (void)state;
    kernel.attributes.device_cap_flags_ex = UINT64_C(1) << 40;
    renew_peer();
    let_fail("rdma_create_qp", EOPNOTSUPP);
    kernel.failures = 1;
    request = kernel_request(NULL);
    assert_int_equal(kernel.queue_pairs, 2);
    assert_int_equal(kernel.qp_attributes[1].comp_mask, IBV_QP_INIT_ATTR_PD);
    assert_int_equal(kernel.qp_attributes[1].send_ops_flags, 0);
}

static void method_is_told_in_the_log(void **state) {
    (void)state;
    struct ibv_qp_ex qp = {.wr_atomic_write = native_atomic_write};
    conn = kernel_connection(NULL);
    assert_true(logged("flush is a read after write", "atomic write is a fenced write", NULL));
    assert_ok(rpma_conn_delete(&conn));
    kernel.attributes.device_cap_flags_ex = UINT64_C(1) << 40;
    kernel.qp_ex = &qp;
    renew_peer();
    conn = kernel_connection(NULL);
    assert_true(logged("flush is a read after write", "atomic write is native", NULL));
}

/* ---- events ---- */

/* Verbs has no regions of one queue pair, and its memory windows need work requests of their own. */
static void no_memory_for_one_connection(void **state) {
    (void)state;
    struct rpma_mr_local *mr = anything();
    conn = kernel_connection(NULL);
    assert_code(rpma_conn_mr_reg(conn, anything(), 8, RPMA_MR_USAGE_WRITE_DST, &mr), RPMA_E_NOSUPP);
    request = kernel_request(NULL);
    assert_code(rpma_conn_req_mr_reg(request, anything(), 8, RPMA_MR_USAGE_WRITE_DST, &mr), RPMA_E_NOSUPP);
    assert_ptr_equal(mr, anything());
}

static void each_event_has_its_meaning(void **state) {
    (void)state;
    static const struct {
        enum rdma_cm_event_type type;
        enum rpma_conn_event meaning;
    } events[] = {
        {RDMA_CM_EVENT_ESTABLISHED, RPMA_CONN_ESTABLISHED}, {RDMA_CM_EVENT_CONNECT_ERROR, RPMA_CONN_LOST},
        {RDMA_CM_EVENT_DEVICE_REMOVAL, RPMA_CONN_LOST},     {RDMA_CM_EVENT_DISCONNECTED, RPMA_CONN_CLOSED},
        {RDMA_CM_EVENT_TIMEWAIT_EXIT, RPMA_CONN_CLOSED},    {RDMA_CM_EVENT_REJECTED, RPMA_CONN_REJECTED},
        {RDMA_CM_EVENT_UNREACHABLE, RPMA_CONN_UNREACHABLE},
    };
    conn = kernel_connection(NULL);
    for (size_t i = 0; i < COUNT(events); ++i) {
        enum rpma_conn_event got = RPMA_CONN_UNDEFINED;
        forget_calls();
        gives(events[i].type);
        assert_ok(rpma_conn_next_event(conn, &got));
        assert_int_equal(got, events[i].meaning);
        assert_int_equal(called("rdma_ack_cm_event"), 1);
    }
}

static void unexpected_event_is_unknown(void **state) {
    (void)state;
    static const enum rdma_cm_event_type types[] = {RDMA_CM_EVENT_ADDR_CHANGE, RDMA_CM_EVENT_CONNECT_REQUEST,
                                                    RDMA_CM_EVENT_CONNECT_RESPONSE,
                                                    RDMA_CM_EVENT_ADDR_RESOLVED};
    conn = kernel_connection(NULL);
    for (size_t i = 0; i < COUNT(types); ++i) {
        enum rpma_conn_event got = RPMA_CONN_UNDEFINED;
        forget_calls();
        gives(types[i]);
        assert_code(rpma_conn_next_event(conn, &got), RPMA_E_UNKNOWN);
        assert_int_equal(got, RPMA_CONN_UNDEFINED);
        assert_int_equal(called("rdma_ack_cm_event"), 1);
        assert_true(logged(rdma_event_str(types[i]), "not an event of a connection", NULL));
    }
}

static void event_that_cannot_be_fetched_or_acknowledged(void **state) {
    (void)state;
    enum rpma_conn_event got = RPMA_CONN_UNDEFINED;
    conn = kernel_connection(NULL);
    assert_code(rpma_conn_next_event(conn, &got), RPMA_E_NO_EVENT);
    let_fail("rdma_get_cm_event", ENODATA);
    assert_code(rpma_conn_next_event(conn, &got), RPMA_E_NO_EVENT);
    let_fail("rdma_get_cm_event", EIO);
    assert_code(rpma_conn_next_event(conn, &got), RPMA_E_PROVIDER);
    let_fail("rdma_ack_cm_event", EIO);
    gives(RDMA_CM_EVENT_DISCONNECTED);
    assert_code(rpma_conn_next_event(conn, &got), RPMA_E_PROVIDER);
    assert_int_equal(got, RPMA_CONN_UNDEFINED);
}

/* ---- the end ---- */

#define END_OF_A_CONNECTION                                                                   \
    "rdma_destroy_qp ibv_destroy_cq ibv_destroy_cq rdma_destroy_id ibv_destroy_comp_channel " \
    "rdma_destroy_event_channel ibv_dereg_mr "

/* The connection also has the memory that its first flush needs. */
static void connection_with_everything(void) {
    static const unsigned char descriptor[21] = {[8] = 64, [20] = RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY};
    struct rpma_mr_remote *remote = NULL;
    assert_ok(rpma_conn_cfg_set_rcq_size(cfg, 7));
    assert_ok(rpma_conn_cfg_set_compl_channel(cfg, true));
    conn = kernel_connection(cfg);
    assert_ok(rpma_mr_remote_from_descriptor(descriptor, sizeof(descriptor), &remote));
    assert_ok(rpma_flush(conn, remote, 0, 8, RPMA_FLUSH_TYPE_VISIBILITY, RPMA_F_COMPLETION_ALWAYS, NULL));
    assert_ok(rpma_mr_remote_delete(&remote));
    forget_calls();
}

static void connection_ends_in_order(void **state) {
    (void)state;
    connection_with_everything();
    assert_ok(rpma_conn_delete(&conn));
    assert_string_equal(kernel.calls, END_OF_A_CONNECTION);
}

static void every_step_of_the_end_can_fail(void **state) {
    (void)state;
    static const char *const steps[] = {"ibv_dereg_mr", "ibv_destroy_cq", "rdma_destroy_id",
                                        "ibv_destroy_comp_channel"};
    for (size_t i = 0; i < COUNT(steps); ++i) {
        kernel.cqs = kernel.registrations = 0;
        connection_with_everything();
        let_fail(steps[i], EBUSY);
        assert_code(rpma_conn_delete(&conn), RPMA_E_PROVIDER);
        assert_null(conn);
        assert_string_equal(kernel.calls, END_OF_A_CONNECTION);
        assert_true(logged(steps[i], "busy", NULL));
        let_fail(NULL, 0);
    }
}

static void disconnect_can_fail(void **state) {
    (void)state;
    conn = kernel_connection(NULL);
    let_fail("rdma_disconnect", EIO);
    assert_code(rpma_conn_disconnect(conn), RPMA_E_PROVIDER);
    assert_true(logged("rdma_disconnect", "Input/output error", NULL));
}

#define WITH_PEER(test) cmocka_unit_test_setup_teardown(test, make_kernel_peer, end_kernel)
#define WITH_ENDPOINT(test) cmocka_unit_test_setup_teardown(test, make_kernel_endpoint, end_kernel)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_PEER(connecting_is_the_last_step),
        WITH_ENDPOINT(accepting_is_the_last_step),
        WITH_ENDPOINT(nobody_has_an_identity),
        WITH_ENDPOINT(tls_is_refused),
        WITH_ENDPOINT(private_data_too_long_is_explained),
        WITH_PEER(connecting_can_fail),
        WITH_PEER(queue_pair_is_asked_for_the_devices_operations),
        WITH_PEER(driver_without_them_gets_a_plain_queue_pair),
        WITH_PEER(method_is_told_in_the_log),
        WITH_PEER(no_memory_for_one_connection),
        WITH_PEER(each_event_has_its_meaning),
        WITH_PEER(unexpected_event_is_unknown),
        WITH_PEER(event_that_cannot_be_fetched_or_acknowledged),
        WITH_PEER(connection_ends_in_order),
        WITH_PEER(every_step_of_the_end_can_fail),
        WITH_PEER(disconnect_can_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
