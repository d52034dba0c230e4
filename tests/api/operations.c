/* SPDX-License-Identifier: BSD-3-Clause */
/* operations: tests read, write, atomic write, send and receive. */
#include <arpa/inet.h>
#include <string.h>

#include "ends.h"

#define ALWAYS RPMA_F_COMPLETION_ALWAYS

static void transfer_arguments_are_checked(void **state) {
    (void)state;
    struct rpma_conn *const conn = anything();
    struct rpma_mr_local *const local = anything();
    struct rpma_mr_remote *const remote = anything();
    struct {
        struct rpma_conn *conn;
        struct rpma_mr_local *local;
        size_t local_offset;
        struct rpma_mr_remote *remote;
        size_t remote_offset;
        size_t len;
        int flags;
    } const wrong[] = {
        {NULL, local, 0, remote, 0, 8, ALWAYS}, {conn, local, 0, remote, 0, 8, 0},
        {conn, NULL, 0, remote, 0, 8, ALWAYS},  {conn, local, 0, NULL, 0, 8, ALWAYS},
        {conn, NULL, 0, remote, 0, 0, ALWAYS},  {conn, local, 0, NULL, 0, 0, ALWAYS},
        {conn, NULL, 1, NULL, 0, 0, ALWAYS},    {conn, NULL, 0, NULL, 1, 0, ALWAYS},
        {conn, NULL, 0, NULL, 0, 1, ALWAYS},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); ++i) {
        assert_code(rpma_read(wrong[i].conn, wrong[i].local, wrong[i].local_offset, wrong[i].remote,
                              wrong[i].remote_offset, wrong[i].len, wrong[i].flags, NULL),
                    RPMA_E_INVAL);
        assert_code(rpma_write(wrong[i].conn, wrong[i].remote, wrong[i].remote_offset, wrong[i].local,
                               wrong[i].local_offset, wrong[i].len, wrong[i].flags, NULL),
                    RPMA_E_INVAL);
        assert_code(
            rpma_write_with_imm(wrong[i].conn, wrong[i].remote, wrong[i].remote_offset, wrong[i].local,
                                wrong[i].local_offset, wrong[i].len, wrong[i].flags, 0, NULL),
            RPMA_E_INVAL);
    }
}

static void message_arguments_are_checked(void **state) {
    (void)state;
    struct rpma_conn *const conn = anything();
    struct rpma_mr_local *const local = anything();
    assert_code(rpma_send(NULL, local, 0, 8, ALWAYS, NULL), RPMA_E_INVAL);
    assert_code(rpma_send(conn, local, 0, 8, 0, NULL), RPMA_E_INVAL);
    assert_code(rpma_send(conn, NULL, 1, 0, ALWAYS, NULL), RPMA_E_INVAL);
    assert_code(rpma_send(conn, NULL, 0, 1, ALWAYS, NULL), RPMA_E_INVAL);
    assert_code(rpma_send_with_imm(NULL, local, 0, 8, ALWAYS, 0, NULL), RPMA_E_INVAL);
    assert_code(rpma_send_with_imm(conn, local, 0, 8, 0, 0, NULL), RPMA_E_INVAL);
    assert_code(rpma_send_with_imm(conn, NULL, 1, 0, ALWAYS, 0, NULL), RPMA_E_INVAL);
    assert_code(rpma_send_with_imm(conn, NULL, 0, 1, ALWAYS, 0, NULL), RPMA_E_INVAL);
    assert_code(rpma_recv(NULL, local, 0, 8, NULL), RPMA_E_INVAL);
    assert_code(rpma_recv(conn, NULL, 1, 0, NULL), RPMA_E_INVAL);
    assert_code(rpma_recv(conn, NULL, 0, 1, NULL), RPMA_E_INVAL);
}

