/* SPDX-License-Identifier: BSD-3-Clause */
/* post: tests several operations at once, and the check of offsets and lengths. */
#include <arpa/inet.h>
#include <string.h>

#include "ends.h"

#define ALWAYS RPMA_F_COMPLETION_ALWAYS
#define ON_ERROR RPMA_F_COMPLETION_ON_ERROR

static void arguments_are_checked(void **state) {
    (void)state;
    const struct rpma_op op = {.type = RPMA_OP_SEND, .flags = ALWAYS};
    size_t posted = 77;
    assert_code(rpma_post(NULL, &op, 1, &posted), RPMA_E_INVAL);
    assert_code(rpma_post(anything(), NULL, 1, &posted), RPMA_E_INVAL);
    assert_code(rpma_post(anything(), &op, 0, &posted), RPMA_E_INVAL);
    assert_int_equal(posted, 0);
    const struct rpma_op zeroed = {0};
    struct rpma_op later = op;
    later.reserved[1] = 1;
    assert_code(rpma_post(anything(), &zeroed, 1, NULL), RPMA_E_INVAL);
    assert_code(rpma_post(anything(), &later, 1, NULL), RPMA_E_INVAL);
}

static struct rpma_mr_local *near;
static struct rpma_mr_remote *far;
static uint64_t far_address;
static uint32_t far_key;

static int connect_with(struct ends *ends, uint32_t sq_size, bool bounds_check) {
    assert_ok(rpma_conn_cfg_set_sq_size(ends->cfg, sq_size));
    assert_ok(rpma_conn_cfg_set_cq_size(ends->cfg, 2 * sq_size));
    assert_ok(rpma_conn_cfg_set_rq_size(ends->cfg, 4));
    assert_ok(rpma_conn_cfg_set_bounds_check(ends->cfg, bounds_check));
    ask(ends, ends->cfg, NULL);
    answer(ends, ends->cfg, NULL);
    await_established(ends);
    const int everything = RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_READ_DST | RPMA_MR_USAGE_WRITE_SRC |
                           RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_SEND | RPMA_MR_USAGE_RECV |
                           RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY;
    near = reg(ends, ends->near, BUFFER_SIZE, everything);
    const struct rpma_mr_local *const there = reg(ends, ends->far, BUFFER_SIZE, everything);
    far = remote_of(ends, there);
    far_address = (uintptr_t)ends->far;
    assert_ok(rpma_mr_get_key(there, &far_key));
    return 0;
}

static int connect_many(void **state) {
    make_endpoint(state);
    return connect_with(*state, 100, false);
}

static int connect_checked(void **state) {
    make_endpoint(state);
    return connect_with(*state, 10, true);
}

static void expect(struct rpma_conn *conn, uint64_t wr_id) {
    const struct ibv_wc wc = await_completion(conn);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    assert_int_equal(wc.wr_id, wr_id);
}

