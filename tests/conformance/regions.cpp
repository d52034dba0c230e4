// SPDX-License-Identifier: BSD-3-Clause
// conformance: regions that are registered again, whole address spaces (implicit on-demand paging), regions
// whose addresses begin with 0, device memory, and the domains in which they are.
#include <array>
#include <cerrno>

#include "suite.hpp"

namespace conformance {

namespace {

// Two connected ends, of the soft device. The kernel's devices in software have none of these calls.
Ends &soft_ends(const Sizes &sizes = {}) {
    if (!subject.is_soft) {
        skip();
    }
    return connected(sizes);
}

Request at(Request request, const ibv_mr &region, std::uint64_t address) {
    request.remote_address = address;
    request.rkey = region.rkey;
    return request;
}

void expect_refused(const Ends &ends, const Request &request) {
    assert_int_equal(post(ends.client, {request, settling_request(ends.client, ends.server, 98)}), 0);
    const ibv_wc first = next_completion(ends.client.cq);
    const ibv_wc second = next_completion(ends.client.cq);
    assert_true(first.status == IBV_WC_REM_ACCESS_ERR || second.status == IBV_WC_REM_ACCESS_ERR);
}

void a_region_gets_other_rights(void **) {
    Ends &ends = soft_ends();
    std::vector<std::byte> bytes(4096);
    ibv_mr *const region = ends.server.register_memory(bytes.data(), bytes.size(), full_access);
    const std::uint32_t key = region->rkey;
    const auto address = reinterpret_cast<std::uintptr_t>(bytes.data());
    const Request write = at(write_request(ends.client, ends.server, 0, 64, 1), *region, address);
    for (int i = 0; i < 20; ++i) {  // the peer reaches it itself meanwhile, within a host
        assert_int_equal(post(ends.client, {write}), 0);
        expect_completion(ends.client.cq, 1);
    }
    settle(ends.client, ends.server);
    assert_int_equal(softrdma_ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
                                           int{IBV_ACCESS_LOCAL_WRITE} | int{IBV_ACCESS_REMOTE_READ}),
                     0);
    assert_int_equal(region->rkey, key);
    assert_int_equal(
        post(ends.client, {at(read_request(ends.client, ends.server, 0, 64, 2), *region, address)}), 0);
    expect_completion(ends.client.cq, 2);
    expect_refused(ends, write);
}

void a_region_gets_other_memory(void **) {
    Ends &ends = soft_ends();
    std::vector<std::byte> before(4096);
    std::vector<std::byte> after(8192);
    ibv_mr *const region = ends.server.register_memory(before.data(), before.size(), full_access);
    const auto new_address = reinterpret_cast<std::uintptr_t>(after.data());
    assert_int_equal(softrdma_ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, after.data(),
                                           after.size(), 0),
                     0);
    assert_ptr_equal(region->addr, after.data());
    assert_int_equal(region->length, after.size());
    fill(ends.client, 0, 8192, 5);
    assert_int_equal(
        post(ends.client, {at(write_request(ends.client, ends.server, 0, 8192, 1), *region, new_address)}),
        0);
    expect_completion(ends.client.cq, 1);
    settle(ends.client, ends.server);
    assert_memory_equal(after.data(), ends.client.memory.data(), 8192);
    expect_refused(ends, at(write_request(ends.client, ends.server, 0, 8, 2), *region,
                            reinterpret_cast<std::uintptr_t>(before.data())));
}

void a_region_gets_another_domain(void **) {
    Ends &ends = soft_ends();
    std::vector<std::byte> bytes(4096);
    ibv_mr *const region = ends.server.register_memory(bytes.data(), bytes.size(), full_access);
    const auto address = reinterpret_cast<std::uintptr_t>(bytes.data());
    ibv_pd *const other = softrdma_ibv_alloc_pd(ends.server.id->verbs);
    assert_int_equal(softrdma_ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_PD, other, nullptr, 0, 0), 0);
    assert_ptr_equal(region->pd, other);
    assert_int_equal(softrdma_ibv_dealloc_pd(other), EBUSY);
    assert_int_equal(softrdma_ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_PD, ends.server.pd, nullptr, 0, 0), 0);
    const Request write = at(write_request(ends.client, ends.server, 0, 64, 1), *region, address);
    assert_int_equal(post(ends.client, {write}), 0);
    expect_completion(ends.client.cq, 1);
    settle(ends.client, ends.server);
    assert_int_equal(softrdma_ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_PD, other, nullptr, 0, 0), 0);
    expect_refused(ends, write);
    assert_int_equal(softrdma_ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_PD, ends.server.pd, nullptr, 0, 0), 0);
    assert_int_equal(softrdma_ibv_dealloc_pd(other), 0);
}

