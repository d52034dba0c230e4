// SPDX-License-Identifier: BSD-3-Clause
// conformance: tests sends with invalidate (RFC 5040 section 5.3): the peer of a key gives it back with a
// message, for its connection. Devices of hardware take back no key of an ordinary region.
#include <algorithm>
#include <chrono>
#include <thread>

#include "suite.hpp"

namespace conformance {

namespace {

Request invalidating(Request send, std::uint32_t rkey) {
    send.opcode = IBV_WR_SEND_WITH_INV;
    send.immediate = rkey;
    return send;
}

// Two ends are connected, and the server has a region that the client may write to.
struct Given {
    explicit Given(const Sizes &sizes = {}) : ends{connected(sizes)} {
        if (!subject.is_soft) {
            skip();
        }
        region = ends.server.register_memory(
            bytes.data(), bytes.size(),
            full_access | IBV_ACCESS_REMOTE_ATOMIC | SOFTRDMA_ACCESS_FLUSH_GLOBAL);
        assert_non_null(region);
    }
    // Returns the request, aimed at the region.
    [[nodiscard]] Request to_region(Request request) const {
        request.remote_address = reinterpret_cast<std::uintptr_t>(bytes.data());
        request.rkey = region->rkey;
        return request;
    }
    [[nodiscard]] Request write(std::uint64_t wr_id) const {
        return to_region(write_request(ends.client, ends.server, 0, 8, wr_id));
    }

