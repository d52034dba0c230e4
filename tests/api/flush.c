/* SPDX-License-Identifier: BSD-3-Clause */
/* flush: tests the conditions of a flush, and that the earlier writes are placed when it completes. */
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "ends.h"

#define ALWAYS RPMA_F_COMPLETION_ALWAYS

static void arguments_are_checked(void **state) {
    (void)state;
    struct rpma_conn *const conn = anything();
    struct rpma_mr_remote *const remote = anything();
    assert_code(rpma_flush(NULL, remote, 0, 8, RPMA_FLUSH_TYPE_VISIBILITY, ALWAYS, NULL), RPMA_E_INVAL);
    assert_code(rpma_flush(conn, NULL, 0, 8, RPMA_FLUSH_TYPE_VISIBILITY, ALWAYS, NULL), RPMA_E_INVAL);
    assert_code(rpma_flush(conn, remote, 0, 8, RPMA_FLUSH_TYPE_VISIBILITY, 0, NULL), RPMA_E_INVAL);
    assert_code(rpma_flush(conn, remote, 0, 8, (enum rpma_flush_type)2, ALWAYS, NULL), RPMA_E_INVAL);
}

/* Returns a remote region with this usage at any address. These flushes are never sent. */
static struct rpma_mr_remote *imagined(struct ends *ends, int usage) {
    unsigned char descriptor[21] = {0};
    descriptor[8] = 64;
    descriptor[20] = (unsigned char)usage;
    assert_ok(rpma_mr_remote_from_descriptor(descriptor, sizeof(descriptor), &ends->remote[ends->remotes]));
    return ends->remote[ends->remotes++];
}

static void not_supported(struct ends *ends, struct rpma_mr_remote *remote, enum rpma_flush_type type) {
    assert_code(rpma_flush(ends->client, remote, 0, 8, type, ALWAYS, NULL), RPMA_E_NOSUPP);
}

static void flush_needs_the_regions_and_the_peers_support(void **state) {
    struct ends *ends = *state;
    struct rpma_mr_remote *const none = imagined(ends, RPMA_MR_USAGE_WRITE_DST);
    struct rpma_mr_remote *const visibility = imagined(ends, RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY);
    struct rpma_mr_remote *const persistent = imagined(ends, RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT);
    not_supported(ends, none, RPMA_FLUSH_TYPE_VISIBILITY);
    not_supported(ends, persistent, RPMA_FLUSH_TYPE_VISIBILITY);
    not_supported(ends, persistent, RPMA_FLUSH_TYPE_PERSISTENT);
    declare_direct_write(ends, true);
    not_supported(ends, none, RPMA_FLUSH_TYPE_PERSISTENT);
    not_supported(ends, visibility, RPMA_FLUSH_TYPE_PERSISTENT);
    declare_direct_write(ends, false);
    not_supported(ends, persistent, RPMA_FLUSH_TYPE_PERSISTENT);
}

static void flushes(struct ends *ends, struct rpma_mr_remote *remote, size_t offset, size_t len,
                    enum rpma_flush_type type) {
    assert_ok(rpma_flush(ends->client, remote, offset, len, type, ALWAYS, remote));
    const struct ibv_wc wc = await_completion(ends->client);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    assert_true(wc.wr_id == (uintptr_t)remote);
}

static void writes_are_visible(void **state) {
    struct ends *ends = *state;
    const int usage = RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY;
    struct rpma_mr_local *const near = reg(ends, ends->near, BUFFER_SIZE, RPMA_MR_USAGE_WRITE_SRC);
    struct rpma_mr_remote *const far = remote_of(ends, reg(ends, ends->far, BUFFER_SIZE, usage));
    for (int i = 1; i < 100; ++i) {
        memset(ends->near, i, BUFFER_SIZE);
        assert_ok(rpma_write(ends->client, far, 0, near, 0, BUFFER_SIZE, RPMA_F_COMPLETION_ON_ERROR, NULL));
        flushes(ends, far, 0, BUFFER_SIZE, RPMA_FLUSH_TYPE_VISIBILITY);
        assert_memory_equal(ends->far, ends->near, BUFFER_SIZE);
    }
}

