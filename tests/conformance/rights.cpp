// SPDX-License-Identifier: BSD-3-Clause
// conformance: tests the rights that a queue pair grants its peer (qp_access_flags), and memory
// that is registered for one queue pair. Only the peer of that queue pair reaches the memory. For
// others the key is a key of nothing.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "suite.hpp"

namespace conformance {

namespace {

// A Guarded has two clients of one server, whose two ends share one protection domain, and
// a region for the first client.
struct Guarded {
    Guarded() : ends{connected()} {
        if (!provider().capabilities.registers_for_qp) {
            skip();
        }
        other.resolve(ends.listener.port);
        other.request();
        other_server.take(ends.listener.take_request().id);
        other_server.accept();
        expect_event(other.events, RDMA_CM_EVENT_ESTABLISHED);
        expect_event(other_server.events, RDMA_CM_EVENT_ESTABLISHED);
        region = register_for(ends.server);
        assert_non_null(region);
    }
    ~Guarded() {
        if (region != nullptr) {
            (void)provider().domain.dereg_mr(region);
        }
    }
    Guarded(const Guarded &) = delete;
    Guarded &operator=(const Guarded &) = delete;

    ibv_mr *register_for(const End &end) {
        return provider().beyond.reg_mr_for_qp(
            end.id->qp, bytes.data(), bytes.size(),
            full_access | IBV_ACCESS_REMOTE_ATOMIC | SOFTRDMA_ACCESS_FLUSH_GLOBAL);
    }
    [[nodiscard]] Request to_region(Request request) const {
        request.remote_address = reinterpret_cast<std::uintptr_t>(bytes.data());
        request.rkey = region->rkey;
        return request;
    }
    [[nodiscard]] bool is_untouched() const {
        return std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{0}; });
    }
    // The read behind the request sees the end of the connection where the request itself has no answer.
    void expect_refused(const Request &request, bool is_answered) {
        fill(other, 0, 8, 1);
        assert_int_equal(post(other, {is_answered ? request : unsignaled(request),
                                      read_request(other, other_server, 64, 8, 2)}),
                         0);
        expect_completion(other.cq, is_answered ? 1 : 2, IBV_WC_REM_ACCESS_ERR);
        expect_event(other.events, RDMA_CM_EVENT_DISCONNECTED);
        expect_event(other_server.events, RDMA_CM_EVENT_DISCONNECTED);
        assert_true(is_untouched());
    }

    Ends &ends;
    End &other = make<End>();
    End &other_server = make<End>(Sizes{}, &ends.server);
    std::vector<std::byte> bytes = std::vector<std::byte>(4096);
    ibv_mr *region = nullptr;
};

Request add_request(const End &from) {
    return {.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .sges = {sge(from, 0, 8)}, .compare_add = 1};
}

void only_its_peer_writes_and_reads(void **) {
    auto &guarded = make<Guarded>();
    Ends &ends = guarded.ends;
    fill(ends.client, 0, 8, 5);
    const Request mine[] = {write_request(ends.client, ends.server, 0, 8, 1),
                            read_request(ends.client, ends.server, 64, 8, 2),
                            flush_request(ends.server, 0, 8, SOFTRDMA_FLUSH_GLOBAL, 3),
                            atomic_write_request(ends.client, ends.server, 0, 4)};
    for (const Request &request : mine) {
        assert_int_equal(post(ends.client, {guarded.to_region(request)}), 0);
        expect_completion(ends.client.cq, request.wr_id);
    }
    assert_memory_equal(ends.client.memory.data() + 64, ends.client.memory.data(), 8);
    Request add = guarded.to_region(add_request(ends.client));
    add.wr_id = 6;
    assert_int_equal(post(ends.client, {add}), 0);
    expect_completion(ends.client.cq, 6);
}

