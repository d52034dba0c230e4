// SPDX-License-Identifier: BSD-3-Clause
// conformance: tests completion channels: which thread waits for which event.
#include <poll.h>
#include <signal.h>

#include <atomic>
#include <cerrno>

#include "suite.hpp"

namespace conformance {

namespace {

void write_once(const Ends &ends) {
    assert_int_equal(post(ends.client, {write_request(ends.client, ends.server, 0, 8, 1)}), 0);
}

// The server only ever waits for events. It polls the completions that are there, asks
// again, looks once more, and sleeps.
void a_waiting_thread_is_woken_for_every_message(void **) {
    static constexpr std::uint64_t messages = 500;
    Ends &ends = connected({.receive_wr = 64});
    for (std::uint64_t i = 0; i < 64; ++i) {
        assert_int_equal(post_receive(ends.server, i, {sge(ends.server, 0, 8)}), 0);
    }
    auto &server = make<Thread>([&ends]() -> std::string {
        std::uint64_t seen = 0;
        while (seen < messages) {
            if (ibv_req_notify_cq(ends.server.cq, 0) != 0) {
                return "cannot arm";
            }
            ibv_wc completion{};
            while (ibv_poll_cq(ends.server.cq, 1, &completion) == 1) {
                if (completion.status != IBV_WC_SUCCESS) {
                    return ibv_wc_status_str(completion.status);
                }
                if (completion.opcode != IBV_WC_RECV) {
                    continue;
                }
                ++seen;
                if (post_receive(ends.server, 1, {sge(ends.server, 0, 8)}) != 0 ||
                    post(ends.server, {send_request(ends.server, 0, 8)}) != 0) {
                    return "a post is refused";
                }
            }
            if (seen == messages) {
                break;
            }
            ibv_cq *cq = nullptr;
            void *context = nullptr;
            if (provider().completion.get_cq_event(ends.server.channel, &cq, &context) != 0) {
                return "no event";
            }
            provider().completion.ack_cq_events(cq, 1);
        }
        return {};
    });
    for (std::uint64_t i = 1; i <= messages; ++i) {
        assert_int_equal(post_receive(ends.client, 2, {sge(ends.client, 0, 8)}), 0);
        assert_int_equal(post(ends.client, {send_request(ends.client, 0, 8, 1)}), 0);
        for (unsigned left = 2; left != 0; --left) {
            assert_int_equal(next_completion(ends.client.cq).status, IBV_WC_SUCCESS);
        }
    }
    server.expect_well();
}

std::atomic<unsigned> signals_seen{0};
void on_signal(int) {
    signals_seen.fetch_add(1);
}

void a_signal_interrupts_the_wait(void **) {
    Ends &ends = connected();
    struct sigaction action = {};
    action.sa_handler = on_signal;  // without SA_RESTART
    assert_int_equal(sigaction(SIGUSR1, &action, nullptr), 0);
    for (const bool completions : {true, false}) {
        auto &interrupted = make<std::atomic<bool>>(false);
        auto &waiter = make<Thread>([&ends, &interrupted, completions]() -> std::string {
            ibv_cq *cq = nullptr;
            void *context = nullptr;
            rdma_cm_event *event = nullptr;
            const int result = completions
                                   ? provider().completion.get_cq_event(ends.client.channel, &cq, &context)
                                   : provider().cm.get_cm_event(ends.client.events, &event);
            const int error = errno;
            interrupted.store(true);
            return result == -1 && error == EINTR ? "" : "no EINTR: " + std::to_string(error);
        });
        // The signal is sent again and again, because the first one may come before the thread waits.
        while (!interrupted.load()) {
            pthread_kill(waiter.handle(), SIGUSR1);
            std::this_thread::sleep_for(std::chrono::milliseconds{1});
        }
        waiter.expect_well();
    }
    // The signal lost no event.
    arm(ends.client.cq);
    write_once(ends);
    expect_cq_event(ends.client, ends.client.cq);
    assert_int_equal(provider().cm.disconnect(ends.server.id), 0);
    expect_event(ends.client.events, RDMA_CM_EVENT_DISCONNECTED);
}

void destroying_a_queue_waits_for_its_acknowledgements(void **) {
    Ends &ends = connected();
    End &client = ends.client;
    for (unsigned i = 0; i < 3; ++i) {
        arm(client.cq);
        write_once(ends);
        assert_ptr_equal(take_cq_event(client), client.cq);
        expect_completion(client.cq, 1);
    }
    client.destroy_queue_pair();
    auto &acknowledged = make<std::atomic<bool>>(false);
    ibv_cq *const cq = std::exchange(client.cq, nullptr);
    client.receive_cq = nullptr;
    auto &destroyer = make<Thread>([&acknowledged, cq]() -> std::string {
        if (provider().completion.destroy_cq(cq) != 0) {
            return "not destroyed";
        }
        return acknowledged.load() ? "" : "destroyed while an event is not acknowledged";
    });
    provider().completion.ack_cq_events(cq, 2);  // two at once; one is left
    std::this_thread::yield();
    acknowledged.store(true);
    provider().completion.ack_cq_events(cq, 1);
    destroyer.expect_well();
}

void an_event_of_a_destroyed_queue_is_gone(void **) {
    Ends &ends = connected({.separate_cqs = true});
    End &client = ends.client;
    arm(client.cq);
    write_once(ends);
    pollfd ready{.fd = client.channel->fd, .events = POLLIN, .revents = 0};
    assert_int_equal(poll(&ready, 1, patience_ms), 1);
    client.destroy_queue_pair();
    assert_int_equal(provider().completion.destroy_cq(client.cq), 0);
    client.cq = nullptr;
    assert_false(has_event(client.channel->fd));
}

constexpr CMUnitTest tests[] = {
    cmocka_unit_test(a_waiting_thread_is_woken_for_every_message),
    cmocka_unit_test(a_signal_interrupts_the_wait),
    cmocka_unit_test(destroying_a_queue_waits_for_its_acknowledgements),
    cmocka_unit_test(an_event_of_a_destroyed_queue_is_gone),
};

}  // namespace

std::span<const CMUnitTest> waiting_tests() {
    return tests;
}

}  // namespace conformance
