// SPDX-License-Identifier: BSD-3-Clause
// conformance: tests what several threads may do at once, for ThreadSanitizer to look at. The tests are short
// storms without a seed.
#include <atomic>
#include <cerrno>
#include <mutex>

#include "suite.hpp"

namespace conformance {

namespace {

// Ids come and go while another thread fetches and acknowledges the events of their channel.
void ids_go_while_their_events_are_fetched(void **) {
    static constexpr unsigned rounds = 1000;
    Listener &listener = make<Listener>();
    End &last = make<End>();  // its events tell the fetching thread to stop
    last.resolve(listener.port);
    auto &stop = make<std::atomic<bool>>(false);
    auto &fetcher = make<Thread>([&last, &stop]() -> std::string {
        while (!stop.load()) {
            rdma_cm_event *event = nullptr;
            if (provider().cm.get_cm_event(last.events, &event) != 0) {
                return "no event";
            }
            if (event->event == RDMA_CM_EVENT_REJECTED) {
                stop.store(true);
            }
            (void)provider().cm.ack_cm_event(event);
        }
        return {};
    });
    for (unsigned round = 0; round < rounds; ++round) {
        rdma_cm_id *id = nullptr;
        assert_int_equal(provider().cm.create_id(last.events, &id, nullptr, RDMA_PS_TCP), 0);
        resolve_address(id, listener.port);
        if (round % 3 == 0) {
            std::this_thread::yield();
        }
        assert_int_equal(provider().cm.destroy_id(id), 0);
    }
    last.request();
    const CmEvent request = listener.take_request();
    assert_int_equal(provider().cm.reject(request.id, nullptr, 0), 0);
    assert_int_equal(provider().cm.destroy_id(request.id), 0);
    fetcher.expect_well();
}

// Clients go at any moment of their start-up. Their requests, and the answers to them, come meanwhile.
void clients_go_while_they_connect(void **) {
    static constexpr unsigned rounds = 100;
    Listener &listener = make<Listener>();
    auto &refuser = make<Thread>([&listener]() -> std::string {
        for (bool last = false; !last;) {
            rdma_cm_event *event = nullptr;
            if (provider().cm.get_cm_event(listener.events, &event) != 0) {
                return "no event";
            }
            rdma_cm_id *const id = event->id;
            const bool is_request = event->event == RDMA_CM_EVENT_CONNECT_REQUEST;
            // On InfiniBand the data are zeros when there is none.
            const auto *const data = static_cast<const char *>(event->param.conn.private_data);
            last = data != nullptr && *data != 0;
            (void)provider().cm.ack_cm_event(event);
            if (!is_request) {
                return "an event that is no request";
            }
            (void)provider().cm.reject(id, nullptr, 0);  // fails when the client is gone
            (void)provider().cm.destroy_id(id);
        }
        return {};
    });
    for (unsigned round = 0; round < rounds; ++round) {
        End &client = make<End>(Sizes{.memory_bytes = 4096});
        client.resolve(listener.port);
        client.request();
        for (unsigned i = 0; i < round % 8; ++i) {
            std::this_thread::yield();
        }
        client.destroy();
    }
    End &last = make<End>();
    last.resolve(listener.port);
    last.request("the last");
    expect_event(last.events, RDMA_CM_EVENT_REJECTED);
    refuser.expect_well();
}

// Completion queues come and go while another thread waits on their channel.
void queues_go_while_their_events_are_fetched(void **) {
    static constexpr unsigned rounds = 300;
    Ends &ends = connected({.send_wr = 1});
    const End &client = ends.client;
    auto &stop = make<std::atomic<bool>>(false);
    auto &fetcher = make<Thread>([&client, &stop]() -> std::string {
        while (!stop.load()) {
            ibv_cq *cq = nullptr;
            void *context = nullptr;
            if (provider().completion.get_cq_event(client.channel, &cq, &context) != 0) {
                return "no event";
            }
            provider().completion.ack_cq_events(cq, 1);
        }
        return {};
    });
    for (unsigned round = 0; round < rounds; ++round) {
        ibv_cq *const cq = provider().completion.create_cq(client.id->verbs, 8, nullptr, client.channel, 0);
        assert_non_null(cq);
        assert_int_equal(ibv_req_notify_cq(cq, 0), 0);
        assert_int_equal(ibv_req_notify_cq(client.cq, 0), 0);
        assert_int_equal(post(client, {write_request(client, ends.server, 0, 8, 1)}), 0);
        expect_completion(client.cq, 1);
        assert_int_equal(provider().completion.destroy_cq(cq), 0);
    }
    stop.store(true);
    assert_int_equal(ibv_req_notify_cq(client.cq, 0), 0);
    assert_int_equal(post(client, {write_request(client, ends.server, 0, 8, 1)}), 0);
    fetcher.expect_well();
}

std::string fetch(rdma_event_channel *events, rdma_cm_event_type type) {
    rdma_cm_event *event = nullptr;
    if (provider().cm.get_cm_event(events, &event) != 0) {
        return "no event";
    }
    const bool right = event->event == type;
    const std::string name = provider().cm.event_str(event->event);
    (void)provider().cm.ack_cm_event(event);
    return right ? "" : "unexpected " + name;
}

// Lives the whole life of a connection, without assertions, because only the main thread may assert.
std::string live(End &client, End &server, Listener &listener, std::mutex &in_turn) {
    client.resolve(listener.port);
    {
        // Each thread makes one request at a time under the lock, so that it gets its own.
        const std::scoped_lock lock{in_turn};
        client.request();
        server.take(listener.take_request().id);
    }
    server.accept();
    for (const End *end : {&client, &server}) {
        if (auto wrong = fetch(end->events, RDMA_CM_EVENT_ESTABLISHED); !wrong.empty()) {
            return wrong;
        }
    }
    for (unsigned i = 0; i < 20; ++i) {
        ibv_wc completion{};
        if (post(client, {unsignaled(write_request(client, server, 0, 3000)),
                          settling_request(client, server, i)}) != 0 ||
            !poll_for(client.cq, completion) || completion.status != IBV_WC_SUCCESS) {
            return "an operation fails";
        }
    }
    (void)provider().cm.disconnect(client.id);
    if (auto wrong = fetch(server.events, RDMA_CM_EVENT_DISCONNECTED); !wrong.empty()) {
        return wrong;
    }
    return {};
}

void connections_live_in_several_threads(void **) {
    Listener &listener = make<Listener>();
    auto &in_turn = make<std::mutex>();
    std::vector<Thread *> threads;
    for (unsigned thread = 0; thread < 3; ++thread) {
        threads.push_back(&make<Thread>([&listener, &in_turn]() -> std::string {
            for (unsigned round = 0; round < 10; ++round) {
                End client{{.memory_bytes = 65536}};
                End server{{.memory_bytes = 65536}};
                if (auto wrong = live(client, server, listener, in_turn); !wrong.empty()) {
                    return wrong;
                }
            }
            return {};
        }));
    }
    for (Thread *const thread : threads) {
        thread->expect_well();
    }
}

// Two threads post and poll, and a third one disconnects. Every posted request comes back, done or flushed.
void a_disconnect_amid_posts_and_polls(void **) {
    for (unsigned round = 0; round < 10; ++round) {
        Ends &ends = connected({.send_wr = 64, .cqe = 512});
        auto &posted = make<std::atomic<unsigned>>(0U);
        auto &polled = make<std::atomic<unsigned>>(0U);
        auto &ended = make<std::atomic<bool>>(false);
        auto &poster = make<Thread>([&]() -> std::string {
            while (!ended.load()) {
                const int result = post(ends.client, {write_request(ends.client, ends.server, 0, 2000, 1),
                                                      read_request(ends.client, ends.server, 4096, 2000, 2)});
                if (result == 0) {
                    posted.fetch_add(2);
                } else if (result != ENOMEM) {
                    return "a post gives " + std::to_string(result);
                } else {
                    return {};  // it is unknown how many were posted
                }
            }
            return {};
        });
        auto &poller = make<Thread>([&]() -> std::string {
            ibv_wc completion{};
            while (!ended.load()) {
                if (ibv_poll_cq(ends.client.cq, 1, &completion) == 1) {
                    polled.fetch_add(1);
                }
            }
            return {};
        });
        while (polled.load() < 20) {
            std::this_thread::yield();
        }
        (void)provider().cm.disconnect(round % 2 == 0 ? ends.client.id : ends.server.id);
        expect_event(ends.client.events, RDMA_CM_EVENT_DISCONNECTED);
        ended.store(true);
        poster.expect_well();
        poller.expect_well();
        ibv_wc completion{};
        while (polled.load() < posted.load()) {
            assert_true(poll_for(ends.client.cq, completion));
            polled.fetch_add(1);
        }
    }
}

// A request fails while other threads post behind it. The request says why, and the
// threads that post do not flush it.
void a_request_fails_amid_posts(void **) {
    for (unsigned round = 0; round < 30; ++round) {
        Ends &ends = connected({.send_wr = 64, .cqe = 128, .memory_bytes = 4096});
        const End &client = ends.client;
        auto &ended = make<std::atomic<bool>>(false);
        Request bad = read_request(client, ends.server, 0, 8, 1);
        bad.rkey ^= 0x0000'0fff;
        assert_int_equal(post(client, {bad}), 0);
        std::vector<Thread *> posters;
        for (unsigned poster = 0; poster < 3; ++poster) {
            posters.push_back(&make<Thread>([&client, &ends, &ended]() -> std::string {
                const Request behind = unsignaled(write_request(client, ends.server, 0, 8));
                while (!ended.load()) {
                    (void)post(client, {behind});  // the queue is full, or the connection over
                }
                return {};
            }));
        }
        ibv_wc completion{};
        const bool polled = poll_for(client.cq, completion);
        ended.store(true);  // before an assertion leaves the threads behind
        for (Thread *const poster : posters) {
            poster->expect_well();
        }
        assert_true(polled);
        assert_int_equal(completion.wr_id, 1);
        assert_int_equal(completion.status, IBV_WC_REM_ACCESS_ERR);
    }
}

// A thread queries the state of a queue pair and asks for another state, while the connection ends. It sees
// the end.
void states_are_asked_for_while_it_ends(void **) {
    if (!subject.is_soft) {
        skip();
    }
    Ends &ends = connected();
    auto &asked = make<std::atomic<bool>>(false);
    auto &asker = make<Thread>([&ends, &asked]() -> std::string {
        ibv_qp_attr attributes{};
        ibv_qp_init_attr init{};
        do {
            attributes.qp_state = IBV_QPS_RTS;
            const int result = softrdma_ibv_modify_qp(ends.client.id->qp, &attributes, IBV_QP_STATE);
            if (result != 0 && result != EINVAL) {
                return "a change of state gives " + std::to_string(result);
            }
            if (softrdma_ibv_query_qp(ends.client.id->qp, &attributes, IBV_QP_STATE, &init) != 0) {
                return "no state";
            }
            asked.store(true);
        } while (attributes.qp_state == IBV_QPS_RTS);
        return attributes.qp_state == IBV_QPS_ERR ? "" : "a state that is none of a connection's";
    });
    while (!asked.load()) {
        std::this_thread::yield();
    }
    assert_int_equal(provider().cm.disconnect(ends.server.id), 0);
    ends.expect_disconnected();
    asker.expect_well();
}

constexpr CMUnitTest tests[] = {
    cmocka_unit_test(ids_go_while_their_events_are_fetched),
    cmocka_unit_test(clients_go_while_they_connect),
    cmocka_unit_test(queues_go_while_their_events_are_fetched),
    cmocka_unit_test(connections_live_in_several_threads),
    cmocka_unit_test(a_disconnect_amid_posts_and_polls),
    cmocka_unit_test(a_request_fails_amid_posts),
    cmocka_unit_test(states_are_asked_for_while_it_ends),
};

}  // namespace

std::span<const CMUnitTest> stress_tests() {
    return tests;
}

}  // namespace conformance
