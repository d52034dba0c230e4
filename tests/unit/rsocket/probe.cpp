// SPDX-License-Identifier: BSD-3-Clause
// rsocket/probe: tests that an address that has spoken TCP is not asked again,
// and that a forked child can ask.
#include "rsocket/probe.hpp"

#include <arpa/inet.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include <rpma/rsocket.h>

#include "../../child.hpp"
#include "../../forks.h"

// check.hpp comes last, because it has macros with everyday names.
#include "../base/check.hpp"

namespace {

sockaddr_storage server(std::uint16_t port) {
    sockaddr_storage address{};
    auto &v4 = reinterpret_cast<sockaddr_in &>(address);
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    v4.sin_addr.s_addr = htonl(0xc0000201);  // 192.0.2.1
    return address;
}

void one_that_spoke_tcp_is_not_asked_again(void **) {
    assert_int_equal(rsockets::why_not_ask(server(1)), RDMA_REASON_NONE);
    rsockets::remember_tcp(server(1));
    assert_int_equal(rsockets::why_not_ask(server(1)), RDMA_REASON_REMEMBERED);
    assert_int_equal(rsockets::why_not_ask(server(2)), RDMA_REASON_NONE);
    rsockets::forget_tcp(server(1));
    assert_int_equal(rsockets::why_not_ask(server(1)), RDMA_REASON_NONE);
}

void a_client_that_was_waited_for_in_vain_has_less_time(void **) {
    using std::chrono::milliseconds;
    assert_true(rsockets::grace_of(server(0)) == milliseconds{10});
    rsockets::remember_tcp(server(0));
    assert_true(rsockets::grace_of(server(0)) == std::chrono::microseconds{200});
    assert_int_equal(rsockets::why_not_ask(server(1)), RDMA_REASON_NONE);
    rsockets::forget_tcp(server(0));
    assert_true(rsockets::grace_of(server(0)) == milliseconds{10});
}

// A thread of the parent is seldom anywhere but in the table of the addresses that spoke TCP.
void a_forked_child_can_ask(void **) {
    skip_where(CHILDREN_HANG_IN_MALLOC);
    constexpr int forks = 50;
    constexpr unsigned most_seconds = 10;
    std::atomic<bool> ends{false};
    std::thread busy{[&] {
        while (!ends) {
            rsockets::remember_tcp(server(1));
        }
    }};
    int good = 0;
    for (int i = 0; i < forks && good == i; ++i) {
        const pid_t child = test::fork_child();
        if (child == 0) {
            (void)alarm(most_seconds);
            rsockets::remember_tcp(server(2));
            _exit(rsockets::why_not_ask(server(2)) == RDMA_REASON_REMEMBERED ? 0 : 1);
        }
        int status = 0;
        good += static_cast<int>(waitpid(child, &status, 0) == child && status == 0);
    }
    ends = true;
    busy.join();
    assert_int_equal(good, forks);
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {cmocka_unit_test(one_that_spoke_tcp_is_not_asked_again),
                                cmocka_unit_test(a_client_that_was_waited_for_in_vain_has_less_time),
                                cmocka_unit_test(a_forked_child_can_ask)};
    return cmocka_run_group_tests_name("rsocket_probe", tests, nullptr, nullptr);
}