    Ends &ends;
    std::vector<std::byte> bytes = std::vector<std::byte>(4096);
    ibv_mr *region = nullptr;
};

void expect_invalidated(const End &end, std::uint64_t wr_id, std::size_t bytes, std::uint32_t rkey) {
    const ibv_wc received = next_completion(end.cq);
    assert_int_equal(received.status, IBV_WC_SUCCESS);
    assert_int_equal(received.wr_id, wr_id);
    assert_int_equal(received.opcode, IBV_WC_RECV);
    assert_int_equal(received.byte_len, bytes);
    assert_int_equal(received.wc_flags, IBV_WC_WITH_INV);
    assert_int_equal(received.invalidated_rkey, rkey);
}

void a_key_that_was_given_back_is_the_peers_no_more(void **) {
    for (const std::size_t length : {std::size_t{0}, std::size_t{64}, std::size_t{200'000}}) {
        auto &given = make<Given>();
        Ends &ends = given.ends;
        const std::uint32_t rkey = given.region->rkey;
        fill(ends.client, 0, length, 3);
        assert_int_equal(post_receive(ends.server, 5, {sge(ends.server, 0, 200'000)}), 0);
        assert_int_equal(
            post(ends.client, {given.write(1), invalidating(send_request(ends.client, 0, length, 2), rkey)}),
            0);
        expect_completion(ends.client.cq, 1);
        const ibv_wc sent = next_completion(ends.client.cq);
        assert_int_equal(sent.status, IBV_WC_SUCCESS);
        assert_int_equal(sent.opcode, IBV_WC_SEND);
        expect_invalidated(ends.server, 5, length, rkey);
        assert_true(holds(ends.server, 0, length, 3));
        // The region's own program goes on with it.
        Request own = send_request(ends.server, 0, 8, 6);
        own.sges = {{.addr = reinterpret_cast<std::uintptr_t>(given.bytes.data()),
                     .length = 8,
                     .lkey = given.region->lkey}};
        assert_int_equal(post_receive(ends.client, 7, {sge(ends.client, 0, 8)}), 0);
        assert_int_equal(post(ends.server, {own}), 0);
        expect_completion(ends.server.cq, 6);
        expect_completion(ends.client.cq, 7);
        given.bytes[0] = std::byte{0x5a};
        assert_int_equal(
            post(ends.client, {unsignaled(given.write(8)), read_request(ends.client, ends.server, 0, 8, 9)}),
            0);
        assert_int_equal(next_completion(ends.client.cq).status, IBV_WC_REM_ACCESS_ERR);
        ends.expect_disconnected();
        assert_int_equal(given.bytes[0], 0x5a);
    }
}

// A write behind the message does not overtake it, though the peer has used the key before.
void a_write_in_the_same_chain_is_refused(void **) {
    auto &given = make<Given>();
    Ends &ends = given.ends;
    assert_int_equal(post(ends.client, {given.write(1)}), 0);
    expect_completion(ends.client.cq, 1);
    settle(ends.client, ends.server);
    // A connection through memory comes to rest, and writes the next time without it.
    std::this_thread::sleep_for(std::chrono::milliseconds{20});
    assert_int_equal(post(ends.client, {given.write(2)}), 0);
    expect_completion(ends.client.cq, 2);
    settle(ends.client, ends.server);
    given.bytes[0] = std::byte{0x5a};
    fill(ends.client, 0, 8, 1);
    assert_int_equal(post_receive(ends.server, 5, {sge(ends.server, 0, 8)}), 0);
    assert_int_equal(
        post(ends.client, {unsignaled(invalidating(send_request(ends.client, 0, 8), given.region->rkey)),
                           unsignaled(given.write(8)), read_request(ends.client, ends.server, 64, 8, 9)}),
        0);
    assert_int_equal(next_completion(ends.client.cq).status, IBV_WC_REM_ACCESS_ERR);
    ends.expect_disconnected();
    assert_int_equal(given.bytes[0], 0x5a);
}

void for_no_operation(void **) {
    for (int which = 0; which < 4; ++which) {
        auto &given = make<Given>();
        Ends &ends = given.ends;
        const Request add{
            .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .sges = {sge(ends.client, 0, 8)}, .compare_add = 1};
        const Request operations[] = {read_request(ends.client, ends.server, 0, 8),
                                      flush_request(ends.server, 0, 8), add,
                                      atomic_write_request(ends.client, ends.server, 0)};
        Request operation = given.to_region(operations[which]);
        operation.wr_id = 4;
        assert_int_equal(post_receive(ends.server, 5, {sge(ends.server, 0, 8)}), 0);
        fill(ends.client, 0, 8, 1);
        // An ATOMIC WRITE is a write. Without acknowledgements the read behind it sees the end.
        const bool later = which == 3 && !ends.client.is_acknowledged();
        assert_int_equal(
            post(ends.client, {unsignaled(invalidating(send_request(ends.client, 0, 8), given.region->rkey)),
                               later ? unsignaled(operation) : operation,
                               read_request(ends.client, ends.server, 64, 8, 6)}),
            0);
        expect_invalidated(ends.server, 5, 8, given.region->rkey);
        expect_completion(ends.client.cq, later ? 6 : 4, IBV_WC_REM_ACCESS_ERR);
        ends.expect_disconnected();
        assert_true(std::ranges::all_of(given.bytes, [](std::byte byte) { return byte == std::byte{0}; }));
    }
}

// A client of the same server, with the same protection domain, may have been given the key too.
void other_connections_keep_it(void **) {
    auto &given = make<Given>();
    Ends &ends = given.ends;
    End &client = make<End>();
    End &server = make<End>(Sizes{}, &ends.server);
    client.resolve(ends.listener.port);
    client.request();
    server.take(ends.listener.take_request().id);
    server.accept();
    expect_event(client.events, RDMA_CM_EVENT_ESTABLISHED);
    expect_event(server.events, RDMA_CM_EVENT_ESTABLISHED);
    assert_int_equal(post_receive(ends.server, 5, {sge(ends.server, 0, 8)}), 0);
    assert_int_equal(
        post(ends.client, {unsignaled(invalidating(send_request(ends.client, 0, 8), given.region->rkey))}),
        0);
    expect_invalidated(ends.server, 5, 8, given.region->rkey);
    fill(client, 0, 8, 9);
    assert_int_equal(post(client, {unsignaled(given.to_region(write_request(client, ends.server, 0, 8))),
                                   given.to_region(read_request(client, ends.server, 64, 8, 2))}),
                     0);
    expect_completion(client.cq, 2);
    assert_memory_equal(client.memory.data() + 64, client.memory.data(), 8);
}

// The message waits for its receive, but the key does not wait.
void a_message_that_waits(void **) {
    auto &given = make<Given>();
    Ends &ends = given.ends;
    const std::uint32_t rkey = given.region->rkey;
    assert_int_equal(post(ends.client, {solicited(invalidating(send_request(ends.client, 0, 100, 2), rkey))}),
                     0);
    if (!ends.client.is_acknowledged()) {
        expect_completion(ends.client.cq, 2);
        settle(ends.client, ends.server);
    }
    arm(ends.server.cq, true);
    assert_int_equal(post_receive(ends.server, 5, {sge(ends.server, 0, 100)}), 0);
    expect_cq_event(ends.server, ends.server.cq);
    expect_invalidated(ends.server, 5, 100, rkey);
}

void a_prepared_one(void **) {
    if (!subject.is_soft) {
        skip();
    }
    auto &given = make<Given>(Sizes{.send_operations = IBV_QP_EX_WITH_SEND_WITH_INV});
    Ends &ends = given.ends;
    assert_int_equal(post_receive(ends.server, 5, {sge(ends.server, 0, 100)}), 0);
    ibv_qp_ex *const qp = softrdma_ibv_qp_to_qp_ex(ends.client.id->qp);
    ibv_wr_start(qp);
    qp->wr_id = 1;
    qp->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_send_inv(qp, given.region->rkey);
    ibv_wr_set_sge(qp, ends.client.mr->lkey, ends.client.address(), 10);
    assert_int_equal(ibv_wr_complete(qp), 0);
    expect_completion(ends.client.cq, 1);
    expect_invalidated(ends.server, 5, 10, given.region->rkey);
}

// A peer takes away no key that it was not given, and no key twice.
void keys_that_cannot_be_given_back(void **) {
    for (int which = 0; which < 4; ++which) {
        auto &given = make<Given>();
        Ends &ends = given.ends;
        const ibv_mr *const own = ends.server.register_memory(given.bytes.data(), 64, IBV_ACCESS_LOCAL_WRITE);
        assert_non_null(own);
        const std::uint32_t keys[] = {given.region->rkey ^ 1, own->rkey, ends.client.mr->rkey,
                                      given.region->rkey};
        assert_int_equal(post_receive(ends.server, 5, {sge(ends.server, 0, 100)}), 0);
        if (which == 3) {
            assert_int_equal(post_receive(ends.server, 6, {sge(ends.server, 0, 100)}), 0);
            assert_int_equal(
                post(ends.client, {unsignaled(invalidating(send_request(ends.client, 0, 8), keys[which]))}),
                0);
            expect_invalidated(ends.server, 5, 8, keys[which]);
        }
        assert_int_equal(
            post(ends.client, {unsignaled(invalidating(send_request(ends.client, 0, 8), keys[which])),
                               read_request(ends.client, ends.server, 0, 8, 2)}),
            0);
        expect_completion(ends.client.cq, ends.client.is_acknowledged() ? 1 : 2, IBV_WC_REM_ACCESS_ERR);
        expect_completion(ends.server.cq, which == 3 ? 6 : 5, IBV_WC_WR_FLUSH_ERR);
        ends.expect_disconnected();
    }
}

constexpr CMUnitTest tests[] = {
    cmocka_unit_test(a_key_that_was_given_back_is_the_peers_no_more),
    cmocka_unit_test(a_write_in_the_same_chain_is_refused),
    cmocka_unit_test(for_no_operation),
    cmocka_unit_test(other_connections_keep_it),
    cmocka_unit_test(a_message_that_waits),
    cmocka_unit_test(a_prepared_one),
    cmocka_unit_test(keys_that_cannot_be_given_back),
};

}  // namespace

std::span<const CMUnitTest> invalidation_tests() {
    return tests;
}

}  // namespace conformance
