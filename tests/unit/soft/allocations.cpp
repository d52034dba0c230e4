// SPDX-License-Identifier: BSD-3-Clause
// A call of the program finds no memory, at each of its allocations in turn. The call returns the error,
// throws nothing into a program in C, and leaves nothing behind that keeps an object from being destroyed.
#include <poll.h>
#include <pthread.h>
#include <signal.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <thread>
#include <utility>

#include "failing_new.hpp"

// This comes last, because it asserts.
#include "device.hpp"

namespace {

constexpr int patience_ms = 40'000;
constexpr int none = -1;
// The allocation of this thread with this number fails. The numbers begin at 0.
thread_local int failing = none;

// Lets the allocation of this number fail, and knows whether the call has reached it.
class Failure {
public:
    explicit Failure(int number) { failing = number; }
    ~Failure() { failing = none; }
    Failure(const Failure &) = delete;
    Failure &operator=(const Failure &) = delete;

    [[nodiscard]] static bool happened() { return failing == none; }
};

}  // namespace

bool test::allocation_fails(std::size_t) {
    return failing >= 0 && failing-- == 0;
}

namespace {

using test::Ends;

// Lets each allocation of `call` fail in turn. `call` returns whether it
// succeeded, and `undo` takes its effect back.
template <typename Call, typename Undo>
void each_allocation_fails(Call call, Undo undo) {
    constexpr int most = 100;
    for (int number = 0; number < most; ++number) {
        bool done = false;
        bool failed = false;
        {
            const Failure failure{number};
            done = call();
            failed = Failure::happened();
        }
        if (done) {
            undo();
        }
        if (!failed) {
            assert_true(done);
            assert_int_not_equal(number, 0);
            return;
        }
    }
    fail_msg("a call makes more than %d allocations", most);
}

constexpr auto nothing = [] {};

void tables(Ends &ends) {
    auto &device = ends.device;
    ibv_context *const context = device.cq->context;
    ibv_device **list = nullptr;
    each_allocation_fails([&] { return (list = softrdma_ibv_get_device_list(nullptr)) != nullptr; },
                          [&] { softrdma_ibv_free_device_list(list); });
    ibv_port_attr port;
    each_allocation_fails([&] { return softrdma_ibv_query_port(context, 1, &port) == 0; }, nothing);
    ibv_gid gid;
    each_allocation_fails([&] { return softrdma_ibv_query_gid(context, 1, 0, &gid) == 0; }, nothing);
    std::array<ibv_gid_entry, 64> table;
    each_allocation_fails(
        [&] { return softrdma_ibv_query_gid_table(context, table.data(), table.size(), 0) > 0; }, nothing);
    ibv_wc completion{};
    completion.wc_flags = IBV_WC_GRH;
    ibv_grh header{};
    ibv_ah_attr attributes;
    each_allocation_fails(
        [&] { return softrdma_ibv_init_ah_from_wc(context, 1, &completion, &header, &attributes) == 0; },
        nothing);
}

// There are more regions than the device has room to remember as free.
void regions(Ends &ends) {
    auto &device = ends.device;
    std::array<ibv_mr *, 64> all{};
    for (ibv_mr *&region : all) {
        region = softrdma_ibv_reg_mr(device.mr->pd, device.at(0), 8, IBV_ACCESS_LOCAL_WRITE);
        assert_non_null(region);
    }
    for (ibv_mr *const region : all) {
        const Failure failure{0};
        assert_int_equal(softrdma_ibv_dereg_mr(region), 0);
    }
    ibv_mr *region = nullptr;
    each_allocation_fails(
        [&] {
            region = softrdma_ibv_reg_mr(device.mr->pd, device.at(0), 8, IBV_ACCESS_LOCAL_WRITE);
            return region != nullptr;
        },
        [&] { assert_int_equal(softrdma_ibv_dereg_mr(region), 0); });
}

// The objects that a queue pair of either type uses can be destroyed after it, and
// after queue pairs that could not be made.
void queues(Ends &ends) {
    auto &device = ends.device;
    ibv_context *const context = device.cq->context;
    ibv_comp_channel *channel = nullptr;
    each_allocation_fails([&] { return (channel = softrdma_ibv_create_comp_channel(context)) != nullptr; },
                          [&] { assert_int_equal(softrdma_ibv_destroy_comp_channel(channel), 0); });
    channel = softrdma_ibv_create_comp_channel(context);
    ibv_cq *cq = nullptr;
    each_allocation_fails(
        [&] { return (cq = softrdma_ibv_create_cq(context, 4, nullptr, channel, 0)) != nullptr; },
        [&] { assert_int_equal(softrdma_ibv_destroy_cq(cq), 0); });
    ibv_srq_init_attr shared{};
    ibv_srq *srq = nullptr;
    each_allocation_fails([&] { return (srq = softrdma_ibv_create_srq(device.mr->pd, &shared)) != nullptr; },
                          [&] { assert_int_equal(softrdma_ibv_destroy_srq(srq), 0); });
    cq = softrdma_ibv_create_cq(context, 4, nullptr, channel, 0);
    srq = softrdma_ibv_create_srq(device.mr->pd, &shared);
    for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UD}) {
        ibv_qp_init_attr pair{};
        pair.send_cq = device.cq;
        pair.recv_cq = cq;
        pair.srq = type == IBV_QPT_RC ? srq : nullptr;
        pair.qp_type = type;
        ibv_qp *qp = nullptr;
        each_allocation_fails([&] { return (qp = softrdma_ibv_create_qp(device.mr->pd, &pair)) != nullptr; },
                              [&] {
                                  const Failure failure{0};
                                  assert_int_equal(softrdma_ibv_destroy_qp(qp), 0);
                              });
    }
    assert_int_equal(softrdma_ibv_destroy_srq(srq), 0);
    assert_int_equal(softrdma_ibv_destroy_cq(cq), 0);
    assert_int_equal(softrdma_ibv_destroy_comp_channel(channel), 0);
}

