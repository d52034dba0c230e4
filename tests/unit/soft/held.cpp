// SPDX-License-Identifier: BSD-3-Clause
// A thread holds a queue pair that it found by its number, for as long as it waits for
// that queue pair's group. Other threads make, connect and end queue pairs meanwhile. The
// thread that destroys the held one waits.
#include <atomic>
#include <optional>
#include <thread>

#include "soft/connected/queue_pair.hpp"

// This comes last, because it asserts.
#include "device.hpp"

namespace {

using soft::AnyQueuePair;
using test::Ends;

void a_queue_pair_that_is_held_holds_up_no_other(Ends &ends) {
    auto &[device, peer, other] = ends;
    rdma_cm_id *const slow = device.establish(peer, test::from_a_soft_device);
    std::optional hold{AnyQueuePair::find(slow->qp->qp_num)};
    assert_ptr_equal(hold->get(), AnyQueuePair::of(slow->qp));

    rdma_cm_id *const quick = device.establish(other, test::from_a_soft_device);
    assert_int_equal(softrdma_rdma_disconnect(quick), 0);
    device.close(quick);
}

void a_queue_pair_that_is_held_is_not_destroyed(Ends &ends) {
    auto &[device, peer, other] = ends;
    rdma_cm_id *const id = device.establish(peer, test::from_a_soft_device);
    const std::uint32_t number = id->qp->qp_num;
    std::optional hold{AnyQueuePair::find(number)};
    std::atomic<bool> destroyed{false};
    std::thread destroyer{[&] {
        softrdma_rdma_destroy_qp(id);
        destroyed = true;
    }};
    // The device forgets the number first. From then on the destroyer waits for the hold alone.
    while (AnyQueuePair::find(number).get() != nullptr) {
        std::this_thread::yield();
    }
    const bool waited = !destroyed;
    const std::uint32_t held = hold->get()->qp_base.qp_num;
    hold.reset();
    destroyer.join();
    assert_true(waited);
    assert_int_equal(held, number);
    assert_true(destroyed);
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {fixture_test(a_queue_pair_that_is_held_holds_up_no_other),
                                fixture_test(a_queue_pair_that_is_held_is_not_destroyed)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