// A window of type 2 is of the queue pair for which it was bound, and one of type 1 of the whole domain.
void a_window_is_of_its_queue_pair(void **) {
    for (const ibv_mw_type type : {IBV_MW_TYPE_1, IBV_MW_TYPE_2}) {
        auto &guarded = make<Guarded>();
        Ends &ends = guarded.ends;
        ibv_mr *const region =
            ends.server.register_memory(guarded.bytes.data(), guarded.bytes.size(),
                                        int{IBV_ACCESS_LOCAL_WRITE} | int{IBV_ACCESS_MW_BIND});
        ibv_mw *const window = ibv_alloc_mw(ends.server.pd, type);
        assert_non_null(window);
        ibv_send_wr bind{};
        bind.opcode = IBV_WR_BIND_MW;
        bind.bind_mw = {.mw = window,
                        .rkey = ibv_inc_rkey(window->rkey),
                        .bind_info = {.mr = region,
                                      .addr = reinterpret_cast<std::uintptr_t>(guarded.bytes.data()),
                                      .length = 64,
                                      .mw_access_flags = IBV_ACCESS_REMOTE_WRITE}};
        ibv_send_wr *bad = nullptr;
        assert_int_equal(ibv_post_send(ends.server.id->qp, &bind, &bad), 0);
        const auto to_window = [&](Request request) {
            request = guarded.to_region(request);
            request.rkey = window->rkey;
            return request;
        };
        assert_int_equal(post(ends.client, {to_window(write_request(ends.client, ends.server, 0, 8))}), 0);
        expect_completion(ends.client.cq, 1);
        if (type == IBV_MW_TYPE_2) {
            guarded.expect_refused(to_window(write_request(guarded.other, guarded.other_server, 0, 8)),
                                   false);
        } else {
            fill(guarded.other, 0, 8, 7);
            assert_int_equal(
                post(guarded.other, {to_window(write_request(guarded.other, guarded.other_server, 0, 8))}),
                0);
            expect_completion(guarded.other.cq, 1);
            settle(guarded.other, guarded.other_server);
            assert_memory_equal(guarded.bytes.data(), guarded.other.memory.data(), 8);
        }
        assert_int_equal(ibv_dealloc_mw(window), 0);
    }
}

void others_are_refused_all_of_it(void **) {
    constexpr int operations = 5;
    for (int which = 0; which < operations; ++which) {
        auto &guarded = make<Guarded>();
        const End &from = guarded.other;
        const End &to = guarded.other_server;
        const Request requests[operations] = {write_request(from, to, 0, 8), read_request(from, to, 0, 8),
                                              flush_request(to, 0, 8), add_request(from),
                                              atomic_write_request(from, to, 0)};
        guarded.expect_refused(guarded.to_region(requests[which]), which >= 1 && which <= 3);
        // The peer that has the right to it has it still.
        Ends &ends = guarded.ends;
        assert_int_equal(post(ends.client, {guarded.to_region(read_request(ends.client, ends.server, 0, 8))}),
                         0);
        expect_completion(ends.client.cq, 1);
    }
}

// A peer that could invalidate the key would learn that some program has it.
void others_cannot_give_it_back(void **) {
    auto &guarded = make<Guarded>();
    assert_int_equal(post_receive(guarded.other_server, 5, {sge(guarded.other_server, 0, 8)}), 0);
    Request send = send_request(guarded.other, 0, 8);
    send.opcode = IBV_WR_SEND_WITH_INV;
    send.immediate = guarded.region->rkey;
    guarded.expect_refused(send, false);
}

// A program's own use of a key goes by protection domain, because the program may send to any peer.
void its_program_uses_it_with_any_queue_pair(void **) {
    auto &guarded = make<Guarded>();
    const ibv_sge part{.addr = reinterpret_cast<std::uintptr_t>(guarded.bytes.data()),
                       .length = 8,
                       .lkey = guarded.region->lkey};
    assert_int_equal(post_receive(guarded.other_server, 5, {part}), 0);
    fill(guarded.other, 0, 8, 3);
    assert_int_equal(post(guarded.other, {send_request(guarded.other, 0, 8, 1)}), 0);
    expect_completion(guarded.other.cq, 1);
    expect_completion(guarded.other_server.cq, 5);
    assert_memory_equal(guarded.bytes.data(), guarded.other.memory.data(), 8);
    Request back = read_request(guarded.other_server, guarded.other, 64, 8, 6);
    back.sges = {part};
    assert_int_equal(post(guarded.other_server, {back}), 0);
    expect_completion(guarded.other_server.cq, 6);
    assert_true(guarded.is_untouched());
}

