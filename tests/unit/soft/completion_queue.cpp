// SPDX-License-Identifier: BSD-3-Clause
// soft/queues: tests completion_queue and receive_queue without a
// connection: order, overrun, slots, notifications.
#include <fcntl.h>
#include <poll.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <thread>

#include "soft/progress/progress.hpp"
#include "soft/queues/any_queue_pair.hpp"
#include "soft/queues/completion_queue.hpp"
#include "softrdma.h"

// These come last, because they assert.
#include "../base/fixture.hpp"
#include "../base/threadless.hpp"

namespace {

using soft::CompletionQueue;

constexpr int entries = 4;
constexpr std::uint32_t receives = 2;

int errors_logged = 0;
void count_errors(int level, const char *, int, const char *, const char *, ...) {
    errors_logged += level <= 1 ? 1 : 0;
}

// This is a queue pair that is not connected, with its completion queue and channel.
struct Objects {
    Objects();
    ~Objects();
    Objects(const Objects &) = delete;
    Objects &operator=(const Objects &) = delete;

    [[nodiscard]] CompletionQueue &queue() const { return *CompletionQueue::of(cq); }
    [[nodiscard]] soft::AnyQueuePair &queue_pair() const { return *soft::AnyQueuePair::of(qp); }

    ibv_device **devices = nullptr;
    ibv_pd *pd = nullptr;
    ibv_comp_channel *channel = nullptr;
    ibv_cq *cq = nullptr;
    ibv_qp *qp = nullptr;
};

Objects::Objects() {
    errors_logged = 0;
    softrdma_set_log(count_errors, 2);
    devices = softrdma_ibv_get_device_list(nullptr);
    ibv_context *const context = softrdma_ibv_open_device(devices[0]);
    assert_non_null(context);
    pd = softrdma_ibv_alloc_pd(context);
    channel = softrdma_ibv_create_comp_channel(context);
    cq = softrdma_ibv_create_cq(context, entries, this, channel, 0);
    ibv_qp_init_attr attributes{};
    attributes.send_cq = attributes.recv_cq = cq;
    attributes.cap.max_recv_wr = receives;
    attributes.qp_type = IBV_QPT_RC;
    qp = softrdma_ibv_create_qp(pd, &attributes);
    assert_non_null(qp);
    assert_int_equal(fcntl(channel->fd, F_SETFL, O_NONBLOCK), 0);
}

Objects::~Objects() {
    if (qp != nullptr) {
        softrdma_ibv_destroy_qp(qp);
    }
    softrdma_ibv_destroy_cq(cq);
    softrdma_ibv_destroy_comp_channel(channel);
    softrdma_ibv_dealloc_pd(pd);
    softrdma_ibv_free_device_list(devices);
    softrdma_set_log(nullptr, 2);
}

bool complete(Objects &objects, std::uint64_t wr_id, bool solicited = false) {
    ibv_wc completion{};
    completion.wr_id = wr_id;
    return objects.queue().push(completion, objects.queue_pair(), CompletionQueue::WorkQueue::Send, 0,
                                solicited);
}

bool readable(const Objects &objects) {
    pollfd event{.fd = objects.channel->fd, .events = POLLIN, .revents = 0};
    return poll(&event, 1, 0) == 1;
}

// Takes one event and acknowledges it. Returns false when there is none.
bool take_event(Objects &objects) {
    ibv_cq *cq = nullptr;
    void *context = nullptr;
    if (softrdma_ibv_get_cq_event(objects.channel, &cq, &context) != 0) {
        assert_int_equal(errno, EAGAIN);
        return false;
    }
    assert_ptr_equal(cq, objects.cq);
    assert_ptr_equal(context, &objects);
    softrdma_ibv_ack_cq_events(cq, 1);
    return true;
}

// Completions that wait to be polled stay, in their order.
void grows_and_shrinks(Objects &objects) {
    std::array<ibv_wc, 8> seen;
    for (std::uint64_t i = 0; i < 3; ++i) {
        assert_true(complete(objects, i));
    }
    assert_int_equal(softrdma_ibv_resize_cq(objects.cq, 2), EINVAL);
    assert_int_equal(softrdma_ibv_resize_cq(objects.cq, 0), EINVAL);
    assert_int_equal(objects.cq->cqe, entries);
    assert_int_equal(softrdma_ibv_resize_cq(objects.cq, 3), 0);
    assert_int_equal(objects.cq->cqe, 4);
    assert_int_equal(ibv_poll_cq(objects.cq, 1, seen.data()), 1);
    assert_true(complete(objects, 3));
    assert_int_equal(softrdma_ibv_resize_cq(objects.cq, 8), 0);
    for (std::uint64_t i = 4; i < 9; ++i) {
        assert_true(complete(objects, i));
    }
    assert_false(complete(objects, 9));
    assert_int_equal(ibv_poll_cq(objects.cq, 8, seen.data()), 8);
    for (std::uint64_t i = 0; i < 8; ++i) {
        assert_int_equal(seen[i].wr_id, 1 + i);
    }
}

// The device finds a queue pair by its number as long as it exists.
void a_queue_pair_is_found(Objects &objects) {
    const std::uint32_t number = objects.qp->qp_num;
    assert_true(number > 1 && number < 0xffffff);
    assert_ptr_equal(soft::AnyQueuePair::find(number).get(), &objects.queue_pair());
    assert_null(soft::AnyQueuePair::find(0).get());
    assert_int_equal(softrdma_ibv_destroy_qp(objects.qp), 0);
    objects.qp = nullptr;
    assert_null(soft::AnyQueuePair::find(number).get());
}

void comes_out_in_order(Objects &objects) {
    std::array<ibv_wc, entries + 1> seen;
    std::uint64_t expected = 0;
    std::uint64_t next = 0;
    for (int round = 0; round < 10; ++round) {
        for (int i = 0; i < 3; ++i) {
            assert_true(complete(objects, next++));
        }
        assert_int_equal(ibv_poll_cq(objects.cq, 2, seen.data()), 2);
        assert_int_equal(seen[0].wr_id, expected++);
        assert_int_equal(seen[1].wr_id, expected++);
        assert_int_equal(ibv_poll_cq(objects.cq, entries, seen.data()), 1);
        assert_int_equal(seen[0].wr_id, expected++);
        assert_int_equal(ibv_poll_cq(objects.cq, entries, seen.data()), 0);
    }
}

void an_overrun_is_told(Objects &objects) {
    for (std::uint64_t i = 0; i < entries; ++i) {
        assert_true(complete(objects, i));
    }
    assert_int_equal(errors_logged, 0);
    assert_false(complete(objects, 100));
    assert_int_equal(errors_logged, 1);
    // The completions from before the overrun are still there, and the queue can be used again.
    std::array<ibv_wc, entries + 1> seen;
    assert_int_equal(ibv_poll_cq(objects.cq, entries + 1, seen.data()), entries);
    for (std::size_t i = 0; i < entries; ++i) {
        assert_int_equal(seen[i].wr_id, i);
    }
    assert_true(complete(objects, 5));
    assert_int_equal(ibv_poll_cq(objects.cq, 1, seen.data()), 1);
    assert_int_equal(seen[0].wr_id, 5);
}

// The event comes once, on the context. An event that the program did not fetch is dropped with its queue.
void an_overrun_is_an_event(Objects &objects) {
    ibv_context *const context = objects.cq->context;
    assert_int_equal(fcntl(context->async_fd, F_SETFL, O_NONBLOCK), 0);
    ibv_async_event event{};
    assert_int_equal(softrdma_ibv_get_async_event(context, &event), -1);
    assert_int_equal(errno, EAGAIN);
    for (std::uint64_t i = 0; i < entries + 2; ++i) {
        assert_int_equal(complete(objects, i), i < entries);
    }
    pollfd ready{.fd = context->async_fd, .events = POLLIN, .revents = 0};
    assert_int_equal(poll(&ready, 1, 0), 1);
    assert_int_equal(softrdma_ibv_get_async_event(context, &event), 0);
    assert_int_equal(event.event_type, IBV_EVENT_CQ_ERR);
    assert_ptr_equal(event.element.cq, objects.cq);
    softrdma_ibv_ack_async_event(&event);
    assert_int_equal(softrdma_ibv_get_async_event(context, &event), -1);

    ibv_cq *const other = softrdma_ibv_create_cq(context, 1, nullptr, nullptr, 0);
    assert_non_null(other);
    for (int i = 0; i < 2; ++i) {
        (void)CompletionQueue::of(other)->push({}, objects.queue_pair(), CompletionQueue::WorkQueue::Send, 0,
                                               false);
    }
    assert_int_equal(poll(&ready, 1, 0), 1);
    assert_int_equal(softrdma_ibv_destroy_cq(other), 0);
    assert_int_equal(poll(&ready, 1, 0), 0);
}

int post_receive(const Objects &objects) {
    ibv_recv_wr request{};
    ibv_recv_wr *bad = nullptr;
    return ibv_post_recv(objects.qp, &request, &bad);
}

// A slot of the receive queue is free when its completion has been polled, as on hardware.
void a_slot_is_free_when_polled(Objects &objects) {
    for (std::uint32_t i = 0; i < receives; ++i) {
        assert_int_equal(post_receive(objects), 0);
    }
    assert_int_equal(post_receive(objects), ENOMEM);
    assert_true(
        objects.queue().push({}, objects.queue_pair(), CompletionQueue::WorkQueue::Receive, 1, false));
    ibv_wc seen;
    assert_int_equal(post_receive(objects), ENOMEM);
    assert_int_equal(ibv_poll_cq(objects.cq, 1, &seen), 1);
}

// The program still polls the completions of a destroyed queue pair, and they use nothing of it.
void completions_outlive_their_queue_pair(Objects &objects) {
    assert_int_equal(post_receive(objects), 0);
    assert_true(
        objects.queue().push({}, objects.queue_pair(), CompletionQueue::WorkQueue::Receive, 1, false));
    assert_int_equal(softrdma_ibv_destroy_cq(objects.cq), EBUSY);
    softrdma_ibv_destroy_qp(objects.qp);
    objects.qp = nullptr;
    ibv_wc seen;
    assert_int_equal(ibv_poll_cq(objects.cq, 1, &seen), 1);
    assert_int_equal(ibv_poll_cq(objects.cq, 1, &seen), 0);
}

void a_notification_is_asked_for_each_time(Objects &objects) {
    assert_true(complete(objects, 1));
    assert_false(take_event(objects));
    assert_int_equal(ibv_req_notify_cq(objects.cq, 0), 0);
    assert_false(take_event(objects));  // completions that are there already cause no event
    assert_true(complete(objects, 2));
    assert_true(complete(objects, 3));
    assert_true(readable(objects));
    assert_true(take_event(objects));
    assert_false(readable(objects));
    assert_false(take_event(objects));
}

void solicited_only(Objects &objects) {
    assert_int_equal(ibv_req_notify_cq(objects.cq, 1), 0);
    assert_true(complete(objects, 1));
    assert_false(take_event(objects));
    assert_true(complete(objects, 2, true));
    assert_true(take_event(objects));
    // Asking for solicited completions does not replace asking for any.
    assert_int_equal(ibv_req_notify_cq(objects.cq, 0), 0);
    assert_int_equal(ibv_req_notify_cq(objects.cq, 1), 0);
    assert_true(complete(objects, 3));
    assert_true(take_event(objects));
}

void events_are_counted(Objects &objects) {
    for (std::uint64_t i = 0; i < 3; ++i) {
        assert_int_equal(ibv_req_notify_cq(objects.cq, 0), 0);
        assert_true(complete(objects, i));
    }
    for (int i = 0; i < 3; ++i) {
        assert_true(readable(objects));
        assert_true(take_event(objects));
    }
    assert_false(take_event(objects));
}

void two_queues_of_one_channel(Objects &objects) {
    ibv_cq *const second = softrdma_ibv_create_cq(objects.cq->context, entries, nullptr, objects.channel, 0);
    assert_non_null(second);
    assert_int_equal(ibv_req_notify_cq(objects.cq, 0), 0);
    assert_int_equal(ibv_req_notify_cq(second, 0), 0);
    assert_true(CompletionQueue::of(second)->push({}, objects.queue_pair(), CompletionQueue::WorkQueue::Send,
                                                  0, false));
    assert_true(complete(objects, 1));
    ibv_cq *cq = nullptr;
    void *context = nullptr;
    assert_int_equal(softrdma_ibv_get_cq_event(objects.channel, &cq, &context), 0);
    assert_ptr_equal(cq, second);
    softrdma_ibv_ack_cq_events(second, 1);
    assert_true(take_event(objects));
    // A destroyed queue takes its events with it.
    assert_int_equal(ibv_req_notify_cq(second, 0), 0);
    assert_true(CompletionQueue::of(second)->push({}, objects.queue_pair(), CompletionQueue::WorkQueue::Send,
                                                  0, false));
    assert_true(readable(objects));
    assert_int_equal(softrdma_ibv_destroy_cq(second), 0);
    assert_false(readable(objects));
    assert_false(take_event(objects));
}

// A thread that sleeps in get_cq_event is woken by a completion that another one pushes.
void a_sleeper_is_woken(Objects &objects) {
    assert_int_equal(fcntl(objects.channel->fd, F_SETFL, 0), 0);
    for (int round = 0; round < 50; ++round) {
        assert_int_equal(ibv_req_notify_cq(objects.cq, 0), 0);
        int got = -1;
        std::thread sleeper{[&] {
            ibv_cq *cq = nullptr;
            void *context = nullptr;
            got = softrdma_ibv_get_cq_event(objects.channel, &cq, &context);
        }};
        const bool pushed = complete(objects, 1);
        sleeper.join();
        assert_true(pushed);
        assert_int_equal(got, 0);
        softrdma_ibv_ack_cq_events(objects.cq, 1);
        ibv_wc seen;
        assert_int_equal(ibv_poll_cq(objects.cq, 1, &seen), 1);
    }
}

// A thread of a program may poll while exit() destroys static objects. Polling uses none
// of them, as AddressSanitizer would see.
std::atomic<unsigned> polls{0};
struct DestroyedLast {
    ~DestroyedLast() {
        for (const unsigned before = polls.load(); before != 0 && polls.load() < before + 1000;) {
            std::this_thread::yield();
        }
    }
} destroyed_last;

void poll_while_the_process_ends() {
    static const auto *const objects = new Objects;
    std::thread{[] {
        ibv_wc seen;
        while (ibv_poll_cq(objects->cq, 1, &seen) == 0) {
            polls.fetch_add(1);
        }
    }}.detach();
    while (polls.load() == 0) {
        std::this_thread::yield();
    }
}

void without_an_engine_there_is_no_memory(void **) {
    const auto none = test::made_without_threads([] { return soft::Group::create(); });
    assert_false(none.has_value());
    assert_int_equal(none.error().number, ENOMEM);
    assert_true(soft::Group::create().has_value());
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {cmocka_unit_test(without_an_engine_there_is_no_memory),
                                fixture_test(comes_out_in_order),
                                fixture_test(grows_and_shrinks),
                                fixture_test(a_queue_pair_is_found),
                                fixture_test(an_overrun_is_told),
                                fixture_test(an_overrun_is_an_event),
                                fixture_test(a_slot_is_free_when_polled),
                                fixture_test(completions_outlive_their_queue_pair),
                                fixture_test(a_notification_is_asked_for_each_time),
                                fixture_test(solicited_only),
                                fixture_test(events_are_counted),
                                fixture_test(two_queues_of_one_channel),
                                fixture_test(a_sleeper_is_woken)};
    const int failed = cmocka_run_group_tests(tests, nullptr, nullptr);
    poll_while_the_process_ends();
    return failed;
}
