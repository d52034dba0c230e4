// SPDX-License-Identifier: BSD-3-Clause
// conformance: queue pairs that their programs connect by number: states, what a program sets, how the two
// ends find each other, and what the end of a peer does.
#include <cerrno>
#include <chrono>
#include <cstring>

#include "suite.hpp"

namespace conformance {

namespace {

ibv_qp_attr query(const End &end) {
    ibv_qp_attr attributes{};
    ibv_qp_init_attr init{};
    assert_int_equal(softrdma_ibv_query_qp(end.id->qp, &attributes, IBV_QP_STATE, &init), 0);
    return attributes;
}

int change(const End &end, ibv_qp_state state, int mask = 0) {
    ibv_qp_attr attributes{};
    attributes.qp_state = state;
    attributes.port_num = 1;
    return softrdma_ibv_modify_qp(end.id->qp, &attributes, IBV_QP_STATE | mask);
}

std::uint32_t number_of(const End &end) {
    return end.id->qp->qp_num;
}

// Two ends whose queue pairs are in RESET.
struct Pair {
    explicit Pair(const Sizes &sizes = {}) : a{sizes}, b{sizes} {
        a.prepare();
        b.prepare();
    }
    End a;
    End b;
};

Pair &unconnected(const Sizes &sizes = {}) {
    return make<Pair>(sizes);
}

Pair &by_number(const Sizes &sizes = {}) {
    Pair &pair = unconnected(sizes);
    pair.a.connect_to(number_of(pair.b));
    pair.b.connect_to(number_of(pair.a));
    return pair;
}

void expect_message(const End &from, const End &to, std::uint64_t wr_id) {
    assert_int_equal(post_receive(to, wr_id, {sge(to, 0, 8)}), 0);
    assert_int_equal(post(from, {send_request(from, 0, 8, wr_id + 1)}), 0);
    expect_completion(to.cq, wr_id);
    expect_completion(from.cq, wr_id + 1);
}

void each_state_has_its_attributes(void **) {
    Pair &pair = unconnected();
    const End &end = pair.a;
    assert_int_equal(query(end).qp_state, IBV_QPS_RESET);
    assert_int_equal(enter_rtr(end.id->qp, number_of(pair.b)), EINVAL);  // from RESET
    assert_int_equal(enter_init(end.id->qp), 0);
    assert_int_equal(enter_init(end.id->qp), 0);
    assert_int_equal(query(end).qp_state, IBV_QPS_INIT);
    assert_int_equal(change(end, IBV_QPS_RTR, IBV_QP_DEST_QPN), EINVAL);  // no path
    assert_int_equal(query(end).qp_state, IBV_QPS_INIT);
    assert_int_equal(post(end, {send_request(end, 0, 8)}), EINVAL);
    assert_int_equal(enter_rtr(end.id->qp, 1U << 24), EINVAL);
    assert_int_equal(enter_rtr(end.id->qp, number_of(pair.b), 65), EINVAL);
    assert_int_equal(enter_rtr(end.id->qp, number_of(pair.b), 5), 0);
    assert_int_equal(query(end).qp_state, IBV_QPS_RTR);
    assert_int_equal(post(end, {send_request(end, 0, 8)}), EINVAL);
    assert_int_equal(enter_rtr(end.id->qp, number_of(pair.b)), EINVAL);
    assert_int_equal(enter_init(end.id->qp), EINVAL);
    assert_int_equal(change(end, IBV_QPS_RTS, IBV_QP_SQ_PSN), EINVAL);  // no time-out
    assert_int_equal(enter_rts(end.id->qp, 65), EINVAL);
    assert_int_equal(enter_rts(end.id->qp, 3), 0);
    assert_int_equal(query(end).qp_state, IBV_QPS_RTS);
    assert_int_equal(enter_init(end.id->qp), EINVAL);
    assert_int_equal(change(end, IBV_QPS_ERR), 0);
    assert_int_equal(enter_rts(end.id->qp), EINVAL);
    assert_int_equal(enter_init(end.id->qp), EINVAL);
    assert_int_equal(change(end, IBV_QPS_RESET), 0);
    assert_int_equal(query(end).qp_state, IBV_QPS_RESET);
}

// InfiniBand's table says what has to be set with INIT, and what cannot be set there, later, or at the end.
void each_change_takes_its_own_attributes(void **) {
    Pair &pair = unconnected();
    const End &end = pair.a;
    const auto set = [&](ibv_qp_state state, int mask, std::uint16_t key = 0, std::uint8_t port = 1) {
        ibv_qp_attr attributes{};
        attributes.qp_state = state;
        attributes.pkey_index = key;
        attributes.port_num = port;
        return softrdma_ibv_modify_qp(end.id->qp, &attributes, mask);
    };
    constexpr int of_init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    if (end.id->verbs->device->transport_type == IBV_TRANSPORT_IB) {
        for (const int missing : {IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_ACCESS_FLAGS}) {
            assert_int_equal(set(IBV_QPS_INIT, of_init & ~missing), EINVAL);
        }
        for (const int more : {IBV_QP_QKEY, IBV_QP_AV, IBV_QP_DEST_QPN, IBV_QP_TIMEOUT}) {
            assert_int_equal(set(IBV_QPS_INIT, of_init | more), EINVAL);
        }
        assert_int_equal(set(IBV_QPS_INIT, of_init, 1), EINVAL);
        assert_int_equal(set(IBV_QPS_INIT, of_init, 0, 2), EINVAL);
        assert_int_equal(query(end).qp_state, IBV_QPS_RESET);
    }
    assert_int_equal(set(IBV_QPS_INIT, of_init), 0);
    assert_int_equal(set(IBV_QPS_INIT, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS), 0);
    assert_int_equal(enter_rtr(end.id->qp, number_of(pair.b)), 0);
    assert_int_equal(set(IBV_QPS_RTR, IBV_QP_ACCESS_FLAGS), EINVAL);
    assert_int_equal(enter_rts(end.id->qp), 0);
    assert_int_equal(set(IBV_QPS_RTS, IBV_QP_ACCESS_FLAGS), 0);
    for (const int other : {IBV_QP_DEST_QPN, IBV_QP_AV, IBV_QP_PORT, IBV_QP_TIMEOUT}) {
        assert_int_equal(set(IBV_QPS_RTS, other), EINVAL);
    }
    assert_int_equal(query(end).dest_qp_num, number_of(pair.b));
    for (const ibv_qp_state last : {IBV_QPS_ERR, IBV_QPS_RESET}) {
        assert_int_equal(set(last, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS), EINVAL);
        assert_int_equal(set(last, IBV_QP_STATE), 0);
    }
}

void a_query_returns_what_was_set(void **) {
    Pair &pair = unconnected();
    assert_int_equal(enter_init(pair.a.id->qp), 0);
    assert_int_equal(enter_rtr(pair.a.id->qp, number_of(pair.b), 5), 0);
    assert_int_equal(enter_rts(pair.a.id->qp, 3), 0);
    const ibv_qp_attr set = query(pair.a);
    assert_int_equal(set.dest_qp_num, number_of(pair.b));
    assert_int_equal(set.path_mtu, IBV_MTU_1024);
    assert_int_equal(set.rq_psn, 7);
    assert_int_equal(set.sq_psn, 7);
    assert_int_equal(set.max_dest_rd_atomic, 5);
    assert_int_equal(set.max_rd_atomic, 3);
    assert_int_equal(set.min_rnr_timer, 12);
    assert_int_equal(set.timeout, 14);
    assert_int_equal(set.retry_cnt, 7);
    assert_int_equal(set.rnr_retry, 7);
    assert_int_equal(set.ah_attr.is_global, 1);
    assert_int_equal(set.ah_attr.grh.sgid_index, gid_index(pair.a.id->verbs));
    assert_int_equal(set.port_num, 1);
    assert_int_equal(set.qp_access_flags & IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_WRITE);
    assert_int_equal(set.cap.max_send_wr, 16);
}

void no_path_is_no_peer(void **) {
    Pair &pair = unconnected();
    ibv_qp *const qp = pair.a.id->qp;
    assert_int_equal(enter_init(qp), 0);
    const auto with = [&](auto spoil) {
        ibv_qp_attr attributes{};
        attributes.qp_state = IBV_QPS_RTR;
        attributes.path_mtu = IBV_MTU_1024;
        attributes.dest_qp_num = number_of(pair.b);
        attributes.ah_attr.is_global = 1;
        attributes.ah_attr.port_num = 1;
        attributes.ah_attr.grh.sgid_index = gid_index(qp->context);
        assert_int_equal(softrdma_ibv_query_gid(qp->context, 1, attributes.ah_attr.grh.sgid_index,
                                                &attributes.ah_attr.grh.dgid),
                         0);
        spoil(attributes);
        return softrdma_ibv_modify_qp(qp, &attributes,
                                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                          IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    };
    assert_int_equal(with([](ibv_qp_attr &one) { one.ah_attr.port_num = 2; }), EINVAL);
    assert_int_equal(with([](ibv_qp_attr &one) { one.ah_attr.grh.sgid_index = 200; }), EINVAL);
    assert_int_equal(with([](ibv_qp_attr &one) { one.ah_attr.grh.dgid = {}; }), EINVAL);
    assert_int_equal(with([](ibv_qp_attr &one) {
                         one.ah_attr.is_global = 0;
                         one.ah_attr.dlid = 1;
                     }),
                     EINVAL);
    assert_int_equal(with([](ibv_qp_attr &one) { one.path_mtu = static_cast<ibv_mtu>(6); }), EINVAL);
    assert_int_equal(query(pair.a).qp_state, IBV_QPS_INIT);
    assert_int_equal(with([](ibv_qp_attr &) {}), 0);
}

// A LID is this device's own.
void a_peer_without_a_gid_is_here(void **) {
    Pair &pair = unconnected();
    for (const End *const end : {&pair.a, &pair.b}) {
        const End &other = end == &pair.a ? pair.b : pair.a;
        assert_int_equal(enter_init(end->id->qp), 0);
        ibv_qp_attr attributes{};
        attributes.qp_state = IBV_QPS_RTR;
        attributes.path_mtu = IBV_MTU_1024;
        attributes.dest_qp_num = number_of(other);
        attributes.max_dest_rd_atomic = 1;
        attributes.ah_attr.port_num = 1;
        assert_int_equal(
            softrdma_ibv_modify_qp(end->id->qp, &attributes,
                                   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                       IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
            0);
        assert_int_equal(enter_rts(end->id->qp), 0);
    }
    expect_message(pair.a, pair.b, 1);
}

// The one that is ready first waits for the other one, with its requests, and is answered in RTR.
void the_first_one_waits(void **) {
    Pair &pair = unconnected();
    for (const bool larger_first : {false, true}) {
        const bool a_first = (number_of(pair.a) > number_of(pair.b)) == larger_first;
        End &first = a_first ? pair.a : pair.b;
        End &second = a_first ? pair.b : pair.a;
        first.connect_to(number_of(second));
        fill(first, 0, 64, 1);
        Request request = inlined(send_request(first, 0, 64, 1));
        assert_int_equal(post(first, {request, write_request(first, second, 128, 8, 2)}), 0);
        fill(first, 0, 64, 9);  // the bytes of an inline request were copied
        assert_int_equal(enter_init(second.id->qp), 0);
        assert_int_equal(post_receive(second, 3, {sge(second, 0, 64)}), 0);
        assert_int_equal(enter_rtr(second.id->qp, number_of(first)), 0);
        expect_completion(first.cq, 1);
        expect_completion(first.cq, 2);
        expect_completion(second.cq, 3);
        assert_true(holds(second, 0, 64, 1));
        assert_int_equal(post(first, {read_request(first, second, 0, 64, 4)}), 0);
        expect_completion(first.cq, 4);
        assert_int_equal(enter_rts(second.id->qp), 0);
        expect_message(second, first, 5);
        assert_int_equal(change(first, IBV_QPS_RESET), 0);
        assert_int_equal(change(second, IBV_QPS_RESET), 0);
    }
}

void both_at_once(void **) {
    for (int round = 0; round < 50; ++round) {
        Pair &pair = unconnected();
        Thread other{[&] {
            ibv_qp *const qp = pair.b.id->qp;
            const bool ready =
                enter_init(qp) == 0 && enter_rtr(qp, number_of(pair.a)) == 0 && enter_rts(qp) == 0;
            return std::string{ready ? "" : "the queue pair does not change its state"};
        }};
        pair.a.connect_to(number_of(pair.b));
        other.expect_well();
        expect_message(pair.a, pair.b, 1);
        expect_message(pair.b, pair.a, 3);
        pair.a.destroy();
        pair.b.destroy();
    }
}

void a_queue_pair_is_its_own_peer(void **) {
    End &end = unconnected().a;
    end.connect_to(number_of(end));
    fill(end, 0, 4096, 3);
    assert_int_equal(post_receive(end, 1, {sge(end, 8192, 4096)}), 0);
    assert_int_equal(post(end, {send_request(end, 0, 4096, 2)}), 0);
    bool received = false;
    for (int i = 0; i < 2; ++i) {
        const ibv_wc completion = next_completion(end.cq);
        assert_int_equal(completion.status, IBV_WC_SUCCESS);
        received = received || completion.wr_id == 1;
    }
    assert_true(received);
    assert_memory_equal(end.memory.data() + 8192, end.memory.data(), 4096);
    Request read = read_request(end, end, 16384, 4096, 3);
    read.remote_address = end.address();
    assert_int_equal(post(end, {read}), 0);
    expect_completion(end.cq, 3);
    assert_memory_equal(end.memory.data() + 16384, end.memory.data(), 4096);
    assert_int_equal(change(end, IBV_QPS_RESET), 0);
    end.connect_to(number_of(end));
    assert_int_equal(post(end, {write_request(end, end, 0, 8, 4)}), 0);
    expect_completion(end.cq, 4);
}

// The end of a peer moves nothing. A request learns of it, not before a card has tried it as often as the
// program has set, and everything behind is flushed.
void only_a_request_learns_of_the_peers_end(void **) {
    Pair &pair = by_number();
    expect_message(pair.a, pair.b, 1);
    assert_int_equal(post_receive(pair.a, 3, {sge(pair.a, 0, 8)}), 0);
    const ibv_qp_attr set = query(pair.a);
    const std::chrono::nanoseconds tries{(std::int64_t{4096} << set.timeout) * (set.retry_cnt + 1)};
    pair.b.destroy_queue_pair();
    assert_int_equal(query(pair.a).qp_state, IBV_QPS_RTS);
    const auto posted = std::chrono::steady_clock::now();
    assert_int_equal(post(pair.a, {write_request(pair.a, pair.b, 0, 8, 4)}), 0);
    expect_completion(pair.a.cq, 4, IBV_WC_RETRY_EXC_ERR);
    assert_true(std::chrono::steady_clock::now() - posted >= tries);
    expect_completion(pair.a.cq, 3, IBV_WC_WR_FLUSH_ERR);
    assert_int_equal(query(pair.a).qp_state, IBV_QPS_ERR);
    assert_int_equal(post(pair.a, {write_request(pair.a, pair.b, 0, 8, 5)}), 0);
    expect_completion(pair.a.cq, 5, IBV_WC_WR_FLUSH_ERR);
}

// A peer has its queue pairs one after the other. The failure of a request on the one that has gone leaves
// time for what the others acknowledge, as long as a card tries.
void others_acknowledge_before_a_request_fails(void **) {
    constexpr std::uint8_t hours = 31;
    Pair &lost = unconnected();
    assert_int_equal(enter_init(lost.a.id->qp), 0);
    assert_int_equal(enter_rtr(lost.a.id->qp, number_of(lost.b)), 0);
    assert_int_equal(enter_rts(lost.a.id->qp, 16, hours), 0);
    lost.b.connect_to(number_of(lost.a));
    Pair &other = by_number();
    expect_message(lost.a, lost.b, 1);
    assert_int_equal(post(lost.a, {send_request(lost.a, 0, 8, 3)}), 0);  // it has no receive
    assert_int_equal(post(other.a, {send_request(other.a, 0, 8, 4)}), 0);
    lost.b.destroy_queue_pair();
    expect_no_completion(lost.a.cq);
    assert_int_equal(post_receive(other.b, 5, {sge(other.b, 0, 8)}), 0);
    expect_completion(other.a.cq, 4);
    expect_no_completion(lost.a.cq);
    assert_int_equal(query(lost.a).qp_state, IBV_QPS_RTS);
}

// The last messages of a peer that has gone wait for their receives.
void messages_outlive_their_sender(void **) {
    Pair &pair = by_number();
    expect_message(pair.a, pair.b, 1);  // they have a link
    for (std::uint64_t i = 0; i < 4; ++i) {
        fill(pair.a, 64 * i, 64, static_cast<unsigned>(i));
        assert_int_equal(post(pair.a, {send_request(pair.a, 64 * i, 64, i)}), 0);
    }
    pair.a.destroy_queue_pair();
    for (std::uint64_t i = 0; i < 4; ++i) {
        assert_int_equal(post_receive(pair.b, i, {sge(pair.b, 0, 64)}), 0);
        expect_completion(pair.b.cq, i);
        assert_true(holds(pair.b, 0, 64, static_cast<unsigned>(i)));
    }
    assert_int_equal(query(pair.b).qp_state, IBV_QPS_RTS);
}

// A completion says that the bytes are in the peer's memory, and not only that TCP has them.
void a_completion_says_placed(void **) {
    Pair &pair = by_number();
    for (unsigned round = 0; round < 100; ++round) {
        fill(pair.a, 0, 65536, round);
        assert_int_equal(post(pair.a, {write_request(pair.a, pair.b, 0, 65536, round)}), 0);
        expect_completion(pair.a.cq, round);
        assert_true(holds(pair.b, 0, 65536, round));
    }
}

void a_send_is_complete_when_it_has_its_receive(void **) {
    Pair &pair = by_number();
    assert_int_equal(post(pair.a, {send_request(pair.a, 0, 8, 1), send_request(pair.a, 0, 8, 2),
                                   write_request(pair.a, pair.b, 0, 8, 3)}),
                     0);
    expect_no_completion(pair.a.cq);
    for (const std::uint64_t wr_id : {1U, 2U}) {
        assert_int_equal(post_receive(pair.b, wr_id, {sge(pair.b, 0, 8)}), 0);
        expect_completion(pair.b.cq, wr_id);
        expect_completion(pair.a.cq, wr_id);
    }
    expect_completion(pair.a.cq, 3);
}

// The peer tells what it has placed, and answers what it owes, before it tells what it refuses.
void an_error_is_that_of_its_request(void **) {
    Pair &pair = by_number();
    fill(pair.b, 4096, 65536, 3);
    Request bad = write_request(pair.a, pair.b, 0, 8, 4);
    bad.rkey = 0;
    assert_int_equal(
        post(pair.a, {write_request(pair.a, pair.b, 0, 8, 1), read_request(pair.a, pair.b, 4096, 65536, 2),
                      write_request(pair.a, pair.b, 0, 8, 3), bad, write_request(pair.a, pair.b, 8, 8, 5)}),
        0);
    for (const std::uint64_t wr_id : {1U, 2U, 3U}) {
        expect_completion(pair.a.cq, wr_id);
    }
    assert_true(holds(pair.a, 4096, 65536, 3));
    expect_completion(pair.a.cq, 4, IBV_WC_REM_ACCESS_ERR);
    expect_completion(pair.a.cq, 5, IBV_WC_WR_FLUSH_ERR);
    assert_int_equal(query(pair.a).qp_state, IBV_QPS_ERR);
}

// A peer that has got a message may go at once.
void a_message_is_acknowledged_before_its_receiver_goes(void **) {
    for (std::uint64_t i = 0; i < 50; ++i) {
        Pair &pair = by_number();
        assert_int_equal(post_receive(pair.b, i, {sge(pair.b, 0, 8)}), 0);
        assert_int_equal(post(pair.a, {send_request(pair.a, 0, 8, i)}), 0);
        expect_completion(pair.b.cq, i);
        pair.b.destroy_queue_pair();
        expect_completion(pair.a.cq, i);
        assert_int_equal(query(pair.a).qp_state, IBV_QPS_RTS);
    }
}

// RESET removes the completions that nobody has polled.
void reset_forgets_completions(void **) {
    Pair &pair = by_number();
    Pair &other = unconnected();
    assert_int_equal(post_receive(pair.b, 1, {sge(pair.b, 0, 8)}), 0);
    assert_int_equal(post(pair.a, {send_request(pair.a, 0, 8, 2)}), 0);
    expect_completion(pair.a.cq, 2);  // so the receive is complete too
    assert_int_equal(change(pair.b, IBV_QPS_RESET), 0);
    expect_no_completion(pair.b.cq);
    pair.b.connect_to(number_of(other.a));
    other.a.connect_to(number_of(pair.b));
    expect_message(other.a, pair.b, 3);
}

void reset_begins_anew(void **) {
    Pair &pair = by_number();
    for (std::uint64_t round = 0; round < 3; ++round) {
        expect_message(pair.a, pair.b, 10 * round + 1);
        assert_int_equal(post(pair.a, {read_request(pair.a, pair.b, 0, 8, 5)}), 0);
        expect_completion(pair.a.cq, 5);
        // The posted requests are gone without completions.
        assert_int_equal(post_receive(pair.a, 6, {sge(pair.a, 0, 8)}), 0);
        assert_int_equal(change(pair.a, IBV_QPS_RESET), 0);
        assert_int_equal(query(pair.a).qp_state, IBV_QPS_RESET);
        if (round == 1) {
            assert_int_equal(change(pair.b, IBV_QPS_ERR), 0);
        }
        assert_int_equal(change(pair.b, IBV_QPS_RESET), 0);
        pair.b.connect_to(number_of(pair.a));
        pair.a.connect_to(number_of(pair.b));
    }
    for (std::uint64_t i = 0; i < 16; ++i) {  // all places are free
        assert_int_equal(post_receive(pair.a, i, {sge(pair.a, 0, 8)}), 0);
    }
    expect_no_completion(pair.a.cq);
}

// A queue pair takes no other one than that which it names, and goes on to wait for that.
void a_stranger_is_refused(void **) {
    Pair &pair = unconnected();
    Pair &strangers = unconnected();
    pair.a.connect_to(number_of(pair.b));
    strangers.a.connect_to(number_of(pair.a));
    pair.b.connect_to(number_of(pair.a));
    expect_message(pair.a, pair.b, 1);
    strangers.b.connect_to(number_of(pair.a));
    expect_message(pair.b, pair.a, 3);
    assert_int_equal(post_receive(strangers.a, 5, {sge(strangers.a, 0, 8)}), 0);
    expect_no_completion(strangers.a.cq);
    assert_int_equal(query(strangers.a).qp_state, IBV_QPS_RTS);
}

void numbers_are_not_used_again_at_once(void **) {
    End &end = unconnected().a;
    std::vector<std::uint32_t> seen{number_of(end)};
    for (int i = 0; i < 32; ++i) {
        ibv_qp_init_attr attributes{};
        attributes.send_cq = attributes.recv_cq = end.cq;
        attributes.qp_type = IBV_QPT_RC;
        ibv_qp *const qp = softrdma_ibv_create_qp(end.pd, &attributes);
        assert_non_null(qp);
        for (const std::uint32_t number : seen) {
            assert_int_not_equal(qp->qp_num, number);
        }
        seen.push_back(qp->qp_num);
        assert_int_equal(softrdma_ibv_destroy_qp(qp), 0);
    }
}

void unreliable_ones_write_and_send(void **) {
    Pair &pair = by_number({.type = IBV_QPT_UC});
    expect_message(pair.a, pair.b, 1);
    fill(pair.a, 0, 65536, 4);
    assert_int_equal(post_receive(pair.b, 3, {}), 0);
    assert_int_equal(post(pair.a, {with_immediate(write_request(pair.a, pair.b, 0, 65536, 4), 5)}), 0);
    expect_completion(pair.a.cq, 4);
    expect_completion(pair.b.cq, 3);
    assert_true(holds(pair.b, 0, 65536, 4));
    assert_int_equal(post(pair.a, {read_request(pair.a, pair.b, 0, 8)}), EINVAL);
    assert_int_equal(post(pair.a, {flush_request(pair.b, 0, 8)}), EINVAL);
    // Nobody tells the sender what became of its messages.
    assert_int_equal(post_receive(pair.a, 5, {sge(pair.a, 0, 8)}), 0);
    pair.b.destroy_queue_pair();
    for (std::uint64_t i = 0; i < 100; ++i) {
        assert_int_equal(post(pair.a, {write_request(pair.a, pair.b, 0, 8, 6)}), 0);
        expect_completion(pair.a.cq, 6);
    }
    assert_int_equal(query(pair.a).qp_state, IBV_QPS_RTS);
    expect_no_completion(pair.a.cq);
}

// A write that the peer does not allow is lost as a whole, with its immediate data. Nobody is told, and what
// is posted behind it arrives.
void refused_writes_of_unreliable_ones_are_lost(void **) {
    Pair &pair = by_number({.type = IBV_QPT_UC});
    constexpr std::size_t large = 200'000;  // several segments
    const std::size_t all = pair.b.memory.size();
    fill(pair.a, 0, large, 3);
    fill(pair.b, 0, all, 7);
    ibv_mr *const read_only = pair.b.register_memory(pair.b.memory.data(), all, IBV_ACCESS_REMOTE_READ);
    assert_non_null(read_only);
    Request unknown_key = write_request(pair.a, pair.b, 0, 8, 1);
    unknown_key.rkey = 0;
    Request large_one = write_request(pair.a, pair.b, 0, large, 1);
    large_one.rkey = 0;
    Request not_allowed = write_request(pair.a, pair.b, 0, 5000, 1);
    not_allowed.rkey = read_only->rkey;
    Request outside = write_request(pair.a, pair.b, 0, 5000, 1);
    outside.remote_address = pair.b.address(all);
    assert_int_equal(post_receive(pair.b, 2, {sge(pair.b, 0, 8)}), 0);
    for (const Request &refused : {unknown_key, large_one, not_allowed, outside}) {
        for (const Request &one : {refused, with_immediate(refused, 5)}) {
            assert_int_equal(post(pair.a, {one}), 0);
            expect_completion(pair.a.cq, 1);
        }
    }
    assert_int_equal(post(pair.a, {with_immediate(write_request(pair.a, pair.b, 0, 0, 3), 9)}), 0);
    expect_completion(pair.a.cq, 3);
    const ibv_wc arrived = next_completion(pair.b.cq);
    assert_int_equal(arrived.wr_id, 2);
    assert_int_equal(arrived.status, IBV_WC_SUCCESS);
    assert_int_equal(arrived.imm_data, 9);
    assert_true(holds(pair.b, 0, all, 7));
    assert_int_equal(post(pair.a, {write_request(pair.a, pair.b, 0, large, 4)}), 0);
    expect_completion(pair.a.cq, 4);
    expect_message(pair.a, pair.b, 5);  // of the same bytes
    assert_true(holds(pair.b, 0, large, 3));
    for (const End *const end : {&pair.a, &pair.b}) {
        assert_int_equal(query(*end).qp_state, IBV_QPS_RTS);
    }
}

// A send that is too long is the error of its receiver alone.
void an_unreliable_sender_learns_of_no_error(void **) {
    Pair &pair = by_number({.type = IBV_QPT_UC});
    assert_int_equal(post_receive(pair.a, 1, {sge(pair.a, 0, 8)}), 0);
    assert_int_equal(post_receive(pair.b, 2, {sge(pair.b, 0, 8)}), 0);
    assert_int_equal(post(pair.a, {send_request(pair.a, 0, 64, 3)}), 0);
    expect_completion(pair.a.cq, 3);
    expect_completion(pair.b.cq, 2, IBV_WC_LOC_LEN_ERR);
    const auto give_up = std::chrono::steady_clock::now() + patience;
    while (query(pair.b).qp_state != IBV_QPS_ERR) {  // the completion comes first
        assert_true(std::chrono::steady_clock::now() < give_up);
    }
    for (std::uint64_t i = 0; i < 100; ++i) {
        assert_int_equal(post(pair.a, {send_request(pair.a, 0, 8, 4)}), 0);
        expect_completion(pair.a.cq, 4);
    }
    assert_int_equal(query(pair.a).qp_state, IBV_QPS_RTS);
    expect_no_completion(pair.a.cq);
}

void unlike_types_do_not_meet(void **) {
    Pair &pair = unconnected();
    Pair &unreliable = unconnected({.type = IBV_QPT_UC});
    pair.a.connect_to(number_of(unreliable.a));
    unreliable.a.connect_to(number_of(pair.a));
    assert_int_equal(post_receive(unreliable.a, 1, {sge(unreliable.a, 0, 8)}), 0);
    // Both are ready for others.
    assert_int_equal(change(pair.a, IBV_QPS_RESET), 0);
    pair.a.connect_to(number_of(pair.b));
    pair.b.connect_to(number_of(pair.a));
    expect_message(pair.a, pair.b, 2);
    expect_no_completion(unreliable.a.cq);
}

void an_id_takes_no_queue_pair_by_number(void **) {
    Pair &pair = unconnected();
    pair.a.connect_to(number_of(pair.b));
    rdma_event_channel *const events = provider().cm.create_event_channel();
    rdma_cm_id *id = nullptr;
    assert_int_equal(provider().cm.create_id(events, &id, nullptr, RDMA_PS_TCP), 0);
    const Listener &listener = make<Listener>();
    resolve_address(id, listener.port);
    expect_event(events, RDMA_CM_EVENT_ADDR_RESOLVED);
    assert_int_equal(provider().cm.resolve_route(id, patience_ms), 0);
    expect_event(events, RDMA_CM_EVENT_ROUTE_RESOLVED);
    rdma_conn_param parameters = connection_parameters(no_data, 1);
    parameters.qp_num = number_of(pair.a);
    assert_int_equal(provider().cm.connect(id, &parameters), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(provider().cm.destroy_id(id), 0);
    provider().cm.destroy_event_channel(events);
}

constexpr CMUnitTest tests[] = {
    cmocka_unit_test(each_state_has_its_attributes),
    cmocka_unit_test(each_change_takes_its_own_attributes),
    cmocka_unit_test(a_query_returns_what_was_set),
    cmocka_unit_test(no_path_is_no_peer),
    cmocka_unit_test(a_peer_without_a_gid_is_here),
    cmocka_unit_test(the_first_one_waits),
    cmocka_unit_test(both_at_once),
    cmocka_unit_test(a_queue_pair_is_its_own_peer),
    cmocka_unit_test(only_a_request_learns_of_the_peers_end),
    cmocka_unit_test(others_acknowledge_before_a_request_fails),
    cmocka_unit_test(messages_outlive_their_sender),
    cmocka_unit_test(a_completion_says_placed),
    cmocka_unit_test(a_send_is_complete_when_it_has_its_receive),
    cmocka_unit_test(an_error_is_that_of_its_request),
    cmocka_unit_test(a_message_is_acknowledged_before_its_receiver_goes),
    cmocka_unit_test(reset_forgets_completions),
    cmocka_unit_test(reset_begins_anew),
    cmocka_unit_test(a_stranger_is_refused),
    cmocka_unit_test(numbers_are_not_used_again_at_once),
    cmocka_unit_test(unreliable_ones_write_and_send),
    cmocka_unit_test(refused_writes_of_unreliable_ones_are_lost),
    cmocka_unit_test(an_unreliable_sender_learns_of_no_error),
    cmocka_unit_test(unlike_types_do_not_meet),
    cmocka_unit_test(an_id_takes_no_queue_pair_by_number),
};

}  // namespace

std::span<const CMUnitTest> by_number_tests() {
    return tests;
}

}  // namespace conformance