static void one_of_each(void **state) {
    struct ends *ends = *state;
    if (ends->device == KERNEL_IWARP) {
        /* siw has no immediate data, and may complete an operation before an earlier read. */
        skip();
    }
    const struct rpma_op ops[] = {
        {.type = RPMA_OP_WRITE,
         .flags = ALWAYS,
         .op_context = (void *)1,
         .local = near,
         .remote = far,
         .len = 8},
        {.type = RPMA_OP_ATOMIC_WRITE,
         .flags = ALWAYS,
         .op_context = (void *)2,
         .remote = far,
         .remote_offset = 8,
         .word = "ABCDEFG"},
        {.type = RPMA_OP_FLUSH,
         .flags = ALWAYS,
         .op_context = (void *)3,
         .remote = far,
         .len = 16,
         .flush_type = RPMA_FLUSH_TYPE_VISIBILITY},
        {.type = RPMA_OP_SEND, .flags = ALWAYS, .op_context = (void *)4, .local = near, .len = 4},
        {.type = RPMA_OP_SEND_WITH_IMM, .flags = ALWAYS, .op_context = (void *)5, .imm = 0x12345678},
        {.type = RPMA_OP_WRITE_WITH_IMM,
         .flags = ALWAYS,
         .op_context = (void *)6,
         .local = near,
         .remote = far,
         .remote_offset = 16,
         .len = 8,
         .imm = 9},
        {.type = RPMA_OP_READ,
         .flags = ALWAYS,
         .op_context = (void *)7,
         .local = near,
         .local_offset = 1024,
         .remote = far,
         .len = 24},
    };
    size_t posted = 0;
    memcpy(ends->near, "12345678", 8);
    for (uint64_t i = 0; i < 3; ++i) {
        assert_ok(rpma_recv(ends->server, near, 2048, 64, (void *)(uintptr_t)i));
    }
    assert_ok(rpma_post(ends->client, ops, 7, &posted));
    assert_int_equal(posted, 7);
    for (uint64_t i = 1; i <= 7; ++i) {
        expect(ends->client, i);
    }
    assert_memory_equal(ends->near + 1024,
                        "12345678ABCDEFG\0"
                        "12345678",
                        24);
    assert_int_equal(await_completion(ends->server).byte_len, 4);
    assert_int_equal(ntohl(await_completion(ends->server).imm_data), 0x12345678);
    const struct ibv_wc wc = await_completion(ends->server);
    assert_int_equal(ntohl(wc.imm_data), 9);
    assert_int_equal(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
}

/* There are more operations than one doorbell takes. */
static void many_at_once(void **state) {
    struct ends *ends = *state;
    struct rpma_op ops[100];
    size_t posted = 0;
    for (size_t i = 0; i < 100; ++i) {
        ends->near[i] = (char)i;
        ops[i] = (struct rpma_op){.type = RPMA_OP_WRITE,
                                  .flags = i == 99 ? ALWAYS : ON_ERROR,
                                  .op_context = (void *)i,
                                  .local = near,
                                  .local_offset = i,
                                  .remote = far,
                                  .remote_offset = 99 - i,
                                  .len = 1};
    }
    assert_ok(rpma_post(ends->client, ops, 100, &posted));
    assert_int_equal(posted, 100);
    expect(ends->client, 99);
    assert_ok(rpma_read(ends->client, near, 1024, far, 0, 100, ALWAYS, NULL));
    expect(ends->client, 0);
    for (size_t i = 0; i < 100; ++i) {
        assert_int_equal(ends->near[1024 + i], (char)(99 - i));
    }
}

/* The operations before a refused one are posted, and those after it are ignored. */
static void one_that_is_refused(void **state) {
    struct ends *ends = *state;
    const struct rpma_op good = {.type = RPMA_OP_WRITE, .flags = ALWAYS, .op_context = (void *)1};
    struct rpma_op ops[3] = {good, good, good};
    size_t posted = 77;
    ops[1].type = 77;
    assert_code(rpma_post(ends->client, ops, 3, &posted), RPMA_E_INVAL);
    assert_int_equal(posted, 1);
    expect(ends->client, 1);
    ops[1] = (struct rpma_op){.type = RPMA_OP_FLUSH,
                              .flags = ALWAYS,
                              .remote = far,
                              .len = 8,
                              .flush_type = RPMA_FLUSH_TYPE_PERSISTENT};
    capture_log(RPMA_LOG_LEVEL_ERROR);
    assert_code(rpma_post(ends->client, ops, 3, NULL), RPMA_E_NOSUPP);
    expect(ends->client, 1);
    ops[1].flush_type = 77;
    assert_code(rpma_post(ends->client, ops, 3, NULL), RPMA_E_INVAL);
    expect(ends->client, 1);
    ops[0].flags = 0;
    assert_code(rpma_post(ends->client, ops, 3, &posted), RPMA_E_INVAL);
    assert_int_equal(posted, 0);
}

static void more_than_the_queue_takes(void **state) {
    struct ends *ends = *state;
    if (ends->device != SOFT_DEVICE) {
        /* The kernel's devices take requests out of the queue while the test fills it. */
        skip();
    }
    static struct rpma_op ops[400];
    size_t posted = 0;
    for (size_t i = 0; i < 400; ++i) {
        ops[i] = (struct rpma_op){.type = RPMA_OP_WRITE, .flags = ALWAYS, .op_context = (void *)i};
    }
    capture_log(RPMA_LOG_LEVEL_ERROR);
    assert_code(rpma_post(ends->client, ops, 400, &posted), RPMA_E_AGAIN);
    assert_int_equal(logged_lines(), 0);
    assert_in_range(posted, 100, 399);
    for (size_t i = 0; i < posted; ++i) {
        expect(ends->client, i);
    }
}

static void offsets_and_lengths_are_checked(void **state) {
    struct ends *ends = *state;
    const size_t wrong[][2] = {{BUFFER_SIZE, 1},     {BUFFER_SIZE - 7, 8}, {0, BUFFER_SIZE + 1},
                               {BUFFER_SIZE + 1, 0}, {SIZE_MAX, 8},        {8, SIZE_MAX},
                               {0, (size_t)1 << 32}, {SIZE_MAX - 3, 4}};
    const char word[8] = "1234567";
    struct rpma_conn *const conn = ends->client;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); ++i) {
        const size_t offset = wrong[i][0];
        const size_t len = wrong[i][1];
        assert_code(rpma_read(conn, near, offset, far, 0, len, ALWAYS, NULL), RPMA_E_INVAL);
        assert_code(rpma_read(conn, near, 0, far, offset, len, ALWAYS, NULL), RPMA_E_INVAL);
        assert_code(rpma_write(conn, far, offset, near, 0, len, ALWAYS, NULL), RPMA_E_INVAL);
        assert_code(rpma_write(conn, far, 0, near, offset, len, ALWAYS, NULL), RPMA_E_INVAL);
        assert_code(rpma_write_with_imm(conn, far, 0, near, offset, len, ALWAYS, 1, NULL), RPMA_E_INVAL);
        assert_code(rpma_send(conn, near, offset, len, ALWAYS, NULL), RPMA_E_INVAL);
        assert_code(rpma_send_with_imm(conn, near, offset, len, ALWAYS, 1, NULL), RPMA_E_INVAL);
        assert_code(rpma_recv(conn, near, offset, len, NULL), RPMA_E_INVAL);
        assert_code(rpma_flush(conn, far, offset, len, RPMA_FLUSH_TYPE_VISIBILITY, ALWAYS, NULL),
                    RPMA_E_INVAL);
        const struct rpma_op op = {.type = RPMA_OP_WRITE,
                                   .flags = ALWAYS,
                                   .local = near,
                                   .local_offset = offset,
                                   .remote = far,
                                   .len = len};
        assert_code(rpma_post(conn, &op, 1, NULL), RPMA_E_INVAL);
    }
    assert_code(rpma_atomic_write(conn, far, BUFFER_SIZE, word, ALWAYS, NULL), RPMA_E_INVAL);
    assert_ok(rpma_conn_req_new(ends->peer, ADDRESS, ends->port, ends->cfg, &ends->request));
    assert_code(rpma_conn_req_recv(ends->request, near, BUFFER_SIZE, 1, NULL), RPMA_E_INVAL);
    /* A range up to the last byte, and an empty one at the end, are valid. */
    assert_ok(rpma_write(conn, far, BUFFER_SIZE - 8, near, BUFFER_SIZE - 8, 8, ALWAYS, (void *)1));
    assert_ok(rpma_write(conn, far, BUFFER_SIZE, near, BUFFER_SIZE, 0, ALWAYS, (void *)2));
    assert_ok(rpma_write(conn, far, 0, near, 0, BUFFER_SIZE, ALWAYS, (void *)3));
    assert_ok(rpma_atomic_write(conn, far, BUFFER_SIZE - 8, word, ALWAYS, (void *)4));
    assert_ok(rpma_flush(conn, far, 0, BUFFER_SIZE, RPMA_FLUSH_TYPE_VISIBILITY, ALWAYS, (void *)5));
    for (uint64_t i = 1; i <= 5; ++i) {
        expect(conn, i);
    }
}

