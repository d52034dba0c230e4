// SPDX-License-Identifier: BSD-3-Clause
// conformance: tests errors that the target finds. On InfiniBand and RoCE, and between queue pairs of the
// soft device by number, the request itself fails. On iWARP a write is done once TCP has it. The error is the
// status of the oldest request that is still open, and every request behind that one is flushed.
#include <limits>

#include "suite.hpp"

namespace conformance {

namespace {

// Posts the bad request with a question of each kind behind it, and expects the refusal. `asks` says that the
// bad request asks for an answer.
void expect_refused(Ends &ends, Request bad, bool asks, ibv_wc_status status = IBV_WC_REM_ACCESS_ERR) {
    bad.wr_id = 2;
    Request keep = unsignaled(write_request(ends.client, ends.server, 4096, 64, 1));
    fill(ends.client, 4096, 64, 5);
    assert_int_equal(post_receive(ends.client, 70, {sge(ends.client, 0, 8)}), 0);
    assert_int_equal(post_receive(ends.server, 80, {sge(ends.server, 0, 8)}), 0);
    assert_int_equal(post(ends.client, {keep, bad, read_request(ends.client, ends.server, 8192, 8, 3),
                                        write_request(ends.client, ends.server, 0, 8, 4),
                                        settling_request(ends.client, ends.server, 5)}),
                     0);
    const bool the_request_itself = asks || ends.client.is_acknowledged();
    if (!the_request_itself) {
        expect_completion(ends.client.cq, 2);
    }
    std::vector<ibv_wc> left;
    for (unsigned count = the_request_itself ? 5 : 4; count != 0; --count) {
        left.push_back(next_completion(ends.client.cq));
    }
    // The receive is flushed too, and its completion may be at any place.
    assert_int_equal(std::erase_if(left, [](const ibv_wc &one) { return one.wr_id == 70; }), 1);
    for (std::size_t i = 0; i < left.size(); ++i) {
        assert_int_equal(left[i].wr_id, 6 - left.size() + i);
        assert_int_equal(left[i].status, i == 0 ? status : IBV_WC_WR_FLUSH_ERR);
    }
    expect_completion(ends.server.cq, 80, IBV_WC_WR_FLUSH_ERR);
    ends.expect_disconnected();
    assert_true(holds(ends.server, 4096, 64, 5));  // what came before it arrived
}

// Does some damage to a good request.
using Damage = void (*)(const Ends &, Request &);

void bad_key(const Ends &, Request &request) {
    request.rkey ^= 0x0000'0fff;
}
void no_key(const Ends &, Request &request) {
    request.rkey = 0;
}
void foreign_key(const Ends &ends, Request &request) {
    request.rkey = ends.client.mr->rkey;
}  // another domain's
void below(const Ends &ends, Request &request) {
    request.remote_address = ends.server.address() - 1;
}
void beyond(const Ends &ends, Request &request) {
    request.remote_address = ends.server.address(ends.server.memory.size() - request.sges[0].length + 1);
}
void wrapping(const Ends &, Request &request) {
    request.remote_address = std::numeric_limits<std::uint64_t>::max() - 3;
}

constexpr Damage damages[] = {bad_key, no_key, foreign_key, below, beyond, wrapping};

void writes_that_are_not_allowed(void **) {
    for (const Damage damage : damages) {
        for (const std::size_t size : {std::size_t{8}, std::size_t{20'000}}) {
            Ends &ends = connected();
            Request bad = write_request(ends.client, ends.server, 16384, size);
            damage(ends, bad);
            expect_refused(ends, bad, false);
        }
    }
}

void reads_that_are_not_allowed(void **) {
    for (const Damage damage : damages) {
        for (const std::size_t size : {std::size_t{8}, std::size_t{20'000}}) {
            Ends &ends = connected();
            Request bad = read_request(ends.client, ends.server, 16384, size);
            damage(ends, bad);
            expect_refused(ends, bad, true);
        }
    }
}

void flushes_that_are_not_allowed(void **) {
    for (const Damage damage : damages) {
        Ends &ends = connected();
        if (!ends.client.native(verbs::native_flush)) {
            skip();
        }
        Request bad = flush_request(ends.server, 0, 64);
        damage(ends, bad);
        expect_refused(ends, bad, true);
    }
}

void atomic_writes_that_are_not_allowed(void **) {
    for (const Damage damage : damages) {
        Ends &ends = connected();
        if (!ends.client.native(verbs::native_atomic_write)) {
            skip();
        }
        Request bad = atomic_write_request(ends.client, ends.server, 0);
        damage(ends, bad);
        bad.remote_address &= ~std::uint64_t{7};
        if (damage == beyond) {
            bad.remote_address += 8;
        } else if (damage == wrapping) {
            bad.remote_address = std::numeric_limits<std::uint64_t>::max() - 7;
        }
        expect_refused(ends, bad, false);
    }
}

// The regions were registered for something else.
void rights_that_are_missing(void **) {
    static constexpr int local = IBV_ACCESS_LOCAL_WRITE;
    const auto server_region = [](Ends &ends, int access) {
        ibv_mr *const region = ends.server.register_memory(ends.server.memory.data(), 4096, access);
        assert_non_null(region);
        return region->rkey;
    };
    {
        Ends &ends = connected();
        Request bad = write_request(ends.client, ends.server, 0, 64);
        bad.rkey = server_region(ends, local | IBV_ACCESS_REMOTE_READ);
        expect_refused(ends, bad, false);
    }
    {
        Ends &ends = connected();
        Request bad = read_request(ends.client, ends.server, 0, 64);
        bad.rkey = server_region(ends, local | IBV_ACCESS_REMOTE_WRITE);
        expect_refused(ends, bad, true);
    }
    for (const std::uint32_t level :
         {std::uint32_t{SOFTRDMA_FLUSH_GLOBAL}, std::uint32_t{SOFTRDMA_FLUSH_PERSISTENT}}) {
        Ends &ends = connected();
        if (ends.client.native(verbs::native_flush)) {
            Request bad = flush_request(ends.server, 0, 64, level);
            bad.rkey = server_region(ends, full_access);
            expect_refused(ends, bad, true);
        }
    }
}

void a_region_that_the_target_deregistered(void **) {
    Ends &ends = connected();
    ibv_mr *const region =
        provider().domain.reg_mr(ends.server.pd, ends.server.memory.data(), 4096, full_access);
    Request bad = write_request(ends.client, ends.server, 0, 64);
    bad.rkey = region->rkey;
    assert_int_equal(post(ends.client, {bad}), 0);
    expect_completion(ends.client.cq, 1);
    settle(ends.client, ends.server);
    assert_int_equal(provider().domain.dereg_mr(region), 0);
    expect_refused(ends, bad, false);
}

// The oldest request that is open is a read in the middle of its answer.
void an_error_while_the_target_answers(void **) {
    Ends &ends = connected({.memory_bytes = 8 << 20});
    Request bad = write_request(ends.client, ends.server, 0, 8, 6);
    bad.rkey = 0;
    std::vector<Request> requests;
    for (std::uint64_t i = 0; i < 6; ++i) {
        requests.push_back(read_request(ends.client, ends.server, 0, 8 << 20, i));
    }
    requests.push_back(bad);
    assert_int_equal(post(ends.client, requests), 0);
    unsigned told = 0;
    ibv_wc_status before = IBV_WC_SUCCESS;
    for (std::uint64_t i = 0; i < 7; ++i) {
        const ibv_wc completion = next_completion(ends.client.cq);
        assert_int_equal(completion.wr_id, i);
        told += completion.status == IBV_WC_REM_ACCESS_ERR ? 1 : 0;
        assert_true(before == IBV_WC_SUCCESS || completion.status == IBV_WC_WR_FLUSH_ERR);
        before = completion.status;
    }
    ends.expect_disconnected();
    assert_int_equal(told, 1);
}

// When no request is open, the initiator sees only the end of the connection.
void a_write_that_is_not_allowed_with_nothing_behind_it(void **) {
    Ends &ends = connected();
    Request bad = write_request(ends.client, ends.server, 0, 8, 1);
    bad.rkey = 0;
    assert_int_equal(post(ends.client, {bad}), 0);
    expect_completion(ends.client.cq, 1,
                      ends.client.is_acknowledged() ? IBV_WC_REM_ACCESS_ERR : IBV_WC_SUCCESS);
    ends.expect_disconnected();
    assert_int_equal(post(ends.client, {write_request(ends.client, ends.server, 0, 8, 2)}), 0);
    expect_completion(ends.client.cq, 2, IBV_WC_WR_FLUSH_ERR);
    assert_int_equal(ends.server.memory[0], 0);
}

void a_send_too_long_is_an_invalid_request(void **) {
    Ends &ends = connected();
    assert_int_equal(post_receive(ends.server, 1, {sge(ends.server, 0, 64)}), 0);
    assert_int_equal(post(ends.client, {send_request(ends.client, 0, 65, 1),
                                        read_request(ends.client, ends.server, 0, 8, 2)}),
                     0);
    const bool later = !ends.client.is_acknowledged();
    expect_completion(ends.client.cq, 1, later ? IBV_WC_SUCCESS : IBV_WC_REM_INV_REQ_ERR);
    expect_completion(ends.client.cq, 2, later ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_WR_FLUSH_ERR);
}

void a_receive_that_cannot_be_filled_is_the_targets_own_error(void **) {
    Ends &ends = connected();
    auto bad = sge(ends.server, 0, 64);
    bad.lkey = 0xdead'0000;
    assert_int_equal(post_receive(ends.server, 1, {bad}), 0);
    assert_int_equal(post(ends.client, {send_request(ends.client, 0, 8, 1),
                                        read_request(ends.client, ends.server, 0, 8, 2)}),
                     0);
    const bool later = !ends.client.is_acknowledged();
    expect_completion(ends.client.cq, 1, later ? IBV_WC_SUCCESS : IBV_WC_REM_OP_ERR);
    expect_completion(ends.client.cq, 2, later ? IBV_WC_REM_OP_ERR : IBV_WC_WR_FLUSH_ERR);
}

constexpr CMUnitTest tests[] = {
    cmocka_unit_test(writes_that_are_not_allowed),
    cmocka_unit_test(reads_that_are_not_allowed),
    cmocka_unit_test(flushes_that_are_not_allowed),
    cmocka_unit_test(atomic_writes_that_are_not_allowed),
    cmocka_unit_test(rights_that_are_missing),
    cmocka_unit_test(a_region_that_the_target_deregistered),
    cmocka_unit_test(an_error_while_the_target_answers),
    cmocka_unit_test(a_write_that_is_not_allowed_with_nothing_behind_it),
    cmocka_unit_test(a_send_too_long_is_an_invalid_request),
    cmocka_unit_test(a_receive_that_cannot_be_filled_is_the_targets_own_error),
};

}  // namespace

std::span<const CMUnitTest> remote_error_tests() {
    return tests;
}

}  // namespace conformance