static void atomic_write_arguments_are_checked(void **state) {
    (void)state;
    struct rpma_conn *const conn = anything();
    struct rpma_mr_remote *const remote = anything();
    const char source[8] = "1234567";
    assert_code(rpma_atomic_write(NULL, remote, 0, source, ALWAYS, NULL), RPMA_E_INVAL);
    assert_code(rpma_atomic_write(conn, NULL, 0, source, ALWAYS, NULL), RPMA_E_INVAL);
    assert_code(rpma_atomic_write(conn, remote, 0, NULL, ALWAYS, NULL), RPMA_E_INVAL);
    assert_code(rpma_atomic_write(conn, remote, 0, source, 0, NULL), RPMA_E_INVAL);
    for (size_t offset = 1; offset < RPMA_ATOMIC_WRITE_ALIGNMENT; ++offset) {
        assert_code(rpma_atomic_write(conn, remote, offset, source, ALWAYS, NULL), RPMA_E_INVAL);
    }
}

/* Waits for the next completion of the client, which must be this one. */
static void await_success(struct ends *ends, enum ibv_wc_opcode opcode, const void *op_context) {
    const struct ibv_wc wc = await_completion(ends->client);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    assert_int_equal(wc.opcode, opcode);
    assert_true(wc.wr_id == (uintptr_t)op_context);
}

static void write_then_read_back(void **state) {
    struct ends *ends = *state;
    struct rpma_mr_local *const near =
        reg(ends, ends->near, BUFFER_SIZE, RPMA_MR_USAGE_WRITE_SRC | RPMA_MR_USAGE_READ_DST);
    struct rpma_mr_remote *const far =
        remote_of(ends, reg(ends, ends->far, BUFFER_SIZE, RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_READ_SRC));
    strcpy(ends->near + 100, "remote memory");
    assert_ok(rpma_write(ends->client, far, 1000, near, 100, 14, ALWAYS, ends->near));
    await_success(ends, IBV_WC_RDMA_WRITE, ends->near);
    assert_ok(rpma_read(ends->client, near, 2000, far, 1000, 14, ALWAYS, ends->far));
    await_success(ends, IBV_WC_RDMA_READ, ends->far);
    assert_string_equal(ends->near + 2000, "remote memory");
    assert_string_equal(ends->far + 1000, "remote memory");
}

static void nothing_can_be_written_and_read(void **state) {
    struct ends *ends = *state;
    assert_ok(rpma_write(ends->client, NULL, 0, NULL, 0, 0, ALWAYS, ends));
    await_success(ends, IBV_WC_RDMA_WRITE, ends);
    assert_ok(rpma_read(ends->client, NULL, 0, NULL, 0, 0, ALWAYS, ends));
    await_success(ends, IBV_WC_RDMA_READ, ends);
}

static void completion_on_error_only_has_none_on_success(void **state) {
    struct ends *ends = *state;
    assert_ok(rpma_write(ends->client, NULL, 0, NULL, 0, 0, RPMA_F_COMPLETION_ON_ERROR, ends->near));
    assert_ok(rpma_write(ends->client, NULL, 0, NULL, 0, 0, ALWAYS, ends->far));
    await_success(ends, IBV_WC_RDMA_WRITE, ends->far);
}

/* The target finds an access out of bounds. This operation, or the next
 * one, completes with the status of that. */
static void out_of_bounds_is_a_status(void **state) {
    struct ends *ends = *state;
    struct rpma_mr_local *const near = reg(ends, ends->near, BUFFER_SIZE, RPMA_MR_USAGE_READ_DST);
    struct rpma_mr_remote *const far = remote_of(ends, reg(ends, ends->far, 64, RPMA_MR_USAGE_READ_SRC));
    assert_ok(rpma_read(ends->client, near, 0, far, 60, 8, ALWAYS, ends));
    const struct ibv_wc wc = await_completion(ends->client);
    assert_int_equal(wc.status, ends->device == KERNEL_IWARP ? IBV_WC_WR_FLUSH_ERR : IBV_WC_REM_ACCESS_ERR);
    assert_true(wc.wr_id == (uintptr_t)ends);
    if (ends->device == KERNEL_INFINIBAND) {
        /* An error does not end a connection on that device. */
        assert_ok(rpma_conn_disconnect(ends->client));
        await_event(ends->server, RPMA_CONN_CLOSED);
        assert_ok(rpma_conn_disconnect(ends->server));
    }
    await_event(ends->client, RPMA_CONN_CLOSED);
}