/* 4 GiB and more are refused, with and without bounds checks, because the device's length has 32 bits. */
static void lengths_of_more_than_32_bits(void **state) {
    struct ends *ends = *state;
    const size_t len = ((size_t)1 << 32) + 8;
    assert_code(rpma_read(ends->client, near, 0, far, 0, len, ALWAYS, NULL), RPMA_E_INVAL);
    assert_code(rpma_write(ends->client, far, 0, near, 0, len, ALWAYS, NULL), RPMA_E_INVAL);
    assert_code(rpma_send(ends->client, near, 0, len, ALWAYS, NULL), RPMA_E_INVAL);
    assert_code(rpma_recv(ends->client, near, 0, len, NULL), RPMA_E_INVAL);
}

static struct rpma_recv_op into(uintptr_t context, size_t offset, size_t len) {
    return (struct rpma_recv_op){.op_context = (void *)context, .local = near, .offset = offset, .len = len};
}

/* There are more receives than one doorbell takes, before the connection and after it. */
static void many_receives(void **state) {
    struct ends *ends = *state;
    struct rpma_recv_op ops[128];
    size_t posted = 0;
    near = reg(ends, ends->near, BUFFER_SIZE, RPMA_MR_USAGE_SEND | RPMA_MR_USAGE_RECV);
    for (size_t i = 0; i < 128; ++i) {
        ops[i] = into(i, 2048 + i, 1);
    }
    assert_ok(rpma_conn_cfg_set_rq_size(ends->cfg, 128));
    assert_ok(rpma_conn_cfg_set_sq_size(ends->cfg, 200));
    assert_ok(rpma_conn_cfg_set_cq_size(ends->cfg, 400));
    ask(ends, ends->cfg, NULL);
    assert_ok(rpma_ep_next_conn_req(ends->ep, ends->cfg, &ends->request));
    assert_ok(rpma_conn_req_recv_many(ends->request, ops, 100, &posted));
    assert_int_equal(posted, 100);
    assert_ok(rpma_conn_req_connect(&ends->request, NULL, &ends->server));
    await_established(ends);
    assert_ok(rpma_recv_many(ends->server, ops + 100, 28, &posted));
    assert_int_equal(posted, 28);
    if (ends->device == SOFT_DEVICE) {
        assert_code(rpma_recv_many(ends->server, ops, 2, &posted), RPMA_E_AGAIN);
        assert_int_equal(posted, 0);
    }
    for (size_t i = 0; i < 128; ++i) {
        ends->near[i] = (char)i;
        assert_ok(rpma_send(ends->client, near, i, 1, ON_ERROR, NULL));
    }
    for (size_t i = 0; i < 128; ++i) {
        expect(ends->server, i);
    }
    assert_memory_equal(ends->near, ends->near + 2048, 128);
}