/* No range inside a region is out of its bounds, with any kind of flush. */
static void every_place_of_a_region_can_be_flushed(void **state) {
    struct ends *ends = *state;
    const int usage = RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY;
    struct rpma_mr_remote *const small = remote_of(ends, reg(ends, ends->far, 3, usage));
    struct rpma_mr_remote *const larger = remote_of(ends, reg(ends, ends->far, 16, usage));
    for (size_t offset = 0; offset < 3; ++offset) {
        flushes(ends, small, offset, 3 - offset, RPMA_FLUSH_TYPE_VISIBILITY);
    }
    for (size_t offset = 0; offset < 16; ++offset) {
        flushes(ends, larger, offset, 16 - offset, RPMA_FLUSH_TYPE_VISIBILITY);
        flushes(ends, larger, offset, 1, RPMA_FLUSH_TYPE_VISIBILITY);
    }
}

static void file_is_durable(void **state) {
    struct ends *ends = *state;
    const int usage = RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT;
    struct statfs where;
    if (ends->device != SOFT_DEVICE) {
        /* Kernel devices register no page of a file (mr_local.c). */
        skip();
    }
    char name[] = "flush.XXXXXX";
    char content[BUFFER_SIZE];
    const int fd = mkstemp(name);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, BUFFER_SIZE), 0);
    assert_int_equal(fstatfs(fd, &where), 0);
    if (where.f_type == TMPFS_MAGIC) {
        close(fd);
        unlink(name);
        skip();
    }
    void *const pool = mmap(NULL, BUFFER_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(pool, MAP_FAILED);
    struct rpma_mr_local *const near = reg(ends, ends->near, BUFFER_SIZE, RPMA_MR_USAGE_WRITE_SRC);
    struct rpma_mr_remote *const far = remote_of(ends, reg(ends, pool, BUFFER_SIZE, usage));
    declare_direct_write(ends, true);
    memset(ends->near, 'x', BUFFER_SIZE);
    assert_ok(rpma_write(ends->client, far, 0, near, 0, BUFFER_SIZE, RPMA_F_COMPLETION_ON_ERROR, NULL));
    flushes(ends, far, 0, BUFFER_SIZE, RPMA_FLUSH_TYPE_PERSISTENT);
    assert_int_equal(pread(fd, content, BUFFER_SIZE, 0), BUFFER_SIZE);
    assert_memory_equal(content, ends->near, BUFFER_SIZE);
    close(fd);
    assert_ok(rpma_mr_dereg(&ends->local[1]));
    munmap(pool, BUFFER_SIZE);
    unlink(name);
}

/* Uses a region that cannot be durable, with its own descriptor, and with a false one. */
static void only_durable_memory_is_flushed_to_persistence(void **state) {
    struct ends *ends = *state;
    unsigned char descriptor[21];
    struct rpma_mr_remote *lying = NULL;
    if (ends->device != SOFT_DEVICE) {
        /* Kernel devices do not check the durability. */
        skip();
    }
    const int usage = RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_READ_DST | RPMA_MR_USAGE_WRITE_SRC |
                      RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT;
    struct rpma_mr_local *const near = reg(ends, ends->near, BUFFER_SIZE, usage);
    struct rpma_mr_local *const memory = reg(ends, ends->far, BUFFER_SIZE, usage);
    struct rpma_mr_remote *const far = remote_of(ends, memory);
    declare_direct_write(ends, true);
    memset(ends->near, 'x', BUFFER_SIZE);
    assert_ok(rpma_write(ends->client, far, 0, near, 0, BUFFER_SIZE, RPMA_F_COMPLETION_ON_ERROR, NULL));
    not_supported(ends, far, RPMA_FLUSH_TYPE_PERSISTENT);
    flushes(ends, far, 0, BUFFER_SIZE, RPMA_FLUSH_TYPE_VISIBILITY);
    assert_memory_equal(ends->far, ends->near, BUFFER_SIZE);

    assert_ok(rpma_mr_get_descriptor(memory, descriptor));
    descriptor[20] |= RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT;
    assert_ok(rpma_mr_remote_from_descriptor(descriptor, sizeof(descriptor), &lying));
    ends->remote[ends->remotes++] = lying;
    assert_ok(rpma_flush(ends->client, lying, 0, 8, RPMA_FLUSH_TYPE_PERSISTENT, ALWAYS, NULL));
    assert_int_equal(await_completion(ends->client).status, IBV_WC_REM_ACCESS_ERR);
}

#define WITH_CONNECTION(test) cmocka_unit_test_setup_teardown(test, make_connection, end_all)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arguments_are_checked),
        WITH_CONNECTION(flush_needs_the_regions_and_the_peers_support),
        WITH_CONNECTION(writes_are_visible),
        WITH_CONNECTION(every_place_of_a_region_can_be_flushed),
        WITH_CONNECTION(file_is_durable),
        WITH_CONNECTION(only_durable_memory_is_flushed_to_persistence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
