// SPDX-License-Identifier: BSD-3-Clause
// conformance: tests shared receive queues: many connections take receives from one queue.
#include <fcntl.h>

#include <array>
#include <atomic>
#include <cerrno>

#include "suite.hpp"

namespace conformance {

namespace {

constexpr std::size_t slot_bytes = 64;

int modify(ibv_srq *srq, std::uint32_t max_wr, std::uint32_t limit, int mask) {
    ibv_srq_attr attributes{.max_wr = max_wr, .max_sge = 1, .srq_limit = limit};
    return subject.is_soft ? softrdma_ibv_modify_srq(srq, &attributes, mask)
                           : ibv_modify_srq(srq, &attributes, mask);
}

ibv_srq_attr query(ibv_srq *srq) {
    ibv_srq_attr attributes{};
    assert_int_equal(
        subject.is_soft ? softrdma_ibv_query_srq(srq, &attributes) : ibv_query_srq(srq, &attributes), 0);
    return attributes;
}

ibv_async_event next_async_event(ibv_context *context) {
    ibv_async_event event{};
    assert_int_equal(subject.is_soft ? softrdma_ibv_get_async_event(context, &event)
                                     : ibv_get_async_event(context, &event),
                     0);
    return event;
}

void acknowledge(ibv_async_event &event) {
    subject.is_soft ? softrdma_ibv_ack_async_event(&event) : ibv_ack_async_event(&event);
}

// A Hub has connections whose servers all take their receives from the first server's queue.
class Hub {
public:
    explicit Hub(const Sizes &sizes) : sizes_{sizes} {}

    void connect(std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) {
            auto &client = *clients.emplace_back(std::make_unique<End>(Sizes{.send_wr = 512, .cqe = 1024}));
            const End *const lender = servers.empty() ? nullptr : servers.front().get();
            auto &server = *servers.emplace_back(std::make_unique<End>(sizes_, lender));
            client.resolve(listener_.port);
            if (!client.can_share_receives()) {
                skip();
            }
            client.request();
            server.take(listener_.take_request().id);
            server.accept();
            expect_event(client.events, RDMA_CM_EVENT_ESTABLISHED);
            expect_event(server.events, RDMA_CM_EVENT_ESTABLISHED);
        }
    }
    ~Hub() {
        while (!servers.empty()) {
            servers.pop_back();  // the lender last
        }
    }
    Hub(const Hub &) = delete;
    Hub &operator=(const Hub &) = delete;

    [[nodiscard]] const End &home() const { return *servers.front(); }
    // Posts a receive in the slot of its number.
    [[nodiscard]] int post_receive(std::uint64_t number) const {
        return post_shared_receive(home(), number, {sge(home(), number * slot_bytes, slot_bytes)});
    }
    [[nodiscard]] int send(std::size_t client, std::uint64_t wr_id = 1) const {
        return post(*clients[client], {send_request(*clients[client], 0, slot_bytes, wr_id)});
    }
    // Returns the index of the connection that a completion belongs to.
    [[nodiscard]] std::size_t of(const ibv_wc &completion) const {
        for (std::size_t i = 0; i < servers.size(); ++i) {
            if (servers[i]->id->qp->qp_num == completion.qp_num) {
                return i;
            }
        }
        return servers.size();
    }