static void full_queue_refuses(void **state) {
    struct ends *ends = *state;
    struct rpma_mr_local *const near = reg(ends, ends->near, BUFFER_SIZE, RPMA_MR_USAGE_RECV);
    int result = 0;
    /* Receives stay posted without sends. */
    for (int i = 0; i < 1000 && result == 0; ++i) {
        result = rpma_recv(ends->client, near, 0, 8, NULL);
    }
    assert_int_equal(result, RPMA_E_PROVIDER);
    assert_true(logged("full", NULL));
}

static void atomic_write_stores_eight_bytes(void **state) {
    struct ends *ends = *state;
    struct rpma_mr_remote *const far = remote_of(
        ends,
        reg(ends, ends->far, BUFFER_SIZE, RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY));
    char source[8] = "ABCDEFG";
    assert_ok(rpma_atomic_write(ends->client, far, 8, source, RPMA_F_COMPLETION_ON_ERROR, NULL));
    /* The source was copied. */
    memset(source, 0, sizeof(source));
    assert_ok(rpma_flush(ends->client, far, 8, 8, RPMA_FLUSH_TYPE_VISIBILITY, ALWAYS, ends));
    assert_int_equal(await_completion(ends->client).status, IBV_WC_SUCCESS);
    assert_string_equal(ends->far + 8, "ABCDEFG");
    assert_int_equal(ends->far[16], 0);
}

static void messages_go_both_ways(void **state) {
    struct ends *ends = *state;
    struct rpma_mr_local *const near =
        reg(ends, ends->near, BUFFER_SIZE, RPMA_MR_USAGE_SEND | RPMA_MR_USAGE_RECV);
    struct rpma_mr_local *const far =
        reg(ends, ends->far, BUFFER_SIZE, RPMA_MR_USAGE_SEND | RPMA_MR_USAGE_RECV);
    strcpy(ends->near, "ping");
    strcpy(ends->far + 64, "pong!");
    assert_ok(rpma_recv(ends->server, far, 0, 64, ends->far));
    assert_ok(rpma_recv(ends->client, near, 64, 64, ends->near));
    assert_ok(rpma_send(ends->client, near, 0, 5, RPMA_F_COMPLETION_ON_ERROR, NULL));
    struct ibv_wc wc = await_completion(ends->server);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    assert_int_equal(wc.opcode, IBV_WC_RECV);
    assert_int_equal(wc.byte_len, 5);
    assert_true(wc.wr_id == (uintptr_t)ends->far);
    assert_string_equal(ends->far, "ping");
    assert_ok(rpma_send(ends->server, far, 64, 6, RPMA_F_COMPLETION_ON_ERROR, NULL));
    wc = await_completion(ends->client);
    assert_int_equal(wc.opcode, IBV_WC_RECV);
    assert_int_equal(wc.byte_len, 6);
    assert_string_equal(ends->near + 64, "pong!");
}

static void empty_message(void **state) {
    struct ends *ends = *state;
    if (ends->device == KERNEL_IWARP) {
        /* siw takes no receive without memory. */
        skip();
    }
    assert_ok(rpma_recv(ends->server, NULL, 0, 0, ends));
    assert_ok(rpma_send(ends->client, NULL, 0, 0, ALWAYS, ends));
    await_success(ends, IBV_WC_SEND, ends);
    const struct ibv_wc wc = await_completion(ends->server);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    assert_int_equal(wc.byte_len, 0);
}

