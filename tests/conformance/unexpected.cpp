// SPDX-License-Identifier: BSD-3-Clause
// conformance: tests sends that find no receive. InfiniBand's senders try again. The soft device keeps such
// sends while the connection goes on, and stalls past a bound (src/soft/ground/limits.hpp). Other iWARP
// devices end the connection.

#include "suite.hpp"

namespace conformance {

namespace {

// These are more sends, and more bytes, than the device keeps.
constexpr std::uint32_t too_many = 300;
constexpr std::size_t too_long = 300'000;

void skip_unless_kept(const Ends &ends) {
    if (ends.client.is_iwarp() && !subject.is_soft) {
        skip();
    }
}

void expect_all(const Ends &ends) {
    for (std::uint64_t i = 0; i < too_many; ++i) {
        expect_completion(ends.client.cq, i);
    }
}

// Sends that are acknowledged are not complete before they have their receives.
void expect_sent(const Ends &ends) {
    if (ends.client.is_acknowledged()) {
        expect_no_completion(ends.client.cq);
    } else {
        expect_all(ends);
    }
}

void sends_are_delivered_in_order_when_receives_come(void **) {
    Ends &ends = connected({.receive_wr = 64});
    skip_unless_kept(ends);
    for (std::uint64_t i = 0; i < 10; ++i) {
        fill(ends.client, i * 1000, 100 * i, static_cast<unsigned>(i));
        assert_int_equal(post(ends.client, {send_request(ends.client, i * 1000, 100 * i, i)}), 0);
    }
    for (std::uint64_t i = 0; i < 10; ++i) {
        assert_int_equal(post_receive(ends.server, 100 + i, {sge(ends.server, i * 1000, 1000)}), 0);
    }
    for (std::uint64_t i = 0; i < 10; ++i) {
        const ibv_wc received = next_completion(ends.server.cq);
        assert_int_equal(received.status, IBV_WC_SUCCESS);
        assert_int_equal(received.wr_id, 100 + i);
        assert_int_equal(received.byte_len, 100 * i);
        assert_true(holds(ends.server, i * 1000, 100 * i, static_cast<unsigned>(i)));
        expect_completion(ends.client.cq, i);
    }
}

void reads_writes_and_flushes_go_on_meanwhile(void **) {
    Ends &ends = connected();
    if (!subject.is_soft || ends.client.is_acknowledged()) {
        skip();
    }
    fill(ends.client, 0, 8192, 1);
    assert_int_equal(
        post(ends.client, {send_request(ends.client, 0, 5000, 1), send_request(ends.client, 0, 50, 2)}), 0);
    expect_completion(ends.client.cq, 1);
    expect_completion(ends.client.cq, 2);
    Request back = read_request(ends.client, ends.server, 0, 8192, 4);
    back.sges = {sge(ends.client, 8192, 8192)};
    assert_int_equal(post(ends.client, {write_request(ends.client, ends.server, 0, 8192, 3), back,
                                        flush_request(ends.server, 0, 8192, SOFTRDMA_FLUSH_GLOBAL, 5)}),
                     0);
    for (const std::uint64_t wr_id : {3U, 4U, 5U}) {
        expect_completion(ends.client.cq, wr_id);
    }
    assert_true(holds(ends.client, 8192, 8192, 1));
    // The first send takes this receive, and the second one waits on.
    assert_int_equal(post_receive(ends.server, 10, {sge(ends.server, 65536, 5000)}), 0);
    expect_completion(ends.server.cq, 10);
    assert_true(holds(ends.server, 65536, 5000, 1));
    expect_no_completion(ends.server.cq);
    settle(ends.client, ends.server);
    assert_int_equal(post_receive(ends.server, 11, {sge(ends.server, 65536, 50)}), 0);
    expect_completion(ends.server.cq, 11);
}

void a_kept_send_longer_than_the_receive_that_comes(void **) {
    Ends &ends = connected();
    skip_unless_kept(ends);
    assert_int_equal(post(ends.client, {send_request(ends.client, 0, 100, 1)}), 0);
    if (subject.is_soft && !ends.client.is_acknowledged()) {
        expect_completion(ends.client.cq, 1);
        settle(ends.client, ends.server);  // it is kept by now
    }
    assert_int_equal(post_receive(ends.server, 2, {sge(ends.server, 0, 99)}), 0);
    expect_completion(ends.server.cq, 2, IBV_WC_LOC_LEN_ERR);
    if (ends.client.is_acknowledged()) {
        expect_completion(ends.client.cq, 1, IBV_WC_REM_INV_REQ_ERR);
    }
    ends.expect_disconnected();
}

void past_the_number_that_is_kept_the_stream_waits(void **) {
    if (!subject.is_soft) {
        skip();
    }
    Ends &ends = connected({.send_wr = 512, .receive_wr = 512, .cqe = 1024});
    for (std::uint64_t i = 0; i < too_many; ++i) {
        fill(ends.client, i * 8, 8, static_cast<unsigned>(i));
        assert_int_equal(post(ends.client, {send_request(ends.client, i * 8, 8, i)}), 0);
    }
    Request back = read_request(ends.client, ends.server, 500'000, 8, too_many);
    assert_int_equal(post(ends.client, {back}), 0);
    expect_sent(ends);
    for (std::uint64_t i = 0; i < too_many; ++i) {
        assert_int_equal(post_receive(ends.server, i, {sge(ends.server, i * 8, 8)}), 0);
    }
    for (std::uint64_t i = 0; i < too_many; ++i) {
        expect_completion(ends.server.cq, i);
    }
    for (std::uint64_t i = 0; i < too_many; ++i) {
        assert_true(holds(ends.server, i * 8, 8, static_cast<unsigned>(i)));
    }
    if (ends.client.is_acknowledged()) {
        expect_all(ends);
    }
    expect_completion(ends.client.cq, too_many);  // the read, which waited with the rest
}

void past_the_bytes_that_are_kept_the_stream_waits(void **) {
    if (!subject.is_soft) {
        skip();
    }
    Ends &ends = connected();
    fill(ends.client, 0, too_long, 1);
    assert_int_equal(
        post(ends.client, {send_request(ends.client, 0, too_long, 1), send_request(ends.client, 1, 40'000, 2),
                           send_request(ends.client, 2, 40'000, 3),
                           read_request(ends.client, ends.server, 900'000, 8, 4)}),
        0);
    const std::size_t lengths[] = {too_long, 40'000, 40'000};
    for (const std::size_t length : lengths) {
        assert_int_equal(post_receive(ends.server, length, {sge(ends.server, 0, length)}), 0);
        const ibv_wc received = next_completion(ends.server.cq);
        assert_int_equal(received.status, IBV_WC_SUCCESS);
        assert_int_equal(received.byte_len, length);
    }
    assert_memory_equal(ends.server.memory.data(), ends.client.memory.data() + 2, 40'000);
    for (std::uint64_t wr_id = 1; wr_id <= 4; ++wr_id) {
        expect_completion(ends.client.cq, wr_id);
    }
}

// Posts more sends than the device keeps. Without acknowledgements it waits until TCP has them.
void stall(Ends &ends) {
    for (std::uint64_t i = 0; i < too_many; ++i) {
        assert_int_equal(post(ends.client, {send_request(ends.client, 0, 8, i)}), 0);
    }
    expect_sent(ends);
}

constexpr Sizes for_a_stall{.send_wr = 512, .receive_wr = 512, .cqe = 1024};

// The device takes the first message and the beginning of the second, so the write waits with the rest.
// Otherwise the peer could answer the write, and the answer would complete first.
void a_write_stays_behind_a_message_that_waits(void **) {
    constexpr std::size_t first = 900'000;
    constexpr std::size_t second = 1'650'000;
    Ends &ends = connected({.memory_bytes = second + 8});
    skip_unless_kept(ends);
    fill(ends.client, 0, second + 8, 1);
    // Within a host the device writes into the memory itself from the second write on.
    for (int writes = 0; writes < 2; ++writes) {
        assert_int_equal(post(ends.client, {write_request(ends.client, ends.server, 0, 8, 0)}), 0);
        expect_completion(ends.client.cq, 0);
        settle(ends.client, ends.server);
    }
    assert_int_equal(post(ends.client, {send_request(ends.client, 0, first, 1)}), 0);
    assert_int_equal(post(ends.client, {send_request(ends.client, 0, second, 2),
                                        write_request(ends.client, ends.server, second, 8, 3)}),
                     0);
    assert_false(same(ends.client, ends.server, second, 8));
    for (const std::uint64_t wr_id : {10U, 11U}) {
        assert_int_equal(post_receive(ends.server, wr_id, {sge(ends.server, 0, second)}), 0);
        expect_completion(ends.server.cq, wr_id);
    }
    for (const std::uint64_t wr_id : {1U, 2U, 3U}) {
        expect_completion(ends.client.cq, wr_id);
    }
    settle(ends.client, ends.server);
    assert_true(same(ends.client, ends.server, 0, second + 8));
}

void the_receiver_disconnects_while_stalled(void **) {
    if (!subject.is_soft) {
        skip();
    }
    Ends &ends = connected(for_a_stall);
    stall(ends);
    assert_int_equal(provider().cm.disconnect(ends.server.id), 0);
    ends.expect_disconnected();
}

// The end of the stream waits for receives, though not for ever. The sends that find a receive in time are
// delivered in order, and the rest is gone.
void the_sender_disconnects_while_the_receiver_is_stalled(void **) {
    if (!subject.is_soft) {
        skip();
    }
    Ends &ends = connected(for_a_stall);
    stall(ends);
    assert_int_equal(provider().cm.disconnect(ends.client.id), 0);
    for (std::uint64_t i = 0; i < too_many; ++i) {
        assert_int_equal(post_receive(ends.server, i, {sge(ends.server, i * 8, 8)}), 0);
    }
    bool over = false;
    for (std::uint64_t i = 0; i < too_many; ++i) {
        const ibv_wc received = next_completion(ends.server.cq);
        assert_int_equal(received.wr_id, i);
        over = over || received.status != IBV_WC_SUCCESS;
        assert_int_equal(received.status, over ? IBV_WC_WR_FLUSH_ERR : IBV_WC_SUCCESS);
    }
    ends.expect_disconnected();
}

void both_are_destroyed_while_stalled(void **) {
    if (!subject.is_soft) {
        skip();
    }
    Ends &ends = connected(for_a_stall);
    stall(ends);
    ends.server.destroy();
    expect_event(ends.client.events, RDMA_CM_EVENT_DISCONNECTED);
}

constexpr CMUnitTest tests[] = {
    cmocka_unit_test(sends_are_delivered_in_order_when_receives_come),
    cmocka_unit_test(reads_writes_and_flushes_go_on_meanwhile),
    cmocka_unit_test(a_kept_send_longer_than_the_receive_that_comes),
    cmocka_unit_test(past_the_number_that_is_kept_the_stream_waits),
    cmocka_unit_test(past_the_bytes_that_are_kept_the_stream_waits),
    cmocka_unit_test(a_write_stays_behind_a_message_that_waits),
    cmocka_unit_test(the_receiver_disconnects_while_stalled),
    cmocka_unit_test(the_sender_disconnects_while_the_receiver_is_stalled),
    cmocka_unit_test(both_are_destroyed_while_stalled),
};

}  // namespace

std::span<const CMUnitTest> unexpected_tests() {
    return tests;
}

}  // namespace conformance
