// SPDX-License-Identifier: BSD-3-Clause
// In a burst of posts many requests leave with one call of the kernel. The first ones, and one alone, leave
// during their post. The last ones leave without another call of the program, whoever owns their group.
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <thread>

#include "base/fd.hpp"
#include "soft/progress/engines.hpp"
#include "soft/queues/completion_queue.hpp"

// This comes last, because it asserts.
#include "device.hpp"

namespace {

thread_local unsigned calls = 0;  // of this thread, to send on a socket

}  // namespace

// The device finds these before those of the C library.
extern "C" {
[[gnu::visibility("default")]] ssize_t send(int socket, const void *bytes, size_t size, int flags) {
    ++calls;
    return syscall(SYS_sendto, socket, bytes, size, flags, nullptr, 0);
}
[[gnu::visibility("default")]] ssize_t sendmsg(int socket, const msghdr *message, int flags) {
    ++calls;
    return syscall(SYS_sendmsg, socket, message, flags);
}
}

namespace {

using test::Device;
using test::Ends;

constexpr unsigned burst = 64;          // all places of the queue
constexpr unsigned first_at_once = 16;  // as transport/sender_link.cpp has it
constexpr std::size_t small = 8;
constexpr std::size_t large = 2000;

// Returns a connection on which the device may send.
rdma_cm_id *establish(Device &device, test::Peer &peer) {
    rdma_cm_id *const id = device.establish(peer, test::from_a_soft_device);
    device.work_until_read(peer);
    return id;
}

// Returns how many calls the posts of writes make, one after the other.
unsigned calls_of_posts(Device &device, rdma_cm_id *id, unsigned count, std::size_t size = small) {
    const unsigned before = calls;
    for (unsigned i = 0; i < count; ++i) {
        device.post(id, IBV_WR_RDMA_WRITE, i, i * small, size, i * small, 7);
    }
    return calls - before;
}

// The device is not asked for anything meanwhile.
void expect_writes(test::Peer &peer, Device &device, unsigned count) {
    for (unsigned i = 0; i < count; ++i) {
        const test::Fpdu fpdu = peer.receive_fpdu();
        assert_int_equal(fpdu.segment.offset, i * small);
        test::assert_same_bytes(fpdu.payload, {device.at(i * small), device.at(i * small) + small});
    }
}

void expect_completions(Device &device, unsigned count) {
    for (unsigned i = 0; i < count; ++i) {
        device.expect_completion(i);
    }
    assert_false(device.has_completion());
}

void a_burst_leaves_with_few_calls(Ends &ends) {
    auto &[device, peer, other] = ends;
    rdma_cm_id *const id = establish(device, peer);
    device.fill(1);
    assert_int_equal(calls_of_posts(device, id, burst), first_at_once);
    expect_writes(peer, device, burst);
    expect_completions(device, burst);
    // The program posts bursts, so the next one is one from its second request on.
    for (unsigned round = 0; round < 20; ++round) {
        device.fill(round);
        assert_int_equal(calls_of_posts(device, id, burst), 1);
        expect_writes(peer, device, burst);
        expect_completions(device, burst);
    }
}

void one_request_alone_leaves_at_once(Ends &ends) {
    auto &[device, peer, other] = ends;
    rdma_cm_id *const id = establish(device, peer);
    device.fill(1);
    (void)calls_of_posts(device, id, burst);
    expect_writes(peer, device, burst);
    expect_completions(device, burst);
    for (unsigned round = 0; round < 20; ++round) {
        assert_int_equal(calls_of_posts(device, id, 1), 1);
        expect_writes(peer, device, 1);
        expect_completions(device, 1);
    }
    // They are fewer than those of a burst.
    for (unsigned round = 0; round < 20; ++round) {
        assert_int_equal(calls_of_posts(device, id, first_at_once), first_at_once);
        expect_writes(peer, device, first_at_once);
        expect_completions(device, first_at_once);
    }
}

// Each completion is there when its request was sent, so the program never looks in vain.
void requests_one_by_one_are_no_burst(Ends &ends) {
    auto &[device, peer, other] = ends;
    rdma_cm_id *const id = establish(device, peer);
    device.fill(1);
    for (unsigned round = 0; round < 4 * first_at_once; ++round) {
        assert_int_equal(calls_of_posts(device, id, 1), 1);
        ibv_wc completion;
        assert_int_equal(ibv_poll_cq(device.cq, 1, &completion), 1);
        expect_writes(peer, device, 1);
    }
}

// Its bytes take longer than the call.
void a_long_request_takes_along_what_is_held(Ends &ends) {
    auto &[device, peer, other] = ends;
    rdma_cm_id *const id = establish(device, peer);
    device.fill(1);
    assert_int_equal(calls_of_posts(device, id, burst - 1), first_at_once);
    assert_int_equal(calls_of_posts(device, id, 1, large), 1);
    expect_writes(peer, device, burst - 1);
    assert_int_equal(peer.receive_fpdu().payload.size(), large);
    for (unsigned i = 0; i < burst - 1; ++i) {
        device.expect_completion(i);
    }
    device.expect_completion(0);
}

std::shared_ptr<soft::Group> group_of(const Device &device) {
    return soft::CompletionQueue::of(device.cq)->group();
}

// Posts a burst, of which all leave without another call.
void expect_burst_to_leave(Ends &ends, rdma_cm_id *id, unsigned seed) {
    auto &[device, peer, other] = ends;
    device.fill(seed);
    (void)calls_of_posts(device, id, burst - 1);
    expect_writes(peer, device, burst - 1);
}

// The thread that has the lock may have had its turn already, so the poll must not be the last hope.
void a_poll_that_finds_the_lock_taken_is_no_look(Ends &ends) {
    auto &[device, peer, other] = ends;
    rdma_cm_id *const id = establish(device, peer);
    const auto group = group_of(device);
    device.fill(1);
    {
        const base::Lock lock{group->mutex()};
        assert_int_equal(calls_of_posts(device, id, burst - 1), first_at_once);
        std::array<ibv_wc, first_at_once> completions;
        assert_int_equal(ibv_poll_cq(device.cq, first_at_once, completions.data()), first_at_once);
        assert_int_equal(ibv_poll_cq(device.cq, 1, completions.data()), 0);
    }
    expect_writes(peer, device, burst - 1);
}

// The engine does not wait for a poller that has stopped to poll.
void a_burst_of_a_poller_leaves(Ends &ends) {
    rdma_cm_id *const id = establish(ends.device, ends.peer);
    for (unsigned round = 0; round < 10; ++round) {
        for (unsigned i = 0; i < burst; ++i) {
            assert_false(ends.device.has_completion());
        }
        expect_burst_to_leave(ends, id, round);
        expect_completions(ends.device, burst - 1);
    }
}

// A thread outside that sleeps, or has left for good, makes no call of the device.
void a_burst_beside_threads_outside_leaves(Ends &ends) {
    rdma_cm_id *const id = establish(ends.device, ends.peer);
    const auto group = group_of(ends.device);
    group->begin_outside();
    expect_burst_to_leave(ends, id, 1);
    expect_completions(ends.device, burst - 1);
    group->hand_over();
    expect_burst_to_leave(ends, id, 2);
    group->end_outside();
    expect_completions(ends.device, burst - 1);
    group->hand_over();
    expect_burst_to_leave(ends, id, 3);
    expect_completions(ends.device, burst - 1);
}

void a_burst_beside_a_thread_that_sleeps_leaves(Ends &ends) {
    rdma_cm_id *const id = establish(ends.device, ends.peer);
    const std::array groups{group_of(ends.device)};
    const base::Fd wakes{eventfd(0, EFD_CLOEXEC)};
    std::atomic<bool> ready{false};
    std::jthread sleeper{[&] { (void)soft::Group::wait(groups, wakes.get(), [&] { return ready.load(); }); }};
    for (unsigned round = 0; round < 10; ++round) {
        expect_burst_to_leave(ends, id, round);
        expect_completions(ends.device, burst - 1);
    }
    ready = true;
    assert_int_equal(eventfd_write(wakes.get(), 1), 0);
}

// A program may post in what it runs at its end, after the engine has gone. This is the last test.
void nothing_is_held_when_the_engine_has_ended(Ends &ends) {
    rdma_cm_id *const id = establish(ends.device, ends.peer);
    expect_burst_to_leave(ends, id, 1);
    expect_completions(ends.device, burst - 1);
    soft::Engines::at_exit();
    for (unsigned round = 0; round < 2; ++round) {
        expect_burst_to_leave(ends, id, round);
        expect_completions(ends.device, burst - 1);
    }
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {fixture_test(a_burst_leaves_with_few_calls),
                                fixture_test(one_request_alone_leaves_at_once),
                                fixture_test(requests_one_by_one_are_no_burst),
                                fixture_test(a_long_request_takes_along_what_is_held),
                                fixture_test(a_poll_that_finds_the_lock_taken_is_no_look),
                                fixture_test(a_burst_of_a_poller_leaves),
                                fixture_test(a_burst_beside_threads_outside_leaves),
                                fixture_test(a_burst_beside_a_thread_that_sleeps_leaves),
                                fixture_test(nothing_is_held_when_the_engine_has_ended)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
