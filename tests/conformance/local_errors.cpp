// SPDX-License-Identifier: BSD-3-Clause
// conformance: tests errors that a device finds at its own side, and the end of a connection: each request is
// told its own status, and in order.
#include <cerrno>

#include "suite.hpp"

namespace conformance {

namespace {

constexpr std::uint32_t nobodys_key = 0xdead'0000;

// The requests before the bad one are done. Those behind it are flushed.
void bad_local_key(Request (*make_bad)(const Ends &)) {
    Ends &ends = connected();
    fill(ends.client, 0, 4096, 1);
    Request bad = make_bad(ends);
    bad.wr_id = 4;
    bad.sges[0].lkey = nobodys_key;
    Request back = read_request(ends.client, ends.server, 0, 4096, 3);
    back.sges = {sge(ends.client, 8192, 4096)};
    assert_int_equal(post(ends.client, {write_request(ends.client, ends.server, 0, 4096, 1),
                                        settling_request(ends.client, ends.server, 2), back, bad,
                                        write_request(ends.client, ends.server, 16384, 8, 5),
                                        unsignaled(read_request(ends.client, ends.server, 0, 8, 6))}),
                     0);
    for (const std::uint64_t wr_id : {1U, 2U, 3U}) {
        expect_completion(ends.client.cq, wr_id);
    }
    expect_completion(ends.client.cq, 4, IBV_WC_LOC_PROT_ERR);
    expect_completion(ends.client.cq, 5, IBV_WC_WR_FLUSH_ERR);
    expect_completion(ends.client.cq, 6, IBV_WC_WR_FLUSH_ERR);  // not asked for, but it failed
    expect_event(ends.client.events, RDMA_CM_EVENT_DISCONNECTED);
    assert_true(holds(ends.server, 0, 4096, 1));
    assert_true(holds(ends.client, 8192, 4096, 1));
}

void a_write_with_a_bad_local_key(void **) {
    bad_local_key([](const Ends &ends) { return write_request(ends.client, ends.server, 0, 64); });
}
void a_large_write_with_a_bad_local_key(void **) {
    bad_local_key([](const Ends &ends) { return write_request(ends.client, ends.server, 0, 1 << 20); });
}
void a_send_with_a_bad_local_key(void **) {
    bad_local_key([](const Ends &ends) { return send_request(ends.client, 0, 64); });
}
void a_read_with_a_bad_local_key(void **) {
    bad_local_key([](const Ends &ends) { return read_request(ends.client, ends.server, 0, 64); });
}

void a_write_beyond_its_region(void **) {
    Ends &ends = connected();
    settle(ends.client, ends.server);
    Request bad = write_request(ends.client, ends.server, 0, 64, 2);
    bad.sges[0].addr = ends.client.address(ends.client.memory.size() - 63);
    // The region that the first request uses is not looked up again for the second one.
    assert_int_equal(post(ends.client, {write_request(ends.client, ends.server, 0, 64, 1), bad}), 0);
    expect_completion(ends.client.cq, 1);
    expect_completion(ends.client.cq, 2, IBV_WC_LOC_PROT_ERR);
}

void a_read_into_memory_that_may_not_be_written(void **) {
    Ends &ends = connected();
    ibv_mr *const source_only =
        ends.client.register_memory(ends.client.memory.data(), 64, IBV_ACCESS_REMOTE_READ);
    assert_non_null(source_only);
    Request good = write_request(ends.client, ends.server, 0, 64, 1);
    Request bad = read_request(ends.client, ends.server, 0, 64, 2);
    good.sges[0].lkey = bad.sges[0].lkey = source_only->lkey;
    assert_int_equal(post(ends.client, {good, bad}), 0);
    expect_completion(ends.client.cq, 1);
    expect_completion(ends.client.cq, 2, IBV_WC_LOC_PROT_ERR);
}

void a_region_of_another_protection_domain(void **) {
    Ends &ends = connected();
    Request bad = write_request(ends.client, ends.server, 0, 64, 1);
    bad.sges = {sge(ends.server, 0, 64)};
    assert_int_equal(post(ends.client, {bad}), 0);
    expect_completion(ends.client.cq, 1, IBV_WC_LOC_PROT_ERR);
}

void a_region_that_was_deregistered(void **) {
    Ends &ends = connected();
    settle(ends.client, ends.server);
    const auto bad = write_request(ends.client, ends.server, 0, 64, 1);
    assert_int_equal(provider().domain.dereg_mr(std::exchange(ends.client.mr, nullptr)), 0);
    assert_int_equal(post(ends.client, {bad}), 0);
    expect_completion(ends.client.cq, 1, IBV_WC_LOC_PROT_ERR);
}

void a_receive_with_a_bad_key(void **) {
    Ends &ends = connected();
    auto bad = sge(ends.server, 0, 64);
    bad.lkey = nobodys_key;
    assert_int_equal(post_receive(ends.server, 1, {sge(ends.server, 64, 64)}), 0);
    assert_int_equal(post_receive(ends.server, 2, {bad}), 0);
    assert_int_equal(post_receive(ends.server, 3, {sge(ends.server, 128, 64)}), 0);
    assert_int_equal(
        post(ends.client, {send_request(ends.client, 0, 64, 1), send_request(ends.client, 0, 64, 2)}), 0);
    expect_completion(ends.server.cq, 1);
    expect_completion(ends.server.cq, 2, IBV_WC_LOC_PROT_ERR);
    expect_completion(ends.server.cq, 3, IBV_WC_WR_FLUSH_ERR);
    ends.expect_disconnected();
}

void a_send_longer_than_its_receive(void **) {
    for (const std::size_t size : {std::size_t{65}, std::size_t{100'000}}) {
        Ends &ends = connected();
        assert_int_equal(post_receive(ends.server, 1, {sge(ends.server, 0, 64)}), 0);
        assert_int_equal(post_receive(ends.server, 2, {sge(ends.server, 0, 64)}), 0);
        assert_int_equal(post(ends.client, {send_request(ends.client, 0, size, 1)}), 0);
        expect_completion(ends.server.cq, 1, IBV_WC_LOC_LEN_ERR);
        expect_completion(ends.server.cq, 2, IBV_WC_WR_FLUSH_ERR);
        ends.expect_disconnected();
        assert_int_equal(ends.server.memory[64], 0);
    }
}

void a_disconnect_flushes_what_is_open(void **) {
    Ends &ends = connected();
    assert_int_equal(post_receive(ends.client, 7, {sge(ends.client, 0, 8)}), 0);
    assert_int_equal(post_receive(ends.client, 8, {sge(ends.client, 0, 8)}), 0);
    assert_int_equal(post_receive(ends.server, 9, {sge(ends.server, 0, 8)}), 0);
    assert_int_equal(provider().cm.disconnect(ends.client.id), 0);
    ends.expect_disconnected();
    expect_completion(ends.client.cq, 7, IBV_WC_WR_FLUSH_ERR);
    expect_completion(ends.client.cq, 8, IBV_WC_WR_FLUSH_ERR);
    expect_completion(ends.server.cq, 9, IBV_WC_WR_FLUSH_ERR);
}

// Each request is done or flushed, in order, and none is done behind one that is flushed.
void a_disconnect_amid_large_requests(void **) {
    Ends &ends = connected({.memory_bytes = 4 << 20});
    std::vector<Request> requests;
    for (std::uint64_t i = 0; i < 12; ++i) {
        requests.push_back(i % 2 == 0 ? write_request(ends.client, ends.server, 0, 4 << 20, i)
                                      : read_request(ends.client, ends.server, 0, 4 << 20, i));
    }
    assert_int_equal(post(ends.client, requests), 0);
    assert_int_equal(provider().cm.disconnect(ends.client.id), 0);
    bool flushed = false;
    for (std::uint64_t i = 0; i < 12; ++i) {
        const ibv_wc completion = next_completion(ends.client.cq);
        assert_int_equal(completion.wr_id, i);
        flushed = flushed || completion.status != IBV_WC_SUCCESS;
        assert_int_equal(completion.status, flushed ? IBV_WC_WR_FLUSH_ERR : IBV_WC_SUCCESS);
    }
    ends.expect_disconnected();
}

void posts_behind_the_end_are_flushed(void **) {
    Ends &ends = connected({.send_wr = 4});
    assert_int_equal(provider().cm.disconnect(ends.client.id), 0);
    ends.expect_disconnected();
    for (const End *end : {&ends.client, &ends.server}) {
        for (unsigned round = 0; round < 3; ++round) {
            assert_int_equal(
                post(*end, {write_request(*end, *end, 0, 8, 1), unsignaled(send_request(*end, 0, 8, 2)),
                            read_request(*end, *end, 0, 8, 3)}),
                0);
            for (std::uint64_t wr_id = 1; wr_id <= 3; ++wr_id) {
                expect_completion(end->cq, wr_id, IBV_WC_WR_FLUSH_ERR);
            }
            assert_int_equal(post_receive(*end, 4, {sge(*end, 0, 8)}), 0);
            expect_completion(end->cq, 4, IBV_WC_WR_FLUSH_ERR);
        }
    }
}

constexpr CMUnitTest tests[] = {
    cmocka_unit_test(a_write_with_a_bad_local_key),
    cmocka_unit_test(a_large_write_with_a_bad_local_key),
    cmocka_unit_test(a_send_with_a_bad_local_key),
    cmocka_unit_test(a_read_with_a_bad_local_key),
    cmocka_unit_test(a_write_beyond_its_region),
    cmocka_unit_test(a_read_into_memory_that_may_not_be_written),
    cmocka_unit_test(a_region_of_another_protection_domain),
    cmocka_unit_test(a_region_that_was_deregistered),
    cmocka_unit_test(a_receive_with_a_bad_key),
    cmocka_unit_test(a_send_longer_than_its_receive),
    cmocka_unit_test(a_disconnect_flushes_what_is_open),
    cmocka_unit_test(a_disconnect_amid_large_requests),
    cmocka_unit_test(posts_behind_the_end_are_flushed),
};

}  // namespace

std::span<const CMUnitTest> local_error_tests() {
    return tests;
}

}  // namespace conformance
