/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests operations and completions on a device of the kernel: the work requests that the
 * device gets, and the results of its answers. */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "kernel_ends.h"

#define ALWAYS RPMA_F_COMPLETION_ALWAYS
#define LKEY 100
#define RKEY 0x24232221
#define REMOTE_ADDRESS UINT64_C(0x10000)

static char memory[64];
static struct rpma_mr_local *local;
static struct rpma_mr_remote *remote;
static int context;

/* This is the device's own queue pair for native operations. */
static struct ibv_qp_ex native;
static struct {
    int started;
    int completed;
    uint32_t rkey;
    uint64_t address;
    char bytes[8];
} natively;

static void start(struct ibv_qp_ex *qp) {
    assert_ptr_equal(qp, &native);
    ++natively.started;
}

static int complete(struct ibv_qp_ex *qp) {
    assert_ptr_equal(qp, &native);
    ++natively.completed;
    return kernel.number;
}

static void write_atomically(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t address, const void *source) {
    assert_ptr_equal(qp, &native);
    natively.rkey = rkey;
    natively.address = address;
    memcpy(natively.bytes, source, sizeof(natively.bytes));
}

static int make_connection(void **state) {
    /* The region has 64 bytes at REMOTE_ADDRESS, for every use by a peer but
     * persistent flush. It takes native operations. */
    const unsigned char descriptor[21] = {0, 0, 1, 0, 0, 0,    0,    0,    64,   0,   0,
                                          0, 0, 0, 0, 0, 0x21, 0x22, 0x23, 0x24, 0xd7};
    make_kernel_peer(state);
    conn = kernel_connection(cfg);
    assert_ok(rpma_mr_reg(peer, memory, sizeof(memory), RPMA_MR_USAGE_SEND | RPMA_MR_USAGE_RECV, &local));
    assert_ok(rpma_mr_remote_from_descriptor(descriptor, sizeof(descriptor), &remote));
    return 0;
}

static int end_connection(void **state) {
    let_fail(NULL, 0);
    const int failures = (rpma_mr_dereg(&local) != 0) + (rpma_mr_remote_delete(&remote) != 0);
    return failures + end_kernel(state);
}

/* Asserts that the request that was posted last has these values, and one element or none. */
static void posted(enum ibv_wr_opcode opcode, unsigned flags, uint64_t remote_address) {
    assert_int_equal(kernel.sent.opcode, opcode);
    assert_int_equal(kernel.sent.send_flags, flags);
    assert_true(kernel.sent.wr_id == (uintptr_t)&context);
    assert_null(kernel.sent.next);
    assert_int_equal(kernel.sent.wr.rdma.remote_addr, remote_address);
    assert_int_equal(kernel.sent.wr.rdma.rkey, RKEY);
}

static void has_element(const struct ibv_sge *element, size_t offset, uint32_t length) {
    assert_true(element->addr == (uintptr_t)memory + offset);
    assert_int_equal(element->length, length);
    assert_int_equal(element->lkey, LKEY);
}

static void reads_and_writes(void **state) {
    (void)state;
    assert_ok(rpma_read(conn, local, 1, remote, 2, 3, ALWAYS, &context));
    posted(IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, REMOTE_ADDRESS + 2);
    has_element(&kernel.sent_element, 1, 3);
    assert_ok(rpma_write(conn, remote, 4, local, 5, 6, RPMA_F_COMPLETION_ON_ERROR, &context));
    posted(IBV_WR_RDMA_WRITE, 0, REMOTE_ADDRESS + 4);
    has_element(&kernel.sent_element, 5, 6);
    assert_ok(rpma_write_with_imm(conn, remote, 0, local, 0, 64, ALWAYS, 0x11223344, &context));
    posted(IBV_WR_RDMA_WRITE_WITH_IMM, IBV_SEND_SIGNALED, REMOTE_ADDRESS);
    assert_int_equal(ntohl(kernel.sent.imm_data), 0x11223344);
    /* A length has 32 bits, and earlier versions cut the other bits off. */
    assert_code(rpma_write(conn, remote, 0, local, 0, (UINT64_C(1) << 32) + 7, ALWAYS, &context),
                RPMA_E_INVAL);
    assert_ok(rpma_write(conn, remote, 0, local, 0, UINT32_MAX, ALWAYS, &context));
    assert_int_equal(kernel.sent_element.length, UINT32_MAX);
}