    std::vector<std::unique_ptr<End>> clients;
    std::vector<std::unique_ptr<End>> servers;

private:
    Sizes sizes_;
    Listener listener_;
};

Hub &hub(std::size_t connections, const Sizes &sizes = {.shared_receive_wr = 16, .cqe = 1024}) {
    Hub &made = make<Hub>(sizes);
    made.connect(connections);
    return made;
}

void skip_on_other_iwarp(const Hub &all) {
    if (all.home().is_iwarp() && !subject.is_soft) {
        skip();
    }
}

void several_connections_take_from_one_queue(void **) {
    static constexpr std::size_t connections = 3;
    Hub &all = hub(connections);
    for (std::uint64_t i = 0; i < 2 * connections; ++i) {
        assert_int_equal(all.post_receive(i), 0);
    }
    for (std::size_t i = 0; i < 2 * connections; ++i) {
        fill(*all.clients[i % connections], 0, slot_bytes, static_cast<unsigned>(i % connections));
        assert_int_equal(all.send(i % connections), 0);
        expect_completion(all.clients[i % connections]->cq, 1);
        const ibv_wc received = next_completion(all.home().cq);
        assert_int_equal(received.status, IBV_WC_SUCCESS);
        assert_int_equal(received.opcode, IBV_WC_RECV);
        assert_int_equal(received.byte_len, slot_bytes);
        assert_int_equal(received.wr_id, i);  // in the order of posting
        assert_int_equal(all.of(received), i % connections);
        assert_true(holds(all.home(), i * slot_bytes, slot_bytes, static_cast<unsigned>(i % connections)));
    }
}

void writes_with_immediate_take_from_it(void **) {
    Hub &all = hub(2);
    if (!all.clients[0]->native(verbs::native_immediate) && all.clients[0]->is_iwarp()) {
        skip();
    }
    assert_int_equal(all.post_receive(0), 0);
    assert_int_equal(
        post(*all.clients[1],
             {with_immediate(write_request(*all.clients[1], *all.servers[1], 0, 1000), 0x11223344)}),
        0);
    const ibv_wc received = next_completion(all.home().cq);
    assert_int_equal(received.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    assert_int_equal(received.imm_data, 0x11223344);
    assert_int_equal(received.byte_len, 1000);
    assert_int_equal(all.of(received), 1);
}

// Each of the connections has found the queue empty. The connection that waits longest is served first.
void sends_that_find_it_empty(void **) {
    static constexpr std::size_t connections = 3;
    Hub &all = hub(connections);
    skip_on_other_iwarp(all);
    for (std::size_t i = 0; i < connections; ++i) {
        assert_int_equal(all.send(i), 0);
        if (subject.is_soft) {
            expect_completion(all.clients[i]->cq, 1);
            settle(*all.clients[i], *all.servers[i]);  // it is kept by now
        }
    }
    for (std::uint64_t i = 0; i < connections; ++i) {
        expect_no_completion(all.home().cq);
        assert_int_equal(all.post_receive(i), 0);
        const ibv_wc received = next_completion(all.home().cq);
        assert_int_equal(received.wr_id, i);
        if (subject.is_soft) {
            assert_int_equal(all.of(received), i);
        }
    }
    if (!subject.is_soft) {
        for (const auto &client : all.clients) {
            expect_completion(client->cq, 1);  // acknowledged when there was a receive for it
        }
    }
}

// The clients send more than the device keeps. The streams stall and go on with the receives,
// and each stream keeps its order.
void stalled_connections_go_on(void **) {
    static constexpr std::uint32_t messages = 300;
    static constexpr std::size_t connections = 2;
    Hub &all = hub(connections, {.shared_receive_wr = 8, .cqe = 1024});
    if (!subject.is_soft) {
        skip();
    }
    for (std::size_t client = 0; client < connections; ++client) {
        for (std::uint32_t i = 0; i < messages; ++i) {
            assert_int_equal(
                post(*all.clients[client], {with_immediate(send_request(*all.clients[client], 0, 8, i), i)}),
                0);
        }
        for (std::uint32_t i = 0; i < messages; ++i) {
            expect_completion(all.clients[client]->cq, i);
        }
    }
    std::array<std::uint32_t, connections> seen{};
    for (std::uint32_t i = 0; i < connections * messages; ++i) {
        assert_int_equal(all.post_receive(i % 8), 0);
        const ibv_wc received = next_completion(all.home().cq);
        assert_int_equal(received.status, IBV_WC_SUCCESS);
        assert_int_equal(received.imm_data, seen[all.of(received)]++);
    }
    for (std::size_t client = 0; client < connections; ++client) {
        assert_int_equal(seen[client], messages);
        settle(*all.clients[client], *all.servers[client]);
    }
}

// Posted receives belong to the queue, and not to a connection.
void the_end_of_one_leaves_the_receives(void **) {
    Hub &all = hub(2);
    for (std::uint64_t i = 0; i < 4; ++i) {
        assert_int_equal(all.post_receive(i), 0);
    }
    assert_int_equal(provider().cm.disconnect(all.clients[0]->id), 0);
    expect_event(all.servers[0]->events, RDMA_CM_EVENT_DISCONNECTED);
    expect_event(all.clients[0]->events, RDMA_CM_EVENT_DISCONNECTED);
    expect_no_completion(all.home().cq);
    for (std::uint64_t i = 0; i < 4; ++i) {
        assert_int_equal(all.send(1), 0);
        const ibv_wc received = next_completion(all.home().cq);
        assert_int_equal(received.status, IBV_WC_SUCCESS);
        assert_int_equal(received.wr_id, i);
        assert_int_equal(all.of(received), 1);
    }
}

// Some of the connections that wait for a receive end or are destroyed, and the others get it.
void those_that_wait_may_go(void **) {
    Hub &all = hub(3);
    if (!subject.is_soft) {
        skip();
    }
    for (std::size_t i = 0; i < 3; ++i) {
        assert_int_equal(all.send(i), 0);
        expect_completion(all.clients[i]->cq, 1);
        settle(*all.clients[i], *all.servers[i]);
    }
    assert_int_equal(provider().cm.disconnect(all.servers[0]->id), 0);
    expect_event(all.clients[0]->events, RDMA_CM_EVENT_DISCONNECTED);
    expect_event(all.servers[0]->events, RDMA_CM_EVENT_DISCONNECTED);
    all.servers[1]->destroy();
    assert_int_equal(all.post_receive(7), 0);
    const ibv_wc received = next_completion(all.home().cq);
    assert_int_equal(received.status, IBV_WC_SUCCESS);
    assert_int_equal(received.wr_id, 7);
    assert_int_equal(received.qp_num, all.servers[2]->id->qp->qp_num);
    expect_no_completion(all.home().cq);
}

// The connection's completion queue overruns while the connection is given the receives that it waits for.
// The other receives stay.
void a_connection_that_fails_takes_no_more(void **) {
    static constexpr std::size_t messages = 5;
    static constexpr int places = 2;
    Hub &all = hub(2, {.shared_receive_wr = 16, .cqe = places});
    if (!subject.is_soft) {
        skip();
    }
    for (std::size_t i = 0; i < messages; ++i) {
        assert_int_equal(all.send(0), 0);
        expect_completion(all.clients[0]->cq, 1);
    }
    settle(*all.clients[0], *all.servers[0]);
    std::array<ibv_recv_wr, messages> chain{};
    ibv_sge place = sge(all.home(), 0, slot_bytes);
    for (std::size_t i = 0; i < messages; ++i) {
        chain[i].wr_id = i;
        chain[i].next = i + 1 < messages ? &chain[i + 1] : nullptr;
        chain[i].sg_list = &place;
        chain[i].num_sge = 1;
    }
    ibv_recv_wr *bad = nullptr;
    assert_int_equal(ibv_post_srq_recv(all.home().srq, chain.data(), &bad), 0);
    expect_event(all.servers[0]->events, RDMA_CM_EVENT_DISCONNECTED);
    for (std::uint64_t i = 0; i < places; ++i) {
        expect_completion(all.home().cq, i);
    }
    expect_no_completion(all.home().cq);
    // One receive was lost in the overrun.
    for (std::uint64_t i = places + 1; i < messages; ++i) {
        assert_int_equal(all.send(1), 0);
        expect_completion(all.home().cq, i);
    }
}

void its_places_are_free_again(void **) {
    Hub &all = hub(1, {.shared_receive_wr = 4, .cqe = 1024});
    const std::uint32_t places = query(all.home().srq).max_wr;
    assert_true(places >= 4);
    for (unsigned round = 0; round < 3; ++round) {
        for (std::uint64_t i = 0; i < places; ++i) {
            assert_int_equal(all.post_receive(i), 0);
        }
        if (subject.is_soft) {
            assert_int_equal(all.post_receive(places), ENOMEM);
        }
        for (std::uint64_t i = 0; i < places; ++i) {
            assert_int_equal(all.send(0), 0);
            expect_completion(all.clients[0]->cq, 1);
            expect_completion(all.home().cq, i);
        }
    }
}

void what_is_refused(void **) {
    Hub &all = hub(1);
    const End &home = all.home();
    assert_int_equal(provider().domain.destroy_srq(home.srq), EBUSY);
    assert_int_not_equal(provider().domain.dealloc_pd(home.pd), 0);
    assert_int_not_equal(modify(home.srq, 0, query(home.srq).max_wr + 1, IBV_SRQ_LIMIT), 0);
    ibv_device_attr_ex device{};
    assert_int_equal(provider().device.query_device_ex(home.id->verbs, nullptr, &device), 0);
    for (const bool too_long : {true, false}) {
        ibv_srq_init_attr attributes{};
        attributes.attr.max_wr = too_long ? static_cast<std::uint32_t>(device.orig_attr.max_srq_wr) + 1 : 1;
        attributes.attr.max_sge = too_long ? 1 : static_cast<std::uint32_t>(device.orig_attr.max_srq_sge) + 1;
        assert_null(provider().domain.create_srq(home.pd, &attributes));
    }
    if (subject.is_soft) {
        assert_int_equal(post_receive(home, 1, {sge(home, 0, 8)}), EINVAL);  // it has none of its own
        const ibv_sge one = sge(home, 0, 8);
        assert_int_equal(post_shared_receive(home, 1, {one, one}), EINVAL);
        assert_int_equal(modify(home.srq, 100, 0, IBV_SRQ_MAX_WR), EOPNOTSUPP);
    }
    // The queue works on.
    assert_int_equal(all.post_receive(0), 0);
    assert_int_equal(all.send(0), 0);
    expect_completion(home.cq, 0);
}

void fewer_than_the_limit_is_an_event(void **) {
    Hub &all = hub(1);
    ibv_srq *const srq = all.home().srq;
    for (std::uint64_t i = 0; i < 4; ++i) {
        assert_int_equal(all.post_receive(i), 0);
    }
    assert_int_equal(modify(srq, 0, 3, IBV_SRQ_LIMIT), 0);
    assert_int_equal(query(srq).srq_limit, 3);
    assert_int_equal(all.send(0), 0);
    expect_completion(all.home().cq, 0);
    ibv_context *const context = all.home().id->verbs;
    assert_false(has_event(context->async_fd));  // three are not fewer than three
    assert_int_equal(all.send(0), 0);
    expect_completion(all.home().cq, 1);
    ibv_async_event event = next_async_event(context);
    assert_int_equal(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
    assert_ptr_equal(event.element.srq, srq);
    acknowledge(event);
    if (subject.is_soft) {
        assert_int_equal(query(srq).srq_limit, 0);
    }
    // The event comes only once.
    assert_int_equal(all.send(0), 0);
    expect_completion(all.home().cq, 2);
    assert_false(has_event(context->async_fd));
}

void the_end_of_a_connection_is_an_event(void **) {
    Hub &all = hub(2);
    skip_on_other_iwarp(all);  // siw does not tell
    ibv_context *const context = all.home().id->verbs;
    ibv_qp *const ending = all.servers[1]->id->qp;
    assert_int_equal(provider().cm.disconnect(all.servers[1]->id), 0);
    ibv_async_event event = next_async_event(context);
    assert_int_equal(event.event_type, IBV_EVENT_QP_LAST_WQE_REACHED);
    assert_ptr_equal(event.element.qp, ending);
    acknowledge(event);
    assert_false(has_event(context->async_fd));
}

// An event that was fetched holds its queue until it is acknowledged. An event that was
// not fetched goes with its queue.
void events_of_a_queue_that_goes(void **) {
    if (!subject.is_soft) {
        skip();
    }
    for (const bool fetched : {true, false}) {
        Hub &all = hub(1);
        End &server = *all.servers[0];
        ibv_context *const context = server.id->verbs;
        assert_int_equal(all.post_receive(0), 0);
        assert_int_equal(modify(server.srq, 0, 1, IBV_SRQ_LIMIT), 0);
        assert_int_equal(all.send(0), 0);
        expect_completion(server.cq, 0);
        assert_true(has_event(context->async_fd));
        if (!fetched) {
            server.destroy();
            assert_false(has_event(context->async_fd));
            const int flags = fcntl(context->async_fd, F_GETFL);
            make_non_blocking(context->async_fd);
            ibv_async_event none{};
            assert_int_equal(softrdma_ibv_get_async_event(context, &none), -1);
            assert_int_equal(errno, EAGAIN);
            assert_int_equal(fcntl(context->async_fd, F_SETFL, flags), 0);
            continue;
        }
        ibv_async_event event = next_async_event(context);
        auto &acknowledged = make<std::atomic<bool>>(false);
        auto &destroyer = make<Thread>([&server, &acknowledged]() -> std::string {
            server.destroy();
            return acknowledged.load() ? "" : "destroyed while an event is not acknowledged";
        });
        std::this_thread::yield();
        acknowledged.store(true);
        acknowledge(event);
        destroyer.expect_well();
    }
}

// The queue has few receives and is always empty. Every send waits, and none is forgotten. Each thread has a
// connection. One more thread posts receives, while another takes the completions.
void no_wake_up_is_lost(void **) {
    static constexpr std::uint32_t messages = 500;
    static constexpr std::size_t connections = 3;
    Hub &all = hub(connections, {.shared_receive_wr = 4, .cqe = 2048});
    if (!subject.is_soft) {
        skip();
    }
    auto &received = make<std::atomic<std::uint32_t>>(0);
    std::vector<Thread *> threads;
    for (std::size_t client = 0; client < connections; ++client) {
        threads.push_back(&make<Thread>([&all, client]() -> std::string {
            for (std::uint32_t i = 0; i < messages; ++i) {
                ibv_wc completion{};
                if (post(*all.clients[client],
                         {with_immediate(send_request(*all.clients[client], 0, 8, i), i)}) != 0 ||
                    !poll_for(all.clients[client]->cq, completion) || completion.status != IBV_WC_SUCCESS) {
                    return "a send fails";
                }
            }
            return {};
        }));
    }
    threads.push_back(&make<Thread>([&all, &received]() -> std::string {
        for (std::uint32_t posted = 0; posted < connections * messages;) {
            // The thread posts no more receives than are polled, so that one receive at a
            // time fills a place of the memory.
            if (posted - received.load() < 4 && all.post_receive(posted % 4) == 0) {
                ++posted;
            } else {
                std::this_thread::yield();
            }
        }
        return {};
    }));
    std::array<std::uint32_t, connections> seen{};
    for (std::uint32_t i = 0; i < connections * messages; ++i) {
        const ibv_wc completion = next_completion(all.home().cq);
        assert_int_equal(completion.status, IBV_WC_SUCCESS);
        assert_int_equal(completion.imm_data, seen[all.of(completion)]++);
        received.fetch_add(1);
    }
    for (Thread *const thread : threads) {
        thread->expect_well();
    }
}

// Connections that wait go away, while another thread posts the receives that they wait for.
void those_that_wait_go_meanwhile(void **) {
    static constexpr unsigned rounds = 20;
    Hub &all = hub(1, {.shared_receive_wr = 64, .cqe = 2048});
    if (!subject.is_soft) {
        skip();
    }
    for (unsigned round = 0; round < rounds; ++round) {
        all.connect(2);
        for (const std::size_t client : {all.clients.size() - 2, all.clients.size() - 1}) {
            assert_int_equal(all.send(client), 0);
            expect_completion(all.clients[client]->cq, 1);
            settle(*all.clients[client], *all.servers[client]);
        }
        auto &poster = make<Thread>([&all]() -> std::string {
            return all.post_receive(0) == 0 && all.post_receive(1) == 0 ? "" : "a receive is refused";
        });
        all.servers.back()->destroy();
        all.servers[all.servers.size() - 2]->destroy();
        poster.expect_well();
        // Chance decides which receives were taken. The first connection takes those that are left.
        ibv_wc completion{};
        while (ibv_poll_cq(all.home().cq, 1, &completion) == 1) {
            assert_int_equal(completion.status, IBV_WC_SUCCESS);
        }
        assert_int_equal(all.post_receive(2), 0);
        for (std::uint64_t taken = 0; taken != 2;) {
            assert_int_equal(all.send(0, 2), 0);
            expect_completion(all.clients[0]->cq, 2);
            const ibv_wc mine = next_completion(all.home().cq);
            assert_int_equal(mine.qp_num, all.home().id->qp->qp_num);
            taken = mine.wr_id;
        }
        all.clients.resize(1);
        all.servers.resize(1);
    }
}

constexpr CMUnitTest tests[] = {
    cmocka_unit_test(several_connections_take_from_one_queue),
    cmocka_unit_test(writes_with_immediate_take_from_it),
    cmocka_unit_test(sends_that_find_it_empty),
    cmocka_unit_test(stalled_connections_go_on),
    cmocka_unit_test(the_end_of_one_leaves_the_receives),
    cmocka_unit_test(those_that_wait_may_go),
    cmocka_unit_test(a_connection_that_fails_takes_no_more),
    cmocka_unit_test(its_places_are_free_again),
    cmocka_unit_test(what_is_refused),
    cmocka_unit_test(fewer_than_the_limit_is_an_event),
    cmocka_unit_test(the_end_of_a_connection_is_an_event),
    cmocka_unit_test(events_of_a_queue_that_goes),
    cmocka_unit_test(no_wake_up_is_lost),
    cmocka_unit_test(those_that_wait_go_meanwhile),
};

}  // namespace

std::span<const CMUnitTest> shared_receive_tests() {
    return tests;
}

}  // namespace conformance
