// SPDX-License-Identifier: BSD-3-Clause
// A thread waits for the group of a completion queue that is busy. Connections whose queue pairs complete
// elsewhere are set up and ended meanwhile.
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "soft/connected/queue_pair.hpp"

// Last, as it wants.
#include "device.hpp"

namespace {

using test::Ends;

// True when the thread sleeps in the kernel, as one that waits for a mutex does.
bool sleeps(pid_t thread) {
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/self/task/%d/stat", thread);
    FILE *const file = fopen(path, "r");
    assert_non_null(file);
    char state = 0;
    const int read = fscanf(file, "%*d (%*[^)]) %c", &state);
    (void)fclose(file);
    return read == 1 && state == 'S';
}

void a_busy_completion_queue_holds_up_no_other(void **state) {
    auto &[device, peer, other] = *static_cast<Ends *>(*state);
    rdma_cm_id *const slow = device.establish(peer, test::from_a_soft_device);
    auto &queue_pair = static_cast<soft::QueuePair &>(*soft::AnyQueuePair::of(slow->qp));
    const auto group = queue_pair.group();
    ibv_cq *const busy = device.cq;
    ibv_cq *const idle = softrdma_ibv_create_cq(device.mr->context, 16, nullptr, nullptr, 0);
    assert_non_null(idle);

    group->mutex().take();
    std::atomic<pid_t> thread{0};
    std::atomic<int> disconnected{1};
    std::thread waiter{[&] {
        thread = static_cast<pid_t>(syscall(SYS_gettid));
        disconnected = softrdma_rdma_disconnect(slow);
    }};
    while (thread == 0 || !sleeps(thread)) {
        std::this_thread::yield();
    }
    device.cq = idle;
    rdma_cm_id *const quick = device.establish(other, test::from_a_soft_device);
    assert_int_equal(softrdma_rdma_disconnect(quick), 0);
    assert_int_equal(disconnected, 1);
    group->mutex().leave();
    waiter.join();
    assert_int_equal(disconnected, 0);

    device.close(quick);
    device.cq = busy;
    assert_int_equal(softrdma_ibv_destroy_cq(idle), 0);
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {test_of_ends(a_busy_completion_queue_holds_up_no_other)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