static void nothing_is_nowhere(void **state) {
    (void)state;
    assert_ok(rpma_write(conn, NULL, 0, NULL, 0, 0, ALWAYS, &context));
    assert_int_equal(kernel.sent.num_sge, 0);
    assert_int_equal(kernel.sent.wr.rdma.remote_addr, 0);
    assert_int_equal(kernel.sent.wr.rdma.rkey, 0);
    assert_ok(rpma_send(conn, NULL, 0, 0, ALWAYS, &context));
    assert_int_equal(kernel.sent.num_sge, 0);
    assert_ok(rpma_recv(conn, NULL, 0, 0, &context));
    assert_int_equal(kernel.received.num_sge, 0);
}

static void messages(void **state) {
    (void)state;
    assert_ok(rpma_send(conn, local, 1, 2, ALWAYS, &context));
    assert_int_equal(kernel.sent.opcode, IBV_WR_SEND);
    assert_int_equal(kernel.sent.send_flags, IBV_SEND_SIGNALED);
    has_element(&kernel.sent_element, 1, 2);
    assert_ok(rpma_send_with_imm(conn, local, 3, 4, RPMA_F_COMPLETION_ON_ERROR, 0xaabbccdd, &context));
    assert_int_equal(kernel.sent.opcode, IBV_WR_SEND_WITH_IMM);
    assert_int_equal(kernel.sent.send_flags, 0);
    assert_int_equal(ntohl(kernel.sent.imm_data), 0xaabbccdd);
    has_element(&kernel.sent_element, 3, 4);
    assert_ok(rpma_recv(conn, local, 5, 6, &context));
    assert_true(kernel.received.wr_id == (uintptr_t)&context);
    has_element(&kernel.received_element, 5, 6);
}

static void shared_receive(void **state) {
    (void)state;
    assert_ok(rpma_srq_new(peer, NULL, &srq));
    assert_ok(rpma_srq_recv(srq, local, 7, 8, &context));
    assert_true(kernel.received.wr_id == (uintptr_t)&context);
    has_element(&kernel.received_element, 7, 8);
    assert_ok(rpma_srq_recv(srq, NULL, 0, 0, &context));
    assert_int_equal(kernel.received.num_sge, 0);
    let_fail("ibv_post_srq_recv", ENOMEM);
    assert_code(rpma_srq_recv(srq, local, 0, 8, &context), RPMA_E_PROVIDER);
}

/* Bit 1 asks for a completion, and the other bits have no meaning. */
static void only_one_bit_of_the_flags_counts(void **state) {
    (void)state;
    static const struct {
        int flags;
        unsigned expected;
    } cases[] = {{1, 0}, {2, IBV_SEND_SIGNALED}, {3, IBV_SEND_SIGNALED},
                 {4, 0}, {0x7ffffffd, 0},        {-1, IBV_SEND_SIGNALED}};
    for (size_t i = 0; i < COUNT(cases); ++i) {
        assert_ok(rpma_write(conn, remote, 0, local, 0, 8, cases[i].flags, &context));
        posted(IBV_WR_RDMA_WRITE, cases[i].expected, REMOTE_ADDRESS);
    }
}

static void refused_post_is_a_provider_error(void **state) {
    (void)state;
    let_fail("ibv_post_send", ENOMEM);
    assert_code(rpma_write(conn, remote, 0, local, 0, 8, ALWAYS, NULL), RPMA_E_PROVIDER);
    assert_true(logged("Cannot allocate memory", "rpma_conn_cfg_set_sq_size", NULL));
    assert_code(rpma_flush(conn, remote, 0, 8, RPMA_FLUSH_TYPE_VISIBILITY, ALWAYS, NULL), RPMA_E_PROVIDER);
    assert_code(rpma_atomic_write(conn, remote, 0, memory, ALWAYS, NULL), RPMA_E_PROVIDER);
    let_fail("ibv_post_recv", EINVAL);
    assert_code(rpma_recv(conn, local, 0, 8, NULL), RPMA_E_PROVIDER);
    assert_true(logged("Invalid argument", NULL));
}

