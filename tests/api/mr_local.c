/* SPDX-License-Identifier: BSD-3-Clause */
/* mr_local: tests registering memory, the functions of a region, and its 21 bytes. */
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "ends.h"

static void arguments_are_checked(void **state) {
    (void)state;
    struct rpma_mr_local *mr = anything();
    struct rpma_peer *const peer = anything();
    void *const memory = anything();
    void *start = memory;
    size_t size = 7;
    uint32_t key = 7;
    char descriptor[1] = {7};
    assert_code(rpma_mr_reg(NULL, memory, 8, RPMA_MR_USAGE_SEND, &mr), RPMA_E_INVAL);
    assert_code(rpma_mr_reg(peer, NULL, 8, RPMA_MR_USAGE_SEND, &mr), RPMA_E_INVAL);
    assert_code(rpma_mr_reg(peer, memory, 0, RPMA_MR_USAGE_SEND, &mr), RPMA_E_INVAL);
    assert_code(rpma_mr_reg(peer, memory, 8, 0, &mr), RPMA_E_INVAL);
    assert_code(rpma_mr_reg(peer, memory, 8, 0x100, &mr), RPMA_E_INVAL);
    assert_code(rpma_mr_reg(peer, memory, 8, RPMA_MR_USAGE_SEND | 0x100, &mr), RPMA_E_INVAL);
    assert_code(rpma_mr_reg(peer, memory, 8, -1, &mr), RPMA_E_INVAL);
    assert_code(rpma_mr_reg(peer, memory, 8, RPMA_MR_USAGE_SEND, NULL), RPMA_E_INVAL);
    assert_code(rpma_mr_alloc(NULL, 8, RPMA_MR_USAGE_SEND, &mr), RPMA_E_INVAL);
    assert_code(rpma_mr_alloc(peer, 0, RPMA_MR_USAGE_SEND, &mr), RPMA_E_INVAL);
    assert_code(rpma_mr_alloc(peer, 8, 0, &mr), RPMA_E_INVAL);
    assert_code(rpma_mr_alloc(peer, 8, 0x100, &mr), RPMA_E_INVAL);
    assert_code(rpma_mr_alloc(peer, 8, RPMA_MR_USAGE_SEND, NULL), RPMA_E_INVAL);
    assert_code(rpma_mr_get_key(NULL, &key), RPMA_E_INVAL);
    assert_code(rpma_mr_get_key(mr, NULL), RPMA_E_INVAL);
    assert_int_equal(key, 7);
    assert_code(rpma_mr_dereg(NULL), RPMA_E_INVAL);
    assert_code(rpma_mr_get_descriptor(NULL, descriptor), RPMA_E_INVAL);
    assert_code(rpma_mr_get_descriptor(mr, NULL), RPMA_E_INVAL);
    assert_code(rpma_mr_get_descriptor_size(NULL, &size), RPMA_E_INVAL);
    assert_code(rpma_mr_get_descriptor_size(mr, NULL), RPMA_E_INVAL);
    assert_code(rpma_mr_get_ptr(NULL, &start), RPMA_E_INVAL);
    assert_code(rpma_mr_get_ptr(mr, NULL), RPMA_E_INVAL);
    assert_code(rpma_mr_get_size(NULL, &size), RPMA_E_INVAL);
    assert_code(rpma_mr_get_size(mr, NULL), RPMA_E_INVAL);
    assert_code(rpma_mr_advise(NULL, 0, 8, 0, 0), RPMA_E_INVAL);
    assert_ptr_equal(mr, anything());
    assert_ptr_equal(start, memory);
    assert_int_equal(size, 7);
    assert_int_equal(descriptor[0], 7);
}

static void every_usage_takes_any_memory(void **state) {
    struct ends *ends = *state;
    capture_log(RPMA_LOG_LEVEL_ERROR);
    for (int usage = 1; usage <= 0xff; ++usage) {
        struct rpma_mr_local *mr = NULL;
        assert_ok(rpma_mr_reg(ends->peer, ends->near, BUFFER_SIZE, usage, &mr));
        assert_ok(rpma_mr_dereg(&mr));
        assert_null(mr);
    }
    struct rpma_mr_local *none = NULL;
    assert_ok(rpma_mr_dereg(&none));
}