static void expect_immediate(struct ends *ends, enum ibv_wc_opcode opcode, uint32_t length, uint32_t imm) {
    const struct ibv_wc wc = await_completion(ends->server);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    assert_int_equal(wc.opcode, opcode);
    assert_int_equal(wc.byte_len, length);
    assert_true((wc.wc_flags & IBV_WC_WITH_IMM) != 0);
    assert_int_equal(ntohl(wc.imm_data), imm);
    assert_true(wc.wr_id == (uintptr_t)ends->far);
}

static void immediate_data_arrives(void **state) {
    struct ends *ends = *state;
    if (ends->device == KERNEL_IWARP) {
        /* siw has no immediate data. */
        skip();
    }
    struct rpma_mr_local *const near =
        reg(ends, ends->near, BUFFER_SIZE, RPMA_MR_USAGE_SEND | RPMA_MR_USAGE_WRITE_SRC);
    struct rpma_mr_local *const far =
        reg(ends, ends->far, BUFFER_SIZE, RPMA_MR_USAGE_RECV | RPMA_MR_USAGE_WRITE_DST);
    struct rpma_mr_remote *const target = remote_of(ends, far);
    strcpy(ends->near, "written");
    strcpy(ends->near + 64, "sent");
    for (int i = 0; i < 3; ++i) {
        assert_ok(rpma_recv(ends->server, far, 128, 64, ends->far));
    }
    assert_ok(rpma_write_with_imm(ends->client, target, 1000, near, 0, 8, ALWAYS, 0x12345678, ends->near));
    expect_immediate(ends, IBV_WC_RECV_RDMA_WITH_IMM, 8, 0x12345678);
    assert_string_equal(ends->far + 1000, "written");
    assert_int_equal(ends->far[128], 0);
    await_success(ends, IBV_WC_RDMA_WRITE, ends->near);
    assert_ok(rpma_send_with_imm(ends->client, near, 64, 5, ALWAYS, 0xffffffff, ends->near));
    expect_immediate(ends, IBV_WC_RECV, 5, 0xffffffff);
    assert_string_equal(ends->far + 128, "sent");
    await_success(ends, IBV_WC_SEND, ends->near);
    /* The write is empty. */
    assert_ok(rpma_write_with_imm(ends->client, NULL, 0, NULL, 0, 0, RPMA_F_COMPLETION_ON_ERROR, 7, NULL));
    expect_immediate(ends, IBV_WC_RECV_RDMA_WITH_IMM, 0, 7);
}

#define WITH_CONNECTION(test) cmocka_unit_test_setup_teardown(test, make_connection, end_all)

/* When the library refuses with RPMA_E_INVAL, the log has the argument and the rule, under
 * the name of the function that was called. */
