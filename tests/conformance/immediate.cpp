// SPDX-License-Identifier: BSD-3-Clause
// conformance: tests immediate data of writes and of sends. The kernel's iWARP devices have none.
#include <arpa/inet.h>

#include "suite.hpp"

namespace conformance {

namespace {

constexpr std::uint64_t receive_id = 900;
// These are more messages than the device keeps when there is no receive.
constexpr std::uint32_t too_many = 300;

Ends &connected_with_immediate(const Sizes &sizes = {}) {
    Ends &ends = connected(sizes);
    if (!ends.client.native(verbs::native_immediate) && ends.client.is_iwarp()) {
        skip();
    }
    return ends;
}

void expect_received(const End &end, std::uint64_t wr_id, ibv_wc_opcode opcode, std::size_t bytes,
                     std::uint32_t immediate) {
    const ibv_wc received = next_completion(end.receive_cq);
    assert_int_equal(received.status, IBV_WC_SUCCESS);
    assert_int_equal(received.wr_id, wr_id);
    assert_int_equal(received.opcode, opcode);
    assert_int_equal(received.byte_len, bytes);
    assert_int_equal(received.wc_flags & IBV_WC_WITH_IMM, IBV_WC_WITH_IMM);
    assert_int_equal(received.imm_data, immediate);
    assert_int_equal(received.qp_num, end.id->qp->qp_num);
}

constexpr std::size_t lengths[] = {0, 1, 8, 511, 4096, 65'471, 65'472, 65'473, 200'000};

// All bytes of the write are there when the receive completes. The write does not
// touch the receive's own memory.
void a_write_with_immediate(void **) {
    Ends &ends = connected_with_immediate();
    std::uint32_t immediate = htonl(0x01020304);
    for (const std::size_t length : lengths) {
        ++immediate;
        fill(ends.client, 0, length, immediate);
        ends.server.memory[500'000] = std::byte{0x5a};
        assert_int_equal(post_receive(ends.server, receive_id, {sge(ends.server, 500'000, 8)}), 0);
        assert_int_equal(
            post(ends.client,
                 {with_immediate(write_request(ends.client, ends.server, 0, length, 3), immediate)}),
            0);
        expect_received(ends.server, receive_id, IBV_WC_RECV_RDMA_WITH_IMM, length, immediate);
        assert_true(holds(ends.server, 0, length, immediate));
        assert_int_equal(ends.server.memory[500'000], std::byte{0x5a});
        const ibv_wc sent = next_completion(ends.client.cq);
        assert_int_equal(sent.wr_id, 3);
        assert_int_equal(sent.status, IBV_WC_SUCCESS);
        assert_int_equal(sent.opcode, IBV_WC_RDMA_WRITE);
    }
    expect_no_completion(ends.server.cq);
}

void a_send_with_immediate(void **) {
    Ends &ends = connected_with_immediate();
    std::uint32_t immediate = htonl(0xfffffff0);
    for (const std::size_t length : lengths) {
        ++immediate;
        fill(ends.client, 0, length, immediate);
        assert_int_equal(post_receive(ends.server, receive_id, {sge(ends.server, 0, 200'000)}), 0);
        assert_int_equal(
            post(ends.client, {with_immediate(send_request(ends.client, 0, length, 3), immediate)}), 0);
        expect_received(ends.server, receive_id, IBV_WC_RECV, length, immediate);
        assert_true(holds(ends.server, 0, length, immediate));
        const ibv_wc sent = next_completion(ends.client.cq);
        assert_int_equal(sent.wr_id, 3);
        assert_int_equal(sent.status, IBV_WC_SUCCESS);
        assert_int_equal(sent.opcode, IBV_WC_SEND);
    }
}

// A completion without immediate data says so, also behind one that has some.
void others_have_none(void **) {
    Ends &ends = connected_with_immediate();
    for (std::uint64_t i = 0; i < 2; ++i) {
        assert_int_equal(post_receive(ends.server, i, {sge(ends.server, 0, 8)}), 0);
    }
    assert_int_equal(post(ends.client, {with_immediate(send_request(ends.client, 0, 8, 1), 7),
                                        send_request(ends.client, 0, 8, 2)}),
                     0);
    expect_received(ends.server, 0, IBV_WC_RECV, 8, 7);
    const ibv_wc plain = next_completion(ends.server.cq);
    assert_int_equal(plain.wr_id, 1);
    assert_int_equal(plain.wc_flags & IBV_WC_WITH_IMM, 0);
}

// Writes without immediate data that come before and between do not count. Each
// receive gets its own immediate.
void they_arrive_in_order(void **) {
    static constexpr std::uint32_t rounds = 16;
    Ends &ends = connected_with_immediate({.send_wr = 128, .receive_wr = 64, .cqe = 256});
    const End &client = ends.client;
    for (std::uint64_t i = 0; i < std::uint64_t{4} * rounds; ++i) {
        assert_int_equal(post_receive(ends.server, i, {sge(ends.server, 600'000 + i * 100, 100)}), 0);
    }
    std::vector<Request> chain;
    for (std::uint32_t i = 0; i < rounds; ++i) {
        chain.push_back(unsignaled(write_request(client, ends.server, 0, 70'000)));
        chain.push_back(with_immediate(unsignaled(write_request(client, ends.server, 0, i * 10)), 4 * i));
        chain.push_back(with_immediate(unsignaled(send_request(client, 0, i)), 4 * i + 1));
        chain.push_back(unsignaled(send_request(client, 0, 2 * i)));
        chain.push_back(with_immediate(write_request(client, ends.server, 0, 0), 4 * i + 3));
    }
    assert_int_equal(post(client, chain), 0);
    for (std::uint32_t i = 0; i < rounds; ++i) {
        expect_received(ends.server, 4 * i, IBV_WC_RECV_RDMA_WITH_IMM, i * 10, 4 * i);
        expect_received(ends.server, 4 * i + 1, IBV_WC_RECV, i, 4 * i + 1);
        const ibv_wc plain = next_completion(ends.server.cq);
        assert_int_equal(plain.byte_len, 2 * i);
        assert_int_equal(plain.wc_flags & IBV_WC_WITH_IMM, 0);
        expect_received(ends.server, 4 * i + 3, IBV_WC_RECV_RDMA_WITH_IMM, 0, 4 * i + 3);
        expect_completion(client.cq, 1);
    }
}

void inline_and_fenced(void **) {
    Ends &ends = connected_with_immediate();
    fill(ends.server, 0, 64, 1);
    fill(ends.client, 1000, 64, 2);
    for (std::uint64_t i = 0; i < 3; ++i) {
        assert_int_equal(post_receive(ends.server, i, {sge(ends.server, 600'000, 64)}), 0);
    }
    Request copied = inlined(with_immediate(write_request(ends.client, ends.server, 1000, 64), 1));
    copied.sges[0].lkey = 0;
    Request message = inlined(with_immediate(send_request(ends.client, 1000, 64), 2));
    message.sges[0].lkey = 0;
    // The read brings the bytes that the fenced write takes on.
    const Request read = read_request(ends.client, ends.server, 0, 64);
    Request onward = fenced(with_immediate(write_request(ends.client, ends.server, 0, 64), 3));
    onward.remote_address = ends.server.address(2000);
    assert_int_equal(post(ends.client, {copied, message, read, onward}), 0);
    std::fill_n(ends.client.memory.begin() + 1000, 64, std::byte{0});  // copied when it was posted
    expect_received(ends.server, 0, IBV_WC_RECV_RDMA_WITH_IMM, 64, 1);
    expect_received(ends.server, 1, IBV_WC_RECV, 64, 2);
    expect_received(ends.server, 2, IBV_WC_RECV_RDMA_WITH_IMM, 64, 3);
    assert_true(holds(ends.server, 1000, 64, 2));
    assert_true(holds(ends.server, 2000, 64, 1));
    assert_true(holds(ends.server, 600'000, 64, 2));
}

void solicited_ones_wake(void **) {
    Ends &ends = connected_with_immediate();
    for (const bool writes : {true, false}) {
        const Request request = with_immediate(
            writes ? write_request(ends.client, ends.server, 0, 8) : send_request(ends.client, 0, 8), 9);
        for (std::uint64_t i = 0; i < 2; ++i) {
            assert_int_equal(post_receive(ends.server, i, {sge(ends.server, 0, 8)}), 0);
        }
        arm(ends.server.cq, true);
        assert_int_equal(post(ends.client, {request}), 0);
        expect_completion(ends.server.cq, 0);
        assert_false(has_event(ends.server.channel->fd));
        assert_int_equal(post(ends.client, {solicited(request)}), 0);
        expect_cq_event(ends.server, ends.server.cq);
        expect_completion(ends.server.cq, 1);
        expect_completion(ends.client.cq, 1);
        expect_completion(ends.client.cq, 1);
    }
}

// The bytes of a write are placed though its immediate waits. More messages than the
// device keeps stall the stream.
void without_receives_they_wait(void **) {
    if (!subject.is_soft) {
        skip();
    }
    Ends &ends = connected_with_immediate({.send_wr = 512, .receive_wr = 512, .cqe = 1024});
    const auto message = [&ends](std::uint32_t i) {
        return i % 2 == 0 ? write_request(ends.client, ends.server, i * 8, 8, i)
                          : send_request(ends.client, i * 8, 8, i);
    };
    for (std::uint32_t i = 0; i < too_many; ++i) {
        fill(ends.client, i * std::size_t{8}, 8, i);
        assert_int_equal(post(ends.client, {with_immediate(message(i), htonl(i))}), 0);
    }
    const auto expect_all = [&ends] {
        for (std::uint32_t i = 0; i < too_many; ++i) {
            expect_completion(ends.client.cq, i);
        }
    };
    if (!ends.client.is_acknowledged()) {
        expect_all();
    }
    for (std::uint32_t i = 0; i < too_many; ++i) {
        const std::size_t place = i % 2 == 0 ? 500'000 : i * 8;
        assert_int_equal(post_receive(ends.server, i, {sge(ends.server, place, 8)}), 0);
    }
    for (std::uint32_t i = 0; i < too_many; ++i) {
        expect_received(ends.server, i, i % 2 == 0 ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV, 8, htonl(i));
        assert_true(holds(ends.server, i * std::size_t{8}, 8, i));
    }
    if (ends.client.is_acknowledged()) {
        expect_all();
    }
    settle(ends.client, ends.server);
}

void a_send_with_immediate_longer_than_its_receive(void **) {
    Ends &ends = connected_with_immediate();
    assert_int_equal(post_receive(ends.server, 2, {sge(ends.server, 0, 99)}), 0);
    assert_int_equal(post(ends.client, {with_immediate(send_request(ends.client, 0, 100, 1), 5)}), 0);
    expect_completion(ends.server.cq, 2, IBV_WC_LOC_LEN_ERR);
    ends.expect_disconnected();
}

// A write that is not allowed takes no receive.
void a_write_that_is_refused(void **) {
    Ends &ends = connected_with_immediate();
    assert_int_equal(post_receive(ends.server, 2, {sge(ends.server, 0, 8)}), 0);
    Request bad = with_immediate(unsignaled(write_request(ends.client, ends.server, 0, 8, 1)), 5);
    bad.rkey ^= 0xfff;
    assert_int_equal(post(ends.client, {bad, settling_request(ends.client, ends.server, 2)}), 0);
    const ibv_wc refused = next_completion(ends.client.cq);
    assert_int_equal(refused.status, IBV_WC_REM_ACCESS_ERR);
    expect_completion(ends.server.cq, 2, IBV_WC_WR_FLUSH_ERR);
    ends.expect_disconnected();
}

constexpr CMUnitTest tests[] = {
    cmocka_unit_test(a_write_with_immediate),
    cmocka_unit_test(a_send_with_immediate),
    cmocka_unit_test(others_have_none),
    cmocka_unit_test(they_arrive_in_order),
    cmocka_unit_test(inline_and_fenced),
    cmocka_unit_test(solicited_ones_wake),
    cmocka_unit_test(without_receives_they_wait),
    cmocka_unit_test(a_send_with_immediate_longer_than_its_receive),
    cmocka_unit_test(a_write_that_is_refused),
};

}  // namespace

std::span<const CMUnitTest> immediate_tests() {
    return tests;
}

}  // namespace conformance
