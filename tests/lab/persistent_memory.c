/* SPDX-License-Identifier: BSD-3-Clause */
/* persistent_memory: writes and flushes into the guest's NVDIMM, over the device that serves
 * RPMA_TEST_ADDRESS. The memory is a devdax device (DAX_DEVICE), and a file on a file system with DAX
 * (PMEM_DIR). */
#include <fcntl.h>
#include <libpmem2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../api/ends.h"

#define ALWAYS RPMA_F_COMPLETION_ALWAYS

/* libpmem2 maps this memory; end() unmaps it and closes the file, also after a failed assertion. */
static struct {
    int fd;
    struct pmem2_config *config;
    struct pmem2_source *source;
    struct pmem2_map *map;
} memory;

static int begin(void **state) {
    memset(&memory, 0, sizeof(memory));
    memory.fd = -1;
    return make_connection(state);
}

static int end(void **state) {
    const int failures = end_all(state);
    if (memory.map != NULL) {
        pmem2_map_delete(&memory.map);
    }
    pmem2_source_delete(&memory.source);
    pmem2_config_delete(&memory.config);
    close(memory.fd);
    return failures;
}

/* Maps with at most this granularity, which libpmem2 finds; a larger one would be a page cache. */
static void map(const char *path, enum pmem2_granularity granularity) {
    memory.fd = open(path, O_RDWR | O_CREAT, 0600);
    assert_true(memory.fd >= 0);
    assert_int_equal(pmem2_source_from_fd(&memory.source, memory.fd), 0);
    assert_int_equal(pmem2_config_new(&memory.config), 0);
    assert_int_equal(pmem2_config_set_required_store_granularity(memory.config, granularity), 0);
    assert_int_equal(pmem2_map_new(&memory.map, memory.config, memory.source), 0);
    printf("%s: granularity %d, %zu bytes\n", path, (int)pmem2_map_get_store_granularity(memory.map),
           pmem2_map_get_size(memory.map));
}

static const char *named(const char *variable) {
    const char *const value = getenv(variable);
    assert_non_null(value);
    return value;
}

static const int usage = RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT;

/* The flush is persistent only when the peer declares direct write to persistent memory. */
static void writes_and_flushes(struct ends *ends, char *pool) {
    struct rpma_mr_local *const near = reg(ends, ends->near, BUFFER_SIZE, RPMA_MR_USAGE_WRITE_SRC);
    struct rpma_mr_remote *const far = remote_of(ends, reg(ends, pool, 16 * BUFFER_SIZE, usage));
    declare_direct_write(ends, false);
    assert_code(rpma_flush(ends->client, far, 0, 8, RPMA_FLUSH_TYPE_PERSISTENT, ALWAYS, NULL), RPMA_E_NOSUPP);
    declare_direct_write(ends, true);
    memset(pool, 0, 16 * BUFFER_SIZE);
    for (size_t i = 0; i < 16; ++i) {
        const size_t offset = i * BUFFER_SIZE;
        memset(ends->near, 'a' + (int)i, BUFFER_SIZE);
        assert_ok(
            rpma_write(ends->client, far, offset, near, 0, BUFFER_SIZE, RPMA_F_COMPLETION_ON_ERROR, NULL));
        assert_ok(rpma_flush(ends->client, far, offset, BUFFER_SIZE, RPMA_FLUSH_TYPE_PERSISTENT, ALWAYS,
                             ends->near + i));
        const struct ibv_wc wc = await_completion(ends->client);
        assert_int_equal(wc.status, IBV_WC_SUCCESS);
        assert_true(wc.wr_id == (uintptr_t)(ends->near + i));
        assert_memory_equal(pool + offset, ends->near, BUFFER_SIZE);
    }
    assert_ok(rpma_mr_dereg(&ends->local[1]));
}

static void a_devdax_device_is_durable(void **state) {
    map(named("DAX_DEVICE"), PMEM2_GRANULARITY_CACHE_LINE);
    writes_and_flushes(*state, pmem2_map_get_address(memory.map));
}

/* A kernel's device cannot pin the file's pages; the log says so, and what the program has to do. */
static void a_file_with_dax_is_durable_or_refused(void **state) {
    struct ends *ends = *state;
    char path[256];
    snprintf(path, sizeof(path), "%s/file", named("PMEM_DIR"));
    const int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_int_equal(posix_fallocate(fd, 0, 64 * BUFFER_SIZE), 0);
    close(fd);
    map(path, PMEM2_GRANULARITY_CACHE_LINE);
    char *const pool = pmem2_map_get_address(memory.map);
    if (ends->device == SOFT_DEVICE) {
        writes_and_flushes(ends, pool);
        return;
    }
    struct rpma_mr_local *mr = anything();
    capture_log(RPMA_LOG_LEVEL_ERROR);
    assert_code(rpma_mr_reg(ends->peer, pool, BUFFER_SIZE, usage, &mr), RPMA_E_PROVIDER);
    assert_ptr_equal(mr, anything());
    assert_true(logged("on-demand paging", "DAX", "cannot be pinned", "use", NULL));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_devdax_device_is_durable, begin, end),
        cmocka_unit_test_setup_teardown(a_file_with_dax_is_durable_or_refused, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
