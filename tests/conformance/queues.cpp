// SPDX-License-Identifier: BSD-3-Clause
// conformance: tests the slots of the send and receive queue, and completion queues that are
// shared, separate or too small.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>

#include "suite.hpp"

namespace conformance {

namespace {

// Hardware gives a slot back when a signalled completion behind it is polled. The
// kernel's devices in software differ.
void slots_of_unsignaled_requests_come_back_with_a_polled_completion(void **) {
    if (!subject.is_soft) {
        skip();
    }
    static constexpr std::uint32_t slots = 8;
    Ends &ends = connected({.send_wr = slots});
    const auto quiet = unsignaled(write_request(ends.client, ends.server, 0, 8));
    const std::vector<Request> all_quiet(slots - 1, quiet);
    for (unsigned round = 0; round < 3; ++round) {
        assert_int_equal(ibv_req_notify_cq(ends.client.cq, 0), 0);
        assert_int_equal(post(ends.client, all_quiet), 0);
        assert_int_equal(post(ends.client, {write_request(ends.client, ends.server, 0, 8, round)}), 0);
        assert_int_equal(post(ends.client, {quiet}), ENOMEM);
        expect_cq_event(ends.client, ends.client.cq);
        assert_int_equal(post(ends.client, {quiet}), ENOMEM);  // completed, but not polled
        expect_completion(ends.client.cq, round);
    }
    assert_int_equal(post(ends.client, {write_request(ends.client, ends.server, 0, 8, 99)}), 0);
    expect_completion(ends.client.cq, 99);
}

void a_queue_full_of_unsignaled_requests_stays_full(void **) {
    if (!subject.is_soft) {
        skip();
    }
    static constexpr std::uint32_t slots = 4;
    Ends &ends = connected({.send_wr = slots});
    fill(ends.client, 0, 8, 1);
    std::size_t refused = 0;
    // Each request writes eight bytes. They are stored at once, so that the test can watch them.
    const std::vector<Request> too_many(slots + 1,
                                        unsignaled(atomic_write_request(ends.client, ends.server, 0)));
    assert_int_equal(post_receive(ends.client, 1, {sge(ends.client, 64, 8)}), 0);
    assert_int_equal(post(ends.client, too_many, &refused), ENOMEM);
    assert_int_equal(refused, slots);
    // The writes arrive, and the server answers. The test has still polled nothing for the writes.
    auto *const arriving = reinterpret_cast<std::uint64_t *>(ends.server.memory.data());
    while (std::atomic_ref{*arriving}.load(std::memory_order_acquire) == 0) {
        std::this_thread::yield();
    }
    assert_int_equal(post(ends.server, {send_request(ends.server, 4096, 8, 1)}), 0);
    expect_completion(ends.client.cq, 1);
    assert_int_equal(post(ends.client, {too_many[0]}), ENOMEM);
}

void slots_of_signaled_requests_come_back_one_by_one(void **) {
    Ends &ends = connected({.send_wr = 4, .signal_all = true});
    if (!subject.is_soft) {
        skip();
    }
    for (std::uint64_t i = 0; i < 4; ++i) {
        assert_int_equal(post(ends.client, {unsignaled(write_request(ends.client, ends.server, 0, 8, i))}),
                         0);
    }
    for (std::uint64_t i = 0; i < 20; ++i) {
        assert_int_equal(post(ends.client, {write_request(ends.client, ends.server, 0, 8, i)}), ENOMEM);
        expect_completion(ends.client.cq, i);
        assert_int_equal(
            post(ends.client, {unsignaled(write_request(ends.client, ends.server, 0, 8, i + 4))}), 0);
    }
}

void a_full_receive_queue_refuses(void **) {
    Ends &ends = connected({.receive_wr = 4});
    const auto here = sge(ends.server, 0, 8);
    std::uint64_t posted = 0;
    int result = 0;
    while (result == 0 && posted < 1024) {  // a device may give more than was asked for
        result = post_receive(ends.server, posted, {here});
        posted += result == 0 ? 1 : 0;
    }
    assert_int_equal(result, ENOMEM);
    assert_in_range(posted, 4, 1023);
    assert_int_equal(ibv_req_notify_cq(ends.server.cq, 0), 0);
    assert_int_equal(post(ends.client, {send_request(ends.client, 0, 8, 1)}), 0);
    expect_cq_event(ends.server, ends.server.cq);
    if (subject.is_soft) {
        assert_int_equal(post_receive(ends.server, posted, {here}), ENOMEM);
    }
    expect_completion(ends.server.cq, 0);
    assert_int_equal(post_receive(ends.server, posted, {here}), 0);
}

void separate_queues_for_sends_and_receives(void **) {
    Ends &ends = connected({.separate_cqs = true});
    for (std::uint64_t i = 0; i < 16; ++i) {
        assert_int_equal(post_receive(ends.server, i, {sge(ends.server, 64 * i, 64)}), 0);
        assert_int_equal(post_receive(ends.client, i, {sge(ends.client, 64 * i, 64)}), 0);
    }
    for (std::uint64_t i = 0; i < 16; ++i) {
        assert_int_equal(post(ends.client, {send_request(ends.client, 4096, 64, 100 + i)}), 0);
        assert_int_equal(post(ends.server, {send_request(ends.server, 4096, 64, 100 + i)}), 0);
    }
    // The test polls the receive queue alone, which moves the connection's bytes too.
    for (std::uint64_t i = 0; i < 16; ++i) {
        expect_completion(ends.server.receive_cq, i);
        expect_completion(ends.client.receive_cq, i);
    }
    for (std::uint64_t i = 0; i < 16; ++i) {
        expect_completion(ends.server.cq, 100 + i);
        expect_completion(ends.client.cq, 100 + i);
    }
    expect_no_completion(ends.server.cq);
    expect_no_completion(ends.server.receive_cq);
}

void connections_share_a_queue(std::size_t count) {
    static constexpr std::size_t rounds = 20;
    const Sizes sizes{.cqe = 512, .memory_bytes = 65536};
    Listener &listener = make<Listener>();
    std::vector<End *> clients;
    std::vector<End *> servers;
    for (std::size_t i = 0; i < count; ++i) {
        clients.push_back(&make<End>(sizes, i == 0 ? nullptr : clients[0]));
        clients[i]->resolve(listener.port);
        clients[i]->request();
        servers.push_back(&make<End>(sizes, i == 0 ? nullptr : servers[0]));
        servers[i]->take(listener.take_request().id);
        servers[i]->accept();
        expect_event(clients[i]->events, RDMA_CM_EVENT_ESTABLISHED);
        expect_event(servers[i]->events, RDMA_CM_EVENT_ESTABLISHED);
    }
    for (std::size_t round = 0; round < rounds; ++round) {
        for (std::size_t i = 0; i < count; ++i) {
            fill(*clients[i], 0, 3000, static_cast<unsigned>(round + i));
            assert_int_equal(post_receive(*servers[i], i, {sge(*servers[i], 8192, 64)}), 0);
            assert_int_equal(
                post(*clients[i],
                     {unsignaled(write_request(*clients[i], *servers[i], 0, 3000, i)),
                      settling_request(*clients[i], *servers[i], i), send_request(*clients[i], 0, 64, i)}),
                0);
        }
        std::vector<unsigned> seen(count, 0);
        for (std::size_t left = 3 * count; left != 0; --left) {
            const bool receive = left % 3 == 0;
            const ibv_wc completion = next_completion(receive ? servers[0]->cq : clients[0]->cq);
            assert_int_equal(completion.status, IBV_WC_SUCCESS);
            const End &whose = receive ? *servers[completion.wr_id] : *clients[completion.wr_id];
            assert_int_equal(completion.qp_num, whose.id->qp->qp_num);
            ++seen[completion.wr_id];
        }
        assert_true(std::ranges::all_of(seen, [](unsigned times) { return times == 3; }));
        for (std::size_t i = 0; i < count; ++i) {
            assert_true(holds(*servers[i], 0, 3000, static_cast<unsigned>(round + i)));
        }
    }
    // One connection ends, and the others go on.
    assert_int_equal(provider().cm.disconnect(clients[count - 1]->id), 0);
    expect_event(servers[count - 1]->events, RDMA_CM_EVENT_DISCONNECTED);
    if (count > 1) {
        settle(*clients[0], *servers[0]);
    }
}

void one_connection_with_a_queue(void **) {
    connections_share_a_queue(1);
}
void three_connections_share_a_queue(void **) {
    connections_share_a_queue(3);
}
void twenty_connections_share_a_queue(void **) {
    connections_share_a_queue(20);
}

// The completion that has no room is lost, and its connection with it. Nothing else is lost.
void an_overrun_of_the_receive_side_ends_the_connection(void **) {
    if (!subject.is_soft) {
        skip();  // the queue's fate is the device's own business
    }
    Ends &ends = make<Ends>();
    ends.server.sizes.cqe = 2;
    ends.connect();
    for (std::uint64_t i = 0; i < 4; ++i) {
        assert_int_equal(post_receive(ends.server, i, {sge(ends.server, 0, 8)}), 0);
    }
    for (std::uint64_t i = 0; i < 4; ++i) {
        assert_int_equal(post(ends.client, {send_request(ends.client, 0, 8, i)}), 0);
    }
    ends.expect_disconnected();
    expect_completion(ends.server.cq, 0);
    expect_completion(ends.server.cq, 1);
    expect_no_completion(ends.server.cq);
}

void an_overrun_of_the_send_side_ends_the_connection(void **) {
    if (!subject.is_soft) {
        skip();
    }
    Ends &ends = make<Ends>();
    ends.client.sizes.cqe = 2;
    ends.connect();
    const std::vector<Request> writes(4, write_request(ends.client, ends.server, 0, 8, 5));
    assert_int_equal(post(ends.client, writes), 0);
    ends.expect_disconnected();
    expect_completion(ends.client.cq, 5);
    expect_completion(ends.client.cq, 5);
    expect_no_completion(ends.client.cq);
}

// A queue has a power of two of places and says so, as queues of cards and of the
// kernel's devices in software do.
void queues_are_rounded_up(void **) {
    Ends &ends = connected({.send_wr = 36, .receive_wr = 5, .cqe = 36});
    if (!subject.is_soft) {
        skip();  // which rounds as it likes
    }
    ibv_qp_attr attributes{};
    ibv_qp_init_attr init{};
    assert_int_equal(softrdma_ibv_query_qp(ends.client.id->qp, &attributes, IBV_QP_CAP, &init), 0);
    assert_int_equal(attributes.cap.max_send_wr, 64);
    assert_int_equal(attributes.cap.max_recv_wr, 8);
    assert_int_equal(init.cap.max_send_wr, 64);
    assert_int_equal(ends.client.cq->cqe, 64);
    // The program can use all places: for requests, completions and receives.
    const auto write = write_request(ends.client, ends.server, 0, 8, 7);
    assert_int_equal(post(ends.client, std::vector<Request>(64, write)), 0);
    std::size_t refused = 1;
    assert_int_equal(post(ends.client, {write}, &refused), ENOMEM);
    assert_int_equal(refused, 0);
    for (unsigned i = 0; i < 64; ++i) {
        expect_completion(ends.client.cq, 7);
    }
    for (std::uint64_t i = 0; i < 8; ++i) {
        assert_int_equal(post_receive(ends.client, i, {sge(ends.client, 0, 8)}), 0);
    }
    assert_int_equal(post_receive(ends.client, 8, {sge(ends.client, 0, 8)}), ENOMEM);
}

// The maker of a queue is told what it is given.
void what_was_given_is_told(void **) {
    Ends &ends = connected();
    if (!subject.is_soft) {
        skip();
    }
    ibv_srq_init_attr shared{};
    shared.attr = {.max_wr = 36, .max_sge = 1, .srq_limit = 0};
    ibv_srq *const receives = provider().domain.create_srq(ends.client.pd, &shared);
    assert_non_null(receives);
    assert_int_equal(shared.attr.max_wr, 64);
    ibv_srq_attr of_it{};
    assert_int_equal(softrdma_ibv_query_srq(receives, &of_it), 0);
    assert_int_equal(of_it.max_wr, 64);
    assert_int_equal(provider().domain.destroy_srq(receives), 0);
    for (const auto type : {IBV_QPT_RC, IBV_QPT_UD}) {
        ibv_qp_init_attr wanted{};
        wanted.send_cq = wanted.recv_cq = ends.client.cq;
        wanted.qp_type = type;
        wanted.cap = {
            .max_send_wr = 36, .max_recv_wr = 0, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
        ibv_qp *const qp = softrdma_ibv_create_qp(ends.client.pd, &wanted);
        if (type == IBV_QPT_UD && std::getenv("RPMA_TLS") != nullptr) {
            assert_null(qp);  // datagrams have no TLS
            assert_int_equal(errno, EOPNOTSUPP);
            continue;
        }
        assert_non_null(qp);
        assert_int_equal(wanted.cap.max_send_wr, 64);
        assert_int_equal(wanted.cap.max_recv_wr, 1);
        assert_int_equal(softrdma_ibv_destroy_qp(qp), 0);
    }
    ibv_cq *const queue = provider().completion.create_cq(ends.client.id->verbs, 100, nullptr, nullptr, 0);
    assert_non_null(queue);
    assert_int_equal(queue->cqe, 128);
    assert_int_equal(softrdma_ibv_resize_cq(queue, 200), 0);
    assert_int_equal(queue->cqe, 256);
    assert_int_equal(provider().completion.destroy_cq(queue), 0);
}

constexpr CMUnitTest tests[] = {
    cmocka_unit_test(queues_are_rounded_up),
    cmocka_unit_test(what_was_given_is_told),
    cmocka_unit_test(slots_of_unsignaled_requests_come_back_with_a_polled_completion),
    cmocka_unit_test(a_queue_full_of_unsignaled_requests_stays_full),
    cmocka_unit_test(slots_of_signaled_requests_come_back_one_by_one),
    cmocka_unit_test(a_full_receive_queue_refuses),
    cmocka_unit_test(separate_queues_for_sends_and_receives),
    cmocka_unit_test(one_connection_with_a_queue),
    cmocka_unit_test(three_connections_share_a_queue),
    cmocka_unit_test(twenty_connections_share_a_queue),
    cmocka_unit_test(an_overrun_of_the_receive_side_ends_the_connection),
    cmocka_unit_test(an_overrun_of_the_send_side_ends_the_connection),
};

}  // namespace

std::span<const CMUnitTest> queue_tests() {
    return tests;
}

}  // namespace conformance