/* ---- flush and atomic write ---- */

static void flush_is_a_read_of_eight_bytes(void **state) {
    (void)state;
    assert_ok(rpma_flush(conn, remote, 16, 32, RPMA_FLUSH_TYPE_VISIBILITY, ALWAYS, &context));
    posted(IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, REMOTE_ADDRESS + 16);
    assert_int_equal(kernel.sent_element.length, 8);
    /* The read stays inside the region. */
    assert_ok(
        rpma_flush(conn, remote, 60, 4, RPMA_FLUSH_TYPE_VISIBILITY, RPMA_F_COMPLETION_ON_ERROR, &context));
    posted(IBV_WR_RDMA_READ, 0, REMOTE_ADDRESS + 56);
}

/* The first flush makes the memory for its read. */
static void first_flush_can_fail(void **state) {
    (void)state;
    forget_calls();
    let_fail("ibv_reg_mr", EIO);
    assert_code(rpma_flush(conn, remote, 0, 8, RPMA_FLUSH_TYPE_VISIBILITY, ALWAYS, NULL), RPMA_E_PROVIDER);
    assert_true(logged("ibv_reg_mr", "Input/output error", NULL));
    let_fail(NULL, 0);
    for (int i = 0; i < 3; ++i) {
        assert_ok(rpma_flush(conn, remote, 0, 8, RPMA_FLUSH_TYPE_VISIBILITY, ALWAYS, NULL));
    }
    assert_int_equal(called("ibv_reg_mr"), 2);
}

static void atomic_write_is_inline_and_fenced(void **state) {
    (void)state;
    char source[8] = "ABCDEFG";
    assert_ok(rpma_atomic_write(conn, remote, 8, source, ALWAYS, &context));
    posted(IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED | IBV_SEND_INLINE | IBV_SEND_FENCE, REMOTE_ADDRESS + 8);
    assert_int_equal(kernel.sent_element.length, 8);
    assert_true(kernel.sent_element.addr == (uintptr_t)source);
}

/* The native atomic write waits for an earlier flush that is a read, as the write in its place does. */
static void atomic_write_is_native_where_device_and_driver_have_it(void **state) {
    (void)state;
    assert_ok(rpma_conn_delete(&conn));
    assert_ok(rpma_mr_dereg(&local));
    native =
        (struct ibv_qp_ex){.wr_start = start, .wr_complete = complete, .wr_atomic_write = write_atomically};
    memset(&natively, 0, sizeof(natively));
    kernel.attributes.device_cap_flags_ex = UINT64_C(1) << 40;
    kernel.qp_ex = &native;
    renew_peer();
    conn = kernel_connection(NULL);
    forget_calls();
    assert_ok(rpma_atomic_write(conn, remote, 8, "ABCDEFG", ALWAYS, &context));
    assert_int_equal(called("ibv_post_send"), 0);
    assert_int_equal(natively.started, 1);
    assert_int_equal(natively.completed, 1);
    assert_int_equal(natively.rkey, RKEY);
    assert_int_equal(natively.address, REMOTE_ADDRESS + 8);
    assert_memory_equal(natively.bytes, "ABCDEFG", 8);
    assert_true(native.wr_id == (uintptr_t)&context);
    assert_int_equal(native.wr_flags, IBV_SEND_SIGNALED | IBV_SEND_FENCE);
    kernel.number = EINVAL;
    assert_code(rpma_atomic_write(conn, remote, 8, "ABCDEFG", ALWAYS, &context), RPMA_E_PROVIDER);
    kernel.number = 0;
}

/* ---- completions ---- */

static void answers_of_a_completion_queue(void **state) {
    (void)state;
    struct rpma_cq *cq = NULL;
    struct ibv_wc wc[2];
    int got = 7;
    assert_ok(rpma_conn_get_cq(conn, &cq));
    kernel.polled = 0;
    assert_code(rpma_cq_get_wc(cq, 2, wc, &got), RPMA_E_NO_COMPLETION);
    kernel.polled = -1;
    assert_code(rpma_cq_get_wc(cq, 2, wc, &got), RPMA_E_PROVIDER);
    kernel.polled = 3;
    assert_code(rpma_cq_get_wc(cq, 2, wc, &got), RPMA_E_UNKNOWN);
    assert_int_equal(got, 7);
    kernel.polled = 2;
    assert_ok(rpma_cq_get_wc(cq, 2, wc, &got));
    assert_int_equal(got, 2);
    kernel.polled = 1;
    assert_ok(rpma_cq_get_wc(cq, 1, wc, NULL));
}