static void receives_are_checked(void **state) {
    struct ends *ends = *state;
    struct rpma_recv_op ops[3] = {into(1, 0, 8), into(2, BUFFER_SIZE - 7, 8), into(3, 0, 8)};
    size_t posted = 77;
    assert_code(rpma_recv_many(NULL, ops, 3, &posted), RPMA_E_INVAL);
    assert_int_equal(posted, 0);
    assert_code(rpma_recv_many(ends->server, NULL, 3, NULL), RPMA_E_INVAL);
    assert_code(rpma_recv_many(ends->server, ops, 0, NULL), RPMA_E_INVAL);
    assert_code(rpma_conn_req_recv_many(NULL, ops, 1, NULL), RPMA_E_INVAL);
    /* The operations before a refused one are posted. */
    assert_code(rpma_recv_many(ends->server, ops, 3, &posted), RPMA_E_INVAL);
    assert_int_equal(posted, 1);
    ops[0].reserved = 1;
    assert_code(rpma_recv_many(ends->server, ops, 1, NULL), RPMA_E_INVAL);
    ops[0] = (struct rpma_recv_op){.len = 1};
    assert_code(rpma_recv_many(ends->server, ops, 1, NULL), RPMA_E_INVAL);
    assert_ok(rpma_send(ends->client, near, 0, 8, ON_ERROR, NULL));
    expect(ends->server, 1);
    if (ends->device != KERNEL_IWARP) { /* siw refuses a receive without an element */
        ops[0] = (struct rpma_recv_op){.op_context = (void *)4};
        assert_ok(rpma_recv_many(ends->server, ops, 1, NULL));
        assert_ok(rpma_send(ends->client, NULL, 0, 0, ON_ERROR, NULL));
        expect(ends->server, 4);
    }
    assert_ok(rpma_conn_req_begin(ends->peer, ADDRESS, ends->port, ends->cfg, &ends->request));
    assert_code(rpma_conn_req_recv_many(ends->request, ops, 1, NULL), RPMA_E_INVAL);
}