// Each of two regions of the same bytes has the rights that it was registered with, for the
// queue pair it was registered for.
void the_same_memory_for_each_of_two(void **) {
    auto &guarded = make<Guarded>();
    ibv_mr *const others = guarded.register_for(guarded.other_server);
    assert_non_null(others);
    Request write = guarded.to_region(write_request(guarded.other, guarded.other_server, 0, 8));
    write.rkey = others->rkey;
    fill(guarded.other, 0, 8, 3);
    assert_int_equal(post(guarded.other, {write}), 0);
    expect_completion(guarded.other.cq, 1);
    settle(guarded.other, guarded.other_server);
    assert_memory_equal(guarded.bytes.data(), guarded.other.memory.data(), 8);
    assert_int_equal(provider().domain.dereg_mr(others), 0);
    assert_int_equal(
        post(guarded.other, {unsignaled(write), read_request(guarded.other, guarded.other_server, 64, 8, 2)}),
        0);
    expect_completion(guarded.other.cq, 2, IBV_WC_REM_ACCESS_ERR);
}

// The region stays the program's when its queue pair is gone. A queue pair that is made later is another one.
void it_outlives_its_queue_pair(void **) {
    auto &guarded = make<Guarded>();
    Ends &ends = guarded.ends;
    ends.server.destroy_queue_pair();
    guarded.expect_refused(guarded.to_region(write_request(guarded.other, guarded.other_server, 0, 8)),
                           false);
    assert_int_equal(provider().domain.dereg_mr(std::exchange(guarded.region, nullptr)), 0);
}

// The region grants everything, and the queue pairs grant one thing less.
void a_queue_pair_refuses_what_it_does_not_grant(void **) {
    if (!subject.is_soft) {
        skip();
    }
    constexpr unsigned all = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    constexpr unsigned needs[] = {IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_ATOMIC,
                                  IBV_ACCESS_REMOTE_READ};
    for (const unsigned withheld : {0U, unsigned{IBV_ACCESS_REMOTE_WRITE}, unsigned{IBV_ACCESS_REMOTE_READ},
                                    unsigned{IBV_ACCESS_REMOTE_ATOMIC}}) {
        for (std::size_t which = 0; which < std::size(needs); ++which) {
            // The ends are destroyed first, and deregister the memory. The device may still look at it until
            // then.
            std::vector<std::byte> &bytes = make<std::vector<std::byte>>(4096);
            Ends &ends = connected();
            const ibv_mr *const region = ends.server.register_memory(
                bytes.data(), bytes.size(),
                full_access | IBV_ACCESS_REMOTE_ATOMIC | SOFTRDMA_ACCESS_FLUSH_GLOBAL);
            assert_non_null(region);
            ibv_qp_attr attributes{};
            ibv_qp_init_attr init{};
            attributes.qp_access_flags = all & ~withheld;
            assert_int_equal(softrdma_ibv_modify_qp(ends.server.id->qp, &attributes, IBV_QP_ACCESS_FLAGS), 0);
            attributes = {};
            assert_int_equal(
                softrdma_ibv_query_qp(ends.server.id->qp, &attributes, IBV_QP_ACCESS_FLAGS, &init), 0);
            assert_int_equal(attributes.qp_access_flags, all & ~withheld);
            const Request requests[] = {write_request(ends.client, ends.server, 0, 8),
                                        atomic_write_request(ends.client, ends.server, 0),
                                        add_request(ends.client),
                                        read_request(ends.client, ends.server, 0, 8)};
            fill(ends.client, 0, 8, 3);
            Request request = requests[which];
            Request flush = flush_request(ends.server, 0, 8, SOFTRDMA_FLUSH_GLOBAL, 2);
            request.remote_address = flush.remote_address = reinterpret_cast<std::uintptr_t>(bytes.data());
            request.rkey = flush.rkey = region->rkey;
            assert_int_equal(post(ends.client, {request, flush}), 0);
            const ibv_wc first = next_completion(ends.client.cq);
            const ibv_wc second = next_completion(ends.client.cq);
            const bool is_refused = (needs[which] & withheld) != 0;
            const bool is_answered = which >= 2 || ends.client.is_acknowledged();
            assert_int_equal(first.status,
                             is_refused && is_answered ? IBV_WC_REM_ACCESS_ERR : IBV_WC_SUCCESS);
            assert_int_equal(second.status, !is_refused   ? IBV_WC_SUCCESS
                                            : is_answered ? IBV_WC_WR_FLUSH_ERR
                                                          : IBV_WC_REM_ACCESS_ERR);
            const bool is_written =
                std::ranges::any_of(bytes, [](std::byte byte) { return byte != std::byte{0}; });
            assert_int_equal(is_written, which < 3 && !is_refused);
        }
    }
}