void asynchronous_events(Ends &ends) {
    auto &[device, peer, other] = ends;
    ibv_srq_init_attr shared{};
    device.srq = softrdma_ibv_create_srq(device.mr->pd, &shared);
    rdma_cm_id *const id = device.establish(peer, test::plain);
    peer.finish();
    (void)device.wait_for(RDMA_CM_EVENT_DISCONNECTED, id);
    ibv_async_event event{};
    each_allocation_fails([&] { return softrdma_ibv_get_async_event(device.cq->context, &event) == 0; },
                          [&] { softrdma_ibv_ack_async_event(&event); });
    assert_int_equal(event.event_type, IBV_EVENT_QP_LAST_WQE_REACHED);
    device.close(id);
    assert_int_equal(softrdma_ibv_destroy_srq(std::exchange(device.srq, nullptr)), 0);
}

// The thread has never waited before. The device serves the connection when no thread waits for its
// completions any more. A signal ends a wait for which there was memory.
void waiting(Ends &ends) {
    auto &[device, peer, other] = ends;
    struct sigaction ignore{};
    ignore.sa_handler = [](int) {};
    assert_int_equal(sigaction(SIGUSR1, &ignore, nullptr), 0);
    ibv_comp_channel *const channel = softrdma_ibv_create_comp_channel(device.cq->context);
    ibv_cq *const cq = softrdma_ibv_create_cq(device.cq->context, 4, nullptr, channel, 0);
    ibv_cq *const polled = std::exchange(device.cq, cq);
    rdma_cm_id *const id = device.establish(peer, test::plain);
    device.cq = polled;
    device.post_receive(id, 1, 0, 8);
    device.post_receive(id, 2, 0, 8);
    // The connection has received once, so it has borrowed a buffer.
    // Without memory for a buffer it would end.
    peer.send(test::fpdu({.opcode = soft::wire::Opcode::Send, .msn = 1}, test::Bytes(8)));
    ibv_wc first{};
    while (ibv_poll_cq(cq, 1, &first) == 0) {
    }
    constexpr int most = 8;
    int failures = 0;
    for (int number = 0; number < most; ++number) {
        std::atomic<bool> done{false};
        std::thread waiter{[&] {
            const Failure failure{number};
            ibv_cq *of = nullptr;
            void *context = nullptr;
            const bool got = softrdma_ibv_get_cq_event(channel, &of, &context) == 0;
            failures += !got && errno == ENOMEM ? 1 : 0;
            done.store(true);
        }};
        while (!done.load()) {
            (void)pthread_kill(waiter.native_handle(), SIGUSR1);
            std::this_thread::yield();
        }
        waiter.join();
    }
    assert_in_range(failures, 1, most - 1);
    assert_int_equal(ibv_req_notify_cq(cq, 0), 0);
    peer.send(test::fpdu({.opcode = soft::wire::Opcode::Send, .msn = 2}, test::Bytes(8)));
    pollfd readable{.fd = channel->fd, .events = POLLIN, .revents = 0};
    assert_int_equal(poll(&readable, 1, patience_ms), 1);
    ibv_cq *of = nullptr;
    void *context = nullptr;
    assert_int_equal(softrdma_ibv_get_cq_event(channel, &of, &context), 0);
    softrdma_ibv_ack_cq_events(of, 1);
    device.close(id);
    assert_int_equal(softrdma_ibv_destroy_cq(cq), 0);
    assert_int_equal(softrdma_ibv_destroy_comp_channel(channel), 0);
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {fixture_test(tables), fixture_test(regions), fixture_test(queues),
                                fixture_test(asynchronous_events), fixture_test(waiting)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