static void region_knows_itself(void **state) {
    struct ends *ends = *state;
    struct rpma_mr_local *const mr = reg(ends, ends->near + 3, 1001, RPMA_MR_USAGE_READ_SRC);
    void *start = NULL;
    size_t size = 0;
    assert_ok(rpma_mr_get_ptr(mr, &start));
    assert_ptr_equal(start, ends->near + 3);
    assert_ok(rpma_mr_get_size(mr, &size));
    assert_int_equal(size, 1001);
}

static uint64_t little(const unsigned char *bytes, int size) {
    uint64_t value = 0;
    for (int i = size - 1; i >= 0; --i) {
        value = value << 8 | bytes[i];
    }
    return value;
}

static void descriptor_is_21_bytes(void **state) {
    struct ends *ends = *state;
    const int usage = RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY;
    struct rpma_mr_local *const mr = reg(ends, ends->near, 1001, usage);
    unsigned char descriptor[22];
    size_t size = 0;
    assert_ok(rpma_mr_get_descriptor_size(mr, &size));
    assert_int_equal(size, 21);
    memset(descriptor, 0xee, sizeof(descriptor));
    assert_ok(rpma_mr_get_descriptor(mr, descriptor));
    assert_true(little(descriptor, 8) == (uintptr_t)ends->near);
    assert_int_equal(little(descriptor + 8, 8), 1001);
    /* librpma 1.3 reads these bits. On the soft device the other bits say
     * that the region takes native operations. */
    assert_int_equal(descriptor[20] & 0x30, RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY);
    if (ends->device == SOFT_DEVICE) {
        assert_int_equal(descriptor[20], 0xc6 | RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY);
    }
    assert_int_equal(descriptor[21], 0xee);
}

/* Allocated memory is zeroed, belongs to the region, and is released with it. */
static void memory_is_allocated(void **state) {
    struct ends *ends = *state;
    const size_t size = (size_t)64 << 20;
    struct rpma_mr_local *mr = NULL;
    unsigned char descriptor[21];
    unsigned char mapped = 0;
    void *start = NULL;
    size_t got = 0;
    uint32_t key = 0;
    assert_ok(rpma_mr_alloc(ends->peer, size, RPMA_MR_USAGE_WRITE_DST, &mr));
    assert_ok(rpma_mr_get_ptr(mr, &start));
    assert_ok(rpma_mr_get_size(mr, &got));
    assert_ok(rpma_mr_get_key(mr, &key));
    assert_ok(rpma_mr_get_descriptor(mr, descriptor));
    assert_int_equal(got, size);
    assert_int_equal(key, little(descriptor + 16, 4));
    assert_int_equal((uintptr_t)start % BUFFER_SIZE, 0);
    if (ends->device == SOFT_DEVICE) { /* a kernel's device pins it */
        assert_int_equal(mincore((char *)start + size / 2, BUFFER_SIZE, &mapped), 0);
        assert_int_equal(mapped & 1, 0);
    }
    assert_int_equal(((char *)start)[size - 1], 0);
    ((char *)start)[size - 1] = 1;
    assert_ok(rpma_mr_dereg(&mr));
    assert_int_equal(mincore(start, BUFFER_SIZE, &mapped), -1);
    if (ends->device == SOFT_DEVICE) {
        capture_log(RPMA_LOG_LEVEL_ERROR);
        assert_code(rpma_mr_alloc(ends->peer, SIZE_MAX / 2, RPMA_MR_USAGE_SEND, &mr), RPMA_E_NOMEM);
        assert_null(mr);
    }
}

static void keys_differ(void **state) {
    struct ends *ends = *state;
    unsigned char descriptors[2][21];
    for (int i = 0; i < 2; ++i) {
        const struct rpma_mr_local *mr = reg(ends, ends->near, BUFFER_SIZE, RPMA_MR_USAGE_WRITE_DST);
        assert_ok(rpma_mr_get_descriptor(mr, descriptors[i]));
    }
    assert_true(little(descriptors[0] + 16, 4) != little(descriptors[1] + 16, 4));
}