// The region stays as it was.
void what_cannot_be_registered_again(void **) {
    Ends &ends = soft_ends();
    std::vector<std::byte> bytes(4096);
    ibv_mr *const region = ends.server.register_memory(bytes.data(), bytes.size(), full_access);
    const ibv_mr before = *region;
    const auto expect_failure = [&](int flags, ibv_pd *pd, void *address, std::size_t length, int access,
                                    int error) {
        errno = 0;
        assert_int_equal(softrdma_ibv_rereg_mr(region, flags, pd, address, length, access),
                         IBV_REREG_MR_ERR_INPUT);
        assert_int_equal(errno, error);
    };
    expect_failure(0, nullptr, nullptr, 0, 0, EINVAL);
    expect_failure(1 << 5, nullptr, nullptr, 0, 0, EINVAL);
    expect_failure(IBV_REREG_MR_CHANGE_PD, nullptr, nullptr, 0, 0, EINVAL);
    expect_failure(IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, nullptr, 4096, 0, EFAULT);
    expect_failure(IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_REMOTE_WRITE, EINVAL);
    assert_memory_equal(region, &before, sizeof(before));
    const Request write = at(write_request(ends.client, ends.server, 0, 64, 1), *region,
                             reinterpret_cast<std::uintptr_t>(bytes.data()));
    assert_int_equal(post(ends.client, {write}), 0);
    expect_completion(ends.client.cq, 1);
    settle(ends.client, ends.server);
}

// The peer asks all the time while the region is registered again and again: each write is either placed or
// refused, and a refused one ends the connection.
void a_peer_writes_while_its_region_changes(void **) {
    for (int round = 0; round < 10; ++round) {
        Ends &ends = soft_ends();
        std::vector<std::byte> bytes(1 << 16);
        ibv_mr *const region = ends.server.register_memory(bytes.data(), bytes.size(), full_access);
        const Request write = at(write_request(ends.client, ends.server, 0, 1 << 16, 1), *region,
                                 reinterpret_cast<std::uintptr_t>(bytes.data()));
        Thread other{[&] {
            for (int i = 0; i < 50; ++i) {
                if (softrdma_ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
                                          full_access) != 0) {
                    return std::string{"the region does not change"};
                }
            }
            return std::string{};
        }};
        for (int i = 0; i < 50; ++i) {
            assert_int_equal(post(ends.client, {write}), 0);
            if (next_completion(ends.client.cq).status != IBV_WC_SUCCESS) {
                break;
            }
        }
        other.expect_well();
        ends.client.destroy();
        ends.server.destroy();
    }
}

void the_whole_address_space_is_a_region(void **) {
    Ends &ends = soft_ends();
    ibv_mr *const all =
        ends.client.register_memory(nullptr, SIZE_MAX, int{IBV_ACCESS_ON_DEMAND} | full_access);
    assert_non_null(all);
    errno = 0;
    assert_null(ends.client.register_memory(nullptr, SIZE_MAX, full_access));
    fill(ends.client, 0, 4096, 7);
    Request write = write_request(ends.client, ends.server, 0, 4096, 1);
    write.sges[0].lkey = all->lkey;
    assert_int_equal(post(ends.client, {write}), 0);
    expect_completion(ends.client.cq, 1);
    settle(ends.client, ends.server);
    assert_true(same(ends.client, ends.server, 0, 4096));
    // Memory that is not there fails the request, and no more.
    write.sges[0].addr = 0x1000;
    assert_int_equal(post(ends.client, {write}), 0);
    assert_int_not_equal(next_completion(ends.client.cq).status, IBV_WC_SUCCESS);
}

void addresses_that_begin_with_zero(void **) {
    Ends &ends = soft_ends();
    std::vector<std::byte> bytes(4096);
    ibv_mr *const region =
        ends.server.register_memory(bytes.data(), bytes.size(), int{IBV_ACCESS_ZERO_BASED} | full_access);
    assert_non_null(region);
    fill(ends.client, 0, 64, 3);
    assert_int_equal(post(ends.client, {at(write_request(ends.client, ends.server, 0, 64, 1), *region, 100)}),
                     0);
    expect_completion(ends.client.cq, 1);
    settle(ends.client, ends.server);
    assert_memory_equal(bytes.data() + 100, ends.client.memory.data(), 64);
    expect_refused(ends, at(write_request(ends.client, ends.server, 0, 64, 2), *region, 4096 - 63));
}

