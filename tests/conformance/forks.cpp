// SPDX-License-Identifier: BSD-3-Clause
// conformance: tests that a child inherits the objects of its parent. Nothing is sent and the parent notices
// nothing, whatever the child does with the objects short of using them.
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "raw_socket.hpp"
#include "suite.hpp"

namespace conformance {

namespace {

// Ends the child, with the library's own work at the end of a process. LeakSanitizer would take what the
// parent's threads hold for leaks of the child, which does not have these threads.
[[noreturn]] void leave() {
#ifdef __SANITIZE_ADDRESS__
    _exit(0);
#else
    std::exit(0);
#endif
}

// Runs the body in a child until the child's end, which must be good.
template <typename Body>
void in_child(Body body) {
    std::fflush(nullptr);  // what is buffered would be written twice
    const pid_t pid = watched_fork();
    assert_int_not_equal(pid, -1);
    if (pid == 0) {
        body();
        _exit(0);
    }
    assert_int_equal(status_of(pid), 0);
}

// Expects that the connection works in both directions, and that it ends.
void expect_undisturbed(Ends &ends) {
    assert_false(has_event(ends.client.events->fd));
    assert_false(has_event(ends.server.events->fd));
    for (unsigned round = 0; round < 20; ++round) {
        fill(ends.client, 0, 4096, round);
        assert_int_equal(post(ends.client, {unsignaled(write_request(ends.client, ends.server, 0, 4096))}),
                         0);
        settle(ends.client, ends.server);
        assert_true(holds(ends.server, 0, 4096, round));
        settle(ends.server, ends.client);
    }
    ends.disconnect();
}

void a_child_exits(void **) {
    Ends &ends = connected();
    settle(ends.client, ends.server);
    in_child([] { leave(); });
    in_child([] {});
    expect_undisturbed(ends);
}

void a_child_destroys_what_it_inherited(void **) {
    Ends &ends = connected();
    settle(ends.client, ends.server);
    in_child([&ends] {
        ends.client.destroy();
        ends.server.destroy();
        ends.listener.destroy();
    });
    expect_undisturbed(ends);
    // The listener is undisturbed too.
    ends.client.destroy();
    ends.server.destroy();
    ends.connect();
}

void a_child_ends_while_requests_are_on_their_way(void **) {
    Ends &ends = connected({.memory_bytes = 8 << 20});
    fill(ends.client, 0, 8 << 20, 1);
    assert_int_equal(post(ends.client, {write_request(ends.client, ends.server, 0, 8 << 20, 1),
                                        settling_request(ends.client, ends.server, 2)}),
                     0);
    in_child([] {});
    expect_completion(ends.client.cq, 1);
    expect_completion(ends.client.cq, 2);
    assert_true(holds(ends.server, 0, 8 << 20, 1));
}

// An event that waits for the parent is still there, and wakes it, after the child has destroyed its copy.
void events_stay_with_the_parent(void **) {
    Ends &ends = connected();
    assert_int_equal(ibv_req_notify_cq(ends.client.cq, 0), 0);
    assert_int_equal(post(ends.client, {write_request(ends.client, ends.server, 0, 8, 1)}), 0);
    pollfd ready{.fd = ends.client.channel->fd, .events = POLLIN, .revents = 0};
    assert_int_equal(poll(&ready, 1, patience_ms), 1);
    in_child([&ends] { ends.client.destroy(); });
    assert_true(has_event(ends.client.channel->fd));
    ibv_cq *cq = nullptr;
    void *context = nullptr;
    assert_int_equal(provider().completion.get_cq_event(ends.client.channel, &cq, &context), 0);
    provider().completion.ack_cq_events(cq, 1);
    expect_completion(ends.client.cq, 1);

    assert_int_equal(provider().cm.disconnect(ends.server.id), 0);
    ready.fd = ends.client.events->fd;
    assert_int_equal(poll(&ready, 1, patience_ms), 1);
    in_child([&ends] { ends.client.destroy(); });
    assert_true(has_event(ends.client.events->fd));
    ends.expect_disconnected();
}

// The shared receive queue, the connections that wait at it, and an event of it that nobody has fetched yet
// stay with the parent.
void shared_receives_stay_with_the_parent(void **) {
    if (!subject.is_soft) {
        skip();
    }
    Ends &ends = connected({.shared_receive_wr = 16});
    ibv_srq_attr limit{.max_wr = 0, .max_sge = 0, .srq_limit = 1};
    assert_int_equal(softrdma_ibv_modify_srq(ends.server.srq, &limit, IBV_SRQ_LIMIT), 0);
    assert_int_equal(post_shared_receive(ends.server, 1, {sge(ends.server, 8192, 8)}), 0);
    assert_int_equal(
        post(ends.client, {send_request(ends.client, 0, 8, 1), send_request(ends.client, 0, 8, 2)}), 0);
    expect_completion(ends.client.cq, 1);
    expect_completion(ends.client.cq, 2);
    settle(ends.client, ends.server);  // the second is kept by now
    in_child([&ends] {
        ibv_async_event event{};
        assert_int_equal(post_shared_receive(ends.server, 3, {sge(ends.server, 8192, 8)}), EINVAL);
        assert_int_equal(softrdma_ibv_get_async_event(ends.server.id->verbs, &event), -1);
        assert_int_equal(errno, EINVAL);
        ends.client.destroy();
        ends.server.destroy();
    });
    expect_completion(ends.server.cq, 1);
    assert_int_equal(post_shared_receive(ends.server, 2, {sge(ends.server, 8192, 8)}), 0);
    expect_completion(ends.server.cq, 2);
    ibv_async_event event{};
    assert_int_equal(softrdma_ibv_get_async_event(ends.server.id->verbs, &event), 0);
    assert_int_equal(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
    softrdma_ibv_ack_async_event(&event);
    expect_undisturbed(ends);
}

// A connection that is being set up belongs to the parent as well, on both sides.
void set_up_stays_with_the_parent(void **) {
    Ends &ends = make<Ends>();
    RawSocket &stranger = make<RawSocket>();
    if (subject.is_soft) {
        stranger.connect(ends.listener.port);
        stranger.send("MPA ID");
    }
    ends.request();
    in_child([&ends] {
        ends.client.destroy();
        ends.listener.destroy();
    });
    ends.take_request();
    in_child([&ends] { ends.server.destroy(); });  // which would reject it, were it the child's
    ends.accept();
    ends.expect_established();
    expect_undisturbed(ends);
    if (subject.is_soft) {
        stranger.send(std::string(100, 'x'));
        stranger.expect_end();  // still served
    }
}

// The child has the devices, whatever another thread of the parent does when the parent forks.
void a_child_opens_a_device_that_another_thread_opens(void **) {
    if (!subject.is_soft) {
        skip();
    }
    Ends &ends = connected();
    ibv_device *const device = ends.client.id->verbs->device;
    std::atomic<bool> &over = make<std::atomic<bool>>(false);
    Thread &opener = make<Thread>([&over, device]() -> std::string {
        while (!over) {
            ibv_context *const context = softrdma_ibv_open_device(device);
            if (context == nullptr || softrdma_ibv_close_device(context) != 0) {
                return "no context";
            }
        }
        return "";
    });
    for (int round = 0; round < 40; ++round) {
        const pid_t pid = watched_fork();
        if (pid == 0) {
            _exit(softrdma_ibv_open_device(device) == nullptr ? 1 : 0);
        }
        const int status = status_of(pid);
        if (status != 0) {
            over = true;  // before an assertion leaves the thread behind
            assert_int_equal(status, 0);
        }
    }
    over = true;
    opener.expect_well();
}

void a_child_uses_the_device_anew(void **) {
#ifdef __SANITIZE_THREAD__
    skip();  // ThreadSanitizer allows no threads in the child of a process with threads
#endif
    Ends &ends = connected();
    in_child([&ends] {
        if (!subject.is_soft) {
            return;
        }
        {
            Ends own;
            own.connect();
            // The inherited objects go while the child's own are in use.
            ends.client.destroy();
            ends.server.destroy();
            ends.listener.destroy();
            settle(own.client, own.server);
            own.disconnect();
        }
        leave();
    });
    expect_undisturbed(ends);
}

constexpr CMUnitTest tests[] = {
    cmocka_unit_test(a_child_exits),
    cmocka_unit_test(a_child_destroys_what_it_inherited),
    cmocka_unit_test(a_child_ends_while_requests_are_on_their_way),
    cmocka_unit_test(events_stay_with_the_parent),
    cmocka_unit_test(shared_receives_stay_with_the_parent),
    cmocka_unit_test(set_up_stays_with_the_parent),
    cmocka_unit_test(a_child_opens_a_device_that_another_thread_opens),
    cmocka_unit_test(a_child_uses_the_device_anew),
};

}  // namespace

std::span<const CMUnitTest> fork_tests() {
    return tests;
}

}  // namespace conformance