static void what_is_not_allowed_is_named(void **state) {
    struct ends *ends = *state;
    struct rpma_cq *cq = NULL;
    struct rpma_mr_local *const near = reg(ends, ends->near, BUFFER_SIZE, RPMA_MR_USAGE_WRITE_SRC);
    struct rpma_mr_remote *const far =
        remote_of(ends, reg(ends, ends->far, BUFFER_SIZE, RPMA_MR_USAGE_WRITE_DST));
    capture_log(RPMA_LOG_LEVEL_ERROR);
    assert_code(rpma_atomic_write(ends->client, far, 4, ends->near, ALWAYS, NULL), RPMA_E_INVAL);
    assert_true(logged("rpma_atomic_write", "dst_offset 4 is no multiple of 8", NULL));
    assert_code(rpma_write(ends->client, far, 0, near, 0, (size_t)5 << 30, ALWAYS, NULL), RPMA_E_INVAL);
    assert_true(logged("rpma_write", "5368709120 bytes", "at most 4294967295", NULL));
    assert_code(rpma_send(ends->client, NULL, 0, 1, ALWAYS, NULL), RPMA_E_INVAL);
    assert_true(logged("rpma_send:", "src is NULL", NULL));
    assert_code(rpma_read(ends->client, near, 0, NULL, 0, 1, ALWAYS, NULL), RPMA_E_INVAL);
    assert_true(logged("rpma_read:", "src or dst is NULL", NULL));
    assert_code(rpma_flush(ends->client, far, 0, 8, RPMA_FLUSH_TYPE_VISIBILITY, 0, NULL), RPMA_E_INVAL);
    assert_true(logged("rpma_flush", "flags is 0", NULL));
    /* The device checks a region's bounds, unless the connection asks the
     * library to. Here the flags are wrong. */
    assert_code(rpma_write(ends->client, far, BUFFER_SIZE, near, 0, 8, 0, NULL), RPMA_E_INVAL);
    assert_true(logged("rpma_write", "flags is 0", NULL));
    assert_code(rpma_read(ends->client, NULL, 0, NULL, 0, 0, 0, NULL), RPMA_E_INVAL);
    assert_true(logged("rpma_read", "flags is 0", NULL));
    assert_code(rpma_send(ends->client, NULL, 0, 0, 0, NULL), RPMA_E_INVAL);
    assert_true(logged("rpma_send", "flags is 0", NULL));
    assert_code(rpma_atomic_write(ends->client, far, 8, ends->near, 0, NULL), RPMA_E_INVAL);
    assert_true(logged("rpma_atomic_write", "flags is 0", NULL));
    assert_code(rpma_recv(NULL, near, 0, 8, NULL), RPMA_E_INVAL);
    assert_true(logged("rpma_recv", "is NULL", NULL));
    assert_code(rpma_conn_get_cq(NULL, &cq), RPMA_E_INVAL);
    assert_true(logged("rpma_conn_get_cq", "conn or cq_ptr is NULL", NULL));
    assert_code(rpma_conn_cfg_set_sq_size(NULL, 1), RPMA_E_INVAL);
    assert_true(logged("rpma_conn_cfg_set_sq_size", "cfg is NULL", NULL));
    assert_code(rpma_peer_delete(NULL), RPMA_E_INVAL);
    assert_true(logged("rpma_peer_delete", "is NULL", NULL));
    assert_int_equal(logged_lines(), 13);
}

/* A post that comes too early also logs the reason. */
static void a_post_before_the_connection_is_explained(void **state) {
    struct ends *ends = *state;
    struct rpma_mr_local *const near = reg(ends, ends->near, BUFFER_SIZE, RPMA_MR_USAGE_SEND);
    if (ends->device != SOFT_DEVICE) {
        skip();
    }
    ask(ends, NULL, NULL);
    capture_log(RPMA_LOG_LEVEL_ERROR);
    assert_code(rpma_send(ends->client, near, 0, 8, ALWAYS, NULL), RPMA_E_PROVIDER);
    assert_true(logged("cannot be posted", "established", NULL));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(transfer_arguments_are_checked),
        cmocka_unit_test(message_arguments_are_checked),
        cmocka_unit_test(atomic_write_arguments_are_checked),
        WITH_CONNECTION(what_is_not_allowed_is_named),
        cmocka_unit_test_setup_teardown(a_post_before_the_connection_is_explained, make_endpoint, end_all),
        WITH_CONNECTION(write_then_read_back),
        WITH_CONNECTION(nothing_can_be_written_and_read),
        WITH_CONNECTION(completion_on_error_only_has_none_on_success),
        WITH_CONNECTION(out_of_bounds_is_a_status),
        WITH_CONNECTION(full_queue_refuses),
        WITH_CONNECTION(atomic_write_stores_eight_bytes),
        WITH_CONNECTION(messages_go_both_ways),
        WITH_CONNECTION(empty_message),
        WITH_CONNECTION(immediate_data_arrives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