static void read_only_memory_can_be_sent(void **state) {
    struct ends *ends = *state;
    void *const page = mmap(NULL, BUFFER_SIZE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(page, MAP_FAILED);
    reg(ends, page, BUFFER_SIZE, RPMA_MR_USAGE_WRITE_SRC | RPMA_MR_USAGE_SEND);
    assert_ok(rpma_mr_dereg(&ends->local[0]));
    munmap(page, BUFFER_SIZE);
}

/* Programs of librpma 1.3 register memory of the heap in this way and never flush it to persistence. */
static void anonymous_memory_is_not_persistent(void **state) {
    struct ends *ends = *state;
    const int usages[] = {RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT,
                          RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT,
                          RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY | RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT};
    for (size_t i = 0; i < sizeof(usages) / sizeof(usages[0]); ++i) {
        int flush_types = 0;
        capture_log(RPMA_LOG_LEVEL_WARNING);
        const struct rpma_mr_remote *const remote =
            remote_of(ends, reg(ends, ends->near, BUFFER_SIZE, usages[i]));
        assert_ok(rpma_mr_remote_get_flush_type(remote, &flush_types));
        if (ends->device != SOFT_DEVICE) {
            /* Kernel devices do not check whether the memory is durable. */
            assert_true((flush_types & RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT) != 0);
            continue;
        }
        assert_int_equal(flush_types, RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY);
        /* The log tells which memory this is, and why it cannot be durable. */
        assert_true(logged("4096 bytes", "cannot be made durable", "anonymous", NULL));
        assert_int_equal(logged_lines(), 1);
    }
}

static void file_on_storage_is_persistent(void **state) {
    struct ends *ends = *state;
    const int usage = RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT;
    struct statfs where;
    char name[] = "mr_local.XXXXXX";
    const int fd = mkstemp(name);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, BUFFER_SIZE), 0);
    assert_int_equal(fstatfs(fd, &where), 0);
    void *const page = mmap(NULL, BUFFER_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    assert_ptr_not_equal(page, MAP_FAILED);
    if (where.f_type == TMPFS_MAGIC) {
        munmap(page, BUFFER_SIZE);
        unlink(name);
        skip();
    }
    if (ends->device == SOFT_DEVICE) {
        reg(ends, page, BUFFER_SIZE, usage);
        assert_ok(rpma_mr_dereg(&ends->local[0]));
    } else {
        struct rpma_mr_local *mr = NULL;
        assert_code(rpma_mr_reg(ends->peer, page, BUFFER_SIZE, usage, &mr), RPMA_E_PROVIDER);
        assert_true(logged("no on-demand paging", "cannot be pinned", NULL));
    }
    munmap(page, BUFFER_SIZE);
    unlink(name);
}

/* The device refuses advice without a crash, or takes it. The effect is up to the device. */
static void advice_is_answered(void **state) {
    struct ends *ends = *state;
    struct rpma_mr_local *const mr = reg(ends, ends->near, BUFFER_SIZE, RPMA_MR_USAGE_WRITE_DST);
    const int result =
        rpma_mr_advise(mr, 0, BUFFER_SIZE, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH);
    assert_true(result == 0 || result == RPMA_E_NOSUPP);
}

#define WITH_PEER(test) cmocka_unit_test_setup_teardown(test, make_peer, end_all)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arguments_are_checked),  WITH_PEER(every_usage_takes_any_memory),
        WITH_PEER(region_knows_itself),           WITH_PEER(descriptor_is_21_bytes),
        WITH_PEER(memory_is_allocated),           WITH_PEER(keys_differ),
        WITH_PEER(read_only_memory_can_be_sent),  WITH_PEER(anonymous_memory_is_not_persistent),
        WITH_PEER(file_on_storage_is_persistent), WITH_PEER(advice_is_answered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