void device_memory_is_reached_by_its_calls_and_peers(void **) {
    Ends &ends = soft_ends();
    ibv_context *const context = ends.server.id->verbs;
    ibv_device_attr_ex attributes{};
    assert_int_equal(softrdma_ibv_query_device_ex(context, nullptr, &attributes), 0);
    ibv_alloc_dm_attr wanted{.length = attributes.max_dm_size + 1, .log_align_req = 0, .comp_mask = 0};
    errno = 0;
    assert_null(ibv_alloc_dm(context, &wanted));
    assert_int_equal(errno, EINVAL);
    wanted.length = 4096;
    ibv_dm *const memory = ibv_alloc_dm(context, &wanted);
    assert_non_null(memory);
    const std::array<char, 8> text{"1234567"};
    std::array<char, 8> found{};
    assert_int_equal(ibv_memcpy_to_dm(memory, 4092, text.data(), 8), EINVAL);
    assert_int_equal(ibv_memcpy_to_dm(memory, 2, text.data(), 8), EINVAL);
    assert_int_equal(ibv_memcpy_to_dm(memory, 4088, text.data(), 8), 0);
    assert_int_equal(ibv_memcpy_from_dm(found.data(), memory, 4088, 8), 0);
    assert_string_equal(found.data(), text.data());

    const unsigned access = unsigned{IBV_ACCESS_ZERO_BASED} | static_cast<unsigned>(full_access);
    assert_null(ibv_reg_dm_mr(ends.server.pd, memory, 4000, 97, access));
    assert_null(ibv_reg_dm_mr(ends.server.pd, memory, 0, 4096, full_access));
    ibv_mr *const region = ibv_reg_dm_mr(ends.server.pd, memory, 4000, 96, access);
    assert_non_null(region);
    assert_int_equal(ibv_free_dm(memory), EBUSY);
    fill(ends.client, 0, 96, 9);
    assert_int_equal(post(ends.client, {at(write_request(ends.client, ends.server, 0, 96, 1), *region, 0),
                                        at(read_request(ends.client, ends.server, 200, 96, 2), *region, 0)}),
                     0);
    expect_completion(ends.client.cq, 1);
    expect_completion(ends.client.cq, 2);
    assert_memory_equal(ends.client.memory.data() + 200, ends.client.memory.data(), 96);
    assert_int_equal(ibv_memcpy_from_dm(found.data(), memory, 4088, 8), 0);
    assert_memory_equal(found.data(), ends.client.memory.data() + 88, 8);
    expect_refused(ends, at(write_request(ends.client, ends.server, 0, 97, 3), *region, 0));
    assert_int_equal(softrdma_ibv_dereg_mr(region), 0);
    assert_int_equal(ibv_free_dm(memory), 0);
}

void a_parent_domain_stands_for_its_domain(void **) {
    Ends &ends = soft_ends();
    ibv_context *const context = ends.server.id->verbs;
    ibv_td_init_attr none{};
    ibv_td *const thread = ibv_alloc_td(context, &none);
    assert_non_null(thread);
    ibv_parent_domain_init_attr wanted{};
    wanted.td = thread;
    errno = 0;
    assert_null(ibv_alloc_parent_domain(context, &wanted));
    assert_int_equal(errno, EINVAL);
    wanted.pd = ends.server.pd;
    ibv_pd *const parent = ibv_alloc_parent_domain(context, &wanted);
    assert_non_null(parent);
    assert_int_equal(ibv_dealloc_td(thread), EBUSY);
    wanted.pd = parent;
    assert_null(ibv_alloc_parent_domain(context, &wanted));

    std::vector<std::byte> bytes(4096);
    ibv_mr *const region = softrdma_ibv_reg_mr(parent, bytes.data(), bytes.size(), full_access);
    assert_non_null(region);
    assert_int_equal(softrdma_ibv_dealloc_pd(parent), EBUSY);
    fill(ends.client, 0, 64, 4);
    assert_int_equal(post(ends.client, {at(write_request(ends.client, ends.server, 0, 64, 1), *region,
                                           reinterpret_cast<std::uintptr_t>(bytes.data()))}),
                     0);
    expect_completion(ends.client.cq, 1);
    settle(ends.client, ends.server);
    assert_memory_equal(bytes.data(), ends.client.memory.data(), 64);
    assert_int_equal(softrdma_ibv_dereg_mr(region), 0);
    assert_int_equal(softrdma_ibv_dealloc_pd(parent), 0);
    assert_int_equal(ibv_dealloc_td(thread), 0);
}

constexpr CMUnitTest tests[] = {
    cmocka_unit_test(a_region_gets_other_rights),
    cmocka_unit_test(a_region_gets_other_memory),
    cmocka_unit_test(a_region_gets_another_domain),
    cmocka_unit_test(what_cannot_be_registered_again),
    cmocka_unit_test(a_peer_writes_while_its_region_changes),
    cmocka_unit_test(the_whole_address_space_is_a_region),
    cmocka_unit_test(addresses_that_begin_with_zero),
    cmocka_unit_test(device_memory_is_reached_by_its_calls_and_peers),
    cmocka_unit_test(a_parent_domain_stands_for_its_domain),
};

}  // namespace

std::span<const CMUnitTest> region_tests() {
    return tests;
}

}  // namespace conformance
