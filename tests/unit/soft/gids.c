/* SPDX-License-Identifier: BSD-3-Clause */
/* unit/soft: tests that a device has one GID for each address of its interface, and
 * that an IPv4 address is mapped into IPv6. */
#include "endpoint.h"
#include "loopback.h"

#include <net/if.h>
#include <string.h>

enum { most_gids = 64 };

static void the_table_has_every_gid(void **state) {
    (void)state;
    struct ibv_context *context = open_loopback();
    const union ibv_gid of_ipv4 = {.raw = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1}};
    struct ibv_gid_entry table[most_gids];
    int found = 0;
    const ssize_t count = softrdma_ibv_query_gid_table(context, table, most_gids, 0);
    assert_in_range(count, 1, most_gids);
    for (uint32_t i = 0; i < (uint32_t)count; i++) {
        assert_int_equal(table[i].gid_index, i);
        assert_int_equal(table[i].port_num, 1);
        assert_int_equal(table[i].gid_type, IBV_GID_TYPE_IB);
        assert_int_equal(table[i].ndev_ifindex, if_nametoindex("lo"));
        found += memcmp(&table[i].gid, &of_ipv4, sizeof(of_ipv4)) == 0;

        struct ibv_gid_entry entry;
        assert_int_equal(softrdma_ibv_query_gid_ex(context, 1, i, &entry, 0), 0);
        assert_memory_equal(&entry.gid, &table[i].gid, sizeof(entry.gid));
        assert_int_equal(entry.gid_index, i);
        assert_int_equal(entry.port_num, 1);
        assert_int_equal(entry.gid_type, IBV_GID_TYPE_IB);
        assert_int_equal(entry.ndev_ifindex, table[i].ndev_ifindex);
    }
    assert_int_equal(found, 1);
    assert_int_equal(softrdma_ibv_query_gid_table(context, table, (size_t)count, 0), count);
}

static void what_is_not_in_the_table(void **state) {
    (void)state;
    struct ibv_context *context = open_loopback();
    struct ibv_gid_entry table[most_gids];
    const ssize_t count = softrdma_ibv_query_gid_table(context, table, most_gids, 0);
    struct ibv_gid_entry untouched;
    memset(&untouched, 0x5a, sizeof(untouched));
    struct ibv_gid_entry entry = untouched;
    assert_int_equal(softrdma_ibv_query_gid_ex(context, 1, (uint32_t)count, &entry, 0), EINVAL);
    assert_int_equal(softrdma_ibv_query_gid_ex(context, 0, 0, &entry, 0), EINVAL);
    assert_int_equal(softrdma_ibv_query_gid_ex(context, 2, 0, &entry, 0), EINVAL);
    assert_int_equal(softrdma_ibv_query_gid_ex(context, 1, 0, &entry, 1), EINVAL);
    assert_int_equal(softrdma_ibv_query_gid_table(context, &entry, (size_t)count - 1, 0), -EINVAL);
    assert_int_equal(softrdma_ibv_query_gid_table(context, table, most_gids, 1), -EINVAL);
    assert_memory_equal(&entry, &untouched, sizeof(untouched));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_has_every_gid),
        cmocka_unit_test(what_is_not_in_the_table),
    };
    return cmocka_run_group_tests_name("gids", tests, NULL, NULL);
}