static int connect_inline(void **state) {
    make_endpoint(state);
    struct ends *ends = *state;
    assert_ok(rpma_conn_cfg_set_inline_size(ends->cfg, 64));
    return connect_with(ends, 10, true);
}

/* The bytes are in no region, and the place is only an address and a key. */
static void ends_without_regions(void **state) {
    struct ends *ends = *state;
    char source[64];
    struct rpma_op ops[] = {
        {.type = RPMA_OP_WRITE,
         .flags = ON_ERROR,
         .bytes = source,
         .len = 64,
         .remote_addr = far_address,
         .remote_key = far_key},
        {.type = RPMA_OP_WRITE,
         .flags = ON_ERROR,
         .bytes = source,
         .len = 8,
         .remote = far,
         .remote_offset = 64},
        {.type = RPMA_OP_WRITE,
         .flags = ON_ERROR,
         .local = near,
         .local_offset = 1024,
         .len = 100,
         .remote_addr = far_address + 128,
         .remote_key = far_key},
        {.type = RPMA_OP_SEND, .flags = ALWAYS, .op_context = (void *)1, .bytes = source, .len = 5},
        {.type = RPMA_OP_READ,
         .flags = ALWAYS,
         .op_context = (void *)2,
         .local = near,
         .local_offset = 2048,
         .len = 228,
         .bytes = source,
         .remote_addr = far_address,
         .remote_key = far_key},
    };
    for (int i = 0; i < 64; ++i) {
        source[i] = (char)(i + 1);
    }
    memset(ends->near + 1024, 'n', 100);
    assert_ok(rpma_recv(ends->server, near, 512, 64, (void *)3));
    assert_ok(rpma_post(ends->client, ops, 5, NULL));
    memset(source, 0, sizeof(source)); /* the post has taken it */
    expect(ends->client, 1);
    expect(ends->client, 2);
    expect(ends->server, 3);
    for (int i = 0; i < 64; ++i) {
        assert_int_equal(ends->far[i], i + 1);
        assert_int_equal(ends->near[2048 + i], i + 1);
    }
    assert_memory_equal(ends->far + 64, ends->far, 8);
    assert_memory_equal(ends->far + 128, ends->near + 1024, 100);
    assert_memory_equal(ends->near + 512, ends->far, 5);
    if (ends->device != KERNEL_IWARP) {
        const struct rpma_op told = {.type = RPMA_OP_WRITE_WITH_IMM,
                                     .flags = ALWAYS,
                                     .op_context = (void *)4,
                                     .bytes = source,
                                     .len = 4,
                                     .imm = 6,
                                     .remote_addr = far_address,
                                     .remote_key = far_key};
        assert_ok(rpma_recv(ends->server, near, 512, 64, (void *)5));
        assert_ok(rpma_post(ends->client, &told, 1, NULL));
        expect(ends->client, 4);
        const struct ibv_wc wc = await_completion(ends->server);
        assert_int_equal(ntohl(wc.imm_data), 6);
        assert_int_equal(ends->far[0], 0);
    }
}

static void an_end_is_given_once(void **state) {
    struct ends *ends = *state;
    char source[128] = {0};
    const struct rpma_op good = {.type = RPMA_OP_WRITE,
                                 .flags = ALWAYS,
                                 .bytes = source,
                                 .len = 64,
                                 .remote_addr = far_address,
                                 .remote_key = far_key};
    struct rpma_op wrong[] = {good, good, good, good, good, good, good};
    wrong[0].local = near;
    wrong[1].remote = far;
    wrong[2].len = 65; /* more than the inline size */
    wrong[3].remote_addr = wrong[3].remote_key = 0;
    wrong[4].flags = 0;
    wrong[5].bytes = NULL;
    wrong[6].bytes = NULL;
    wrong[6].local = near;
    wrong[6].local_offset = BUFFER_SIZE - 1;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); ++i) {
        size_t posted = 77;
        assert_code(rpma_post(ends->client, &wrong[i], 1, &posted), RPMA_E_INVAL);
        assert_int_equal(posted, 0);
    }
    struct rpma_op message = {.type = RPMA_OP_SEND, .flags = ALWAYS, .bytes = source, .len = 65};
    assert_code(rpma_post(ends->client, &message, 1, NULL), RPMA_E_INVAL);
    assert_ok(rpma_post(ends->client, &good, 1, NULL));
    expect(ends->client, 0);
}