static void waiting_acknowledges_and_arms(void **state) {
    (void)state;
    struct rpma_cq *cq = NULL;
    assert_ok(rpma_conn_get_cq(conn, &cq));
    assert_code(rpma_cq_wait(cq), RPMA_E_NO_COMPLETION);
    kernel.cq_event = kernel.qp_attributes[0].send_cq;
    forget_calls();
    assert_ok(rpma_cq_wait(cq));
    assert_int_equal(called("ibv_req_notify_cq"), 1);
    let_fail("ibv_req_notify_cq", EINVAL);
    assert_code(rpma_cq_wait(cq), RPMA_E_PROVIDER);
    assert_true(logged("ibv_req_notify_cq", "Invalid argument", NULL));
    /* Each event is acknowledged at the latest before the queue is destroyed, which waits for that. */
    let_fail("ibv_destroy_cq", EBUSY);
    assert_code(rpma_conn_delete(&conn), RPMA_E_PROVIDER);
    assert_int_equal(kernel.acknowledged_events, 2);
}

static void waiting_on_a_shared_channel(void **state) {
    (void)state;
    struct rpma_cq *cq = NULL;
    struct rpma_cq *rcq = NULL;
    struct rpma_cq *ready = anything();
    struct ibv_cq stranger = {0};
    bool is_rcq = false;
    assert_ok(rpma_conn_delete(&conn));
    assert_ok(rpma_conn_cfg_set_rcq_size(cfg, 7));
    assert_ok(rpma_conn_cfg_set_compl_channel(cfg, true));
    conn = kernel_connection(cfg);
    assert_ok(rpma_conn_get_cq(conn, &cq));
    assert_ok(rpma_conn_get_rcq(conn, &rcq));
    const struct ibv_qp_init_attr_ex *const queues = &kernel.qp_attributes[1];

    assert_code(rpma_conn_wait(conn, 0, &ready, &is_rcq), RPMA_E_NO_COMPLETION);
    kernel.cq_event = &stranger;
    assert_code(rpma_conn_wait(conn, 0, &ready, &is_rcq), RPMA_E_UNKNOWN);
    assert_int_equal(kernel.acknowledged_events, 0);
    assert_ptr_equal(ready, anything());

    kernel.cq_event = queues->recv_cq;
    assert_ok(rpma_conn_wait(conn, 0, &ready, &is_rcq));
    assert_ptr_equal(ready, rcq);
    assert_true(is_rcq);
    kernel.cq_event = queues->send_cq;
    assert_ok(rpma_conn_wait(conn, 0, &ready, &is_rcq));
    assert_ptr_equal(ready, cq);
    assert_false(is_rcq);

    let_fail("ibv_req_notify_cq", EINVAL);
    assert_code(rpma_conn_wait(conn, 0, &ready, NULL), RPMA_E_PROVIDER);
    assert_null(ready);
    assert_ok(rpma_conn_delete(&conn));
    assert_int_equal(kernel.acknowledged_events, 3);
}

#define WITH_CONNECTION(test) cmocka_unit_test_setup_teardown(test, make_connection, end_connection)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_CONNECTION(reads_and_writes),
        WITH_CONNECTION(nothing_is_nowhere),
        WITH_CONNECTION(messages),
        WITH_CONNECTION(shared_receive),
        WITH_CONNECTION(only_one_bit_of_the_flags_counts),
        WITH_CONNECTION(refused_post_is_a_provider_error),
        WITH_CONNECTION(flush_is_a_read_of_eight_bytes),
        WITH_CONNECTION(first_flush_can_fail),
        WITH_CONNECTION(atomic_write_is_inline_and_fenced),
        WITH_CONNECTION(atomic_write_is_native_where_device_and_driver_have_it),
        WITH_CONNECTION(answers_of_a_completion_queue),
        WITH_CONNECTION(waiting_acknowledges_and_arms),
        WITH_CONNECTION(waiting_on_a_shared_channel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