// A program of rdma_cm that brings its own queue pair gets all rights from rdma_init_qp_attr.
void the_connection_manager_asks_for_all(void **) {
    if (!subject.is_soft) {
        skip();
    }
    Ends &ends = connected();
    for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
        ibv_qp_attr attributes{};
        int mask = 0;
        attributes.qp_state = state;
        assert_int_equal(softrdma_rdma_init_qp_attr(ends.server.id, &attributes, &mask), 0);
        assert_true((mask & IBV_QP_ACCESS_FLAGS) != 0);
        assert_int_equal(attributes.qp_access_flags,
                         IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
    }
}

// The server's queue pair changes its rights all the time, but never those that the reads and writes need.
// All of these take many turns, and begin and continue in different ways.
void large_requests_while_rights_change(void **) {
    if (!subject.is_soft) {
        skip();
    }
    constexpr std::size_t size = std::size_t{24} << 20;
    auto &ends = connected({.memory_bytes = 2 * size});
    std::atomic<bool> over{false};
    std::jthread changes{[&] {
        for (bool withholds = false; !over; withholds = !withholds) {
            ibv_qp_attr attributes{};
            attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                         (withholds ? 0U : unsigned{IBV_ACCESS_REMOTE_ATOMIC});
            (void)softrdma_ibv_modify_qp(ends.server.id->qp, &attributes, IBV_QP_ACCESS_FLAGS);
            std::this_thread::sleep_for(std::chrono::microseconds{300});
        }
    }};
    for (unsigned round = 0; round < 12; ++round) {
        fill(ends.client, 0, size, round);
        ibv_wc completion{};
        const bool is_written =
            post(ends.client, {write_request(ends.client, ends.server, 0, size, 1)}) == 0 &&
            poll_for(ends.client.cq, completion) && completion.status == IBV_WC_SUCCESS;
        Request read = read_request(ends.client, ends.server, size, size, 2);
        read.remote_address = ends.server.address();
        const bool is_read = is_written && post(ends.client, {read}) == 0 &&
                             poll_for(ends.client.cq, completion) && completion.status == IBV_WC_SUCCESS;
        if (!is_read || !std::equal(ends.client.memory.begin(), ends.client.memory.begin() + size,
                                    ends.client.memory.begin() + size)) {
            over = true;
            changes.join();
            fail_msg("round %u: status %d", round, completion.status);
        }
    }
    over = true;
}

constexpr CMUnitTest tests[] = {
    cmocka_unit_test(large_requests_while_rights_change),
    cmocka_unit_test(a_queue_pair_refuses_what_it_does_not_grant),
    cmocka_unit_test(the_connection_manager_asks_for_all),
    cmocka_unit_test(only_its_peer_writes_and_reads),
    cmocka_unit_test(a_window_is_of_its_queue_pair),
    cmocka_unit_test(others_are_refused_all_of_it),
    cmocka_unit_test(others_cannot_give_it_back),
    cmocka_unit_test(its_program_uses_it_with_any_queue_pair),
    cmocka_unit_test(the_same_memory_for_each_of_two),
    cmocka_unit_test(it_outlives_its_queue_pair),
};

}  // namespace

std::span<const CMUnitTest> rights_tests() {
    return tests;
}

}  // namespace conformance