/* The receiver waits for solicited messages only. */
static void solicited_messages_wake(void **state) {
    struct ends *ends = *state;
    if (ends->device == KERNEL_IWARP) {
        /* siw does not wake for solicited messages, and has no immediate data. */
        skip();
    }
    struct rpma_cq *cq = NULL;
    int fd = -1;
    assert_ok(rpma_conn_get_cq(ends->server, &cq));
    assert_ok(rpma_cq_get_fd(cq, &fd));
    make_non_blocking(fd);
    for (int i = 0; i < 4; ++i) {
        assert_ok(rpma_recv(ends->server, near, 2048, 64, NULL));
    }
    /* The queue was armed when it was made. */
    assert_ok(rpma_send(ends->client, near, 0, 8, ALWAYS, NULL));
    assert_int_equal(await_completion(ends->client).status, IBV_WC_SUCCESS);
    await_readable(fd);
    assert_ok(rpma_cq_wait_event(cq, RPMA_WAIT_NO_REARM));
    assert_ok(rpma_cq_rearm(cq, true));
    assert_ok(rpma_send(ends->client, near, 0, 8, ALWAYS, NULL));
    assert_int_equal(await_completion(ends->client).status, IBV_WC_SUCCESS);
    /* When the answer to this read has come, the earlier operations have arrived. */
    assert_ok(rpma_read(ends->client, near, 1024, far, 0, 8, ALWAYS, NULL));
    assert_int_equal(await_completion(ends->client).status, IBV_WC_SUCCESS);
    assert_code(rpma_cq_wait_event(cq, RPMA_WAIT_NO_REARM), RPMA_E_NO_COMPLETION);
    assert_ok(rpma_send_with_imm(ends->client, near, 0, 8, ALWAYS | RPMA_F_SOLICITED, 1, NULL));
    await_readable(fd);
    assert_ok(rpma_cq_wait_event(cq, RPMA_WAIT_NO_REARM));
    assert_ok(rpma_cq_rearm(cq, true));
    assert_ok(rpma_write_with_imm(ends->client, far, 0, near, 0, 8, ALWAYS | RPMA_F_SOLICITED, 1, NULL));
    await_readable(fd);
    assert_ok(rpma_cq_wait_event(cq, RPMA_WAIT_NO_REARM));
    assert_ok(rpma_cq_rearm(cq, true));
    /* The receive has only its number, and takes the place of one that was collected. */
    struct ibv_wc wc;
    assert_ok(rpma_cq_get_wc(cq, 1, &wc, NULL));
    assert_ok(rpma_recv(ends->server, near, 2048, 64, NULL));
    assert_code(rpma_cq_wait_event(cq, RPMA_WAIT_NO_REARM), RPMA_E_NO_COMPLETION);
    assert_ok(rpma_write_with_imm(ends->client, NULL, 0, NULL, 0, 0, ALWAYS | RPMA_F_SOLICITED, 1, NULL));
    await_readable(fd);
    assert_ok(rpma_cq_wait_event(cq, 0));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arguments_are_checked),
        cmocka_unit_test_setup_teardown(one_of_each, connect_many, end_all),
        cmocka_unit_test_setup_teardown(many_at_once, connect_many, end_all),
        cmocka_unit_test_setup_teardown(one_that_is_refused, connect_many, end_all),
        cmocka_unit_test_setup_teardown(more_than_the_queue_takes, connect_many, end_all),
        cmocka_unit_test_setup_teardown(lengths_of_more_than_32_bits, connect_many, end_all),
        cmocka_unit_test_setup_teardown(solicited_messages_wake, connect_many, end_all),
        cmocka_unit_test_setup_teardown(offsets_and_lengths_are_checked, connect_checked, end_all),
        cmocka_unit_test_setup_teardown(many_receives, make_endpoint, end_all),
        cmocka_unit_test_setup_teardown(receives_are_checked, connect_checked, end_all),
        cmocka_unit_test_setup_teardown(ends_without_regions, connect_inline, end_all),
        cmocka_unit_test_setup_teardown(an_end_is_given_once, connect_inline, end_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
