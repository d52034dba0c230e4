// SPDX-License-Identifier: BSD-3-Clause
// conformance: connection set-up and end.
#include <fcntl.h>
#include <poll.h>

#include <array>
#include <cerrno>

#include "suite.hpp"

namespace conformance {

namespace {

void private_data_goes_both_ways(void **) {
    Ends ends;
    ends.connect("from the client", "from the server");
    // InfiniBand and RoCE pad it with zeros.
    assert_int_equal(ends.client_data_seen.compare(0, 15, "from the client"), 0);
    assert_int_equal(ends.server_data_seen.compare(0, 15, "from the server"), 0);
    if (subject.is_soft) {
        assert_int_equal(ends.client_data_seen.size(), 15);
        assert_int_equal(ends.server_data_seen.size(), 15);
    }
}

void a_disconnect_is_seen_by_both(void **) {
    Ends ends;
    ends.connect();
    assert_int_equal(post_receive(ends.client, 7, {sge(ends.client, 0, 8)}), 0);
    assert_int_equal(subject.provider->disconnect(ends.client.id), 0);
    expect_event(ends.client.events, RDMA_CM_EVENT_DISCONNECTED);
    expect_event(ends.server.events, RDMA_CM_EVENT_DISCONNECTED);
    expect_completion(ends.client.cq, 7, IBV_WC_WR_FLUSH_ERR);
    assert_int_equal(subject.provider->disconnect(ends.server.id), 0);
}

void a_rejection_is_seen(void **) {
    Ends ends;
    ends.request("please");
    ends.take_request();
    assert_int_equal(subject.provider->reject(ends.server.id, "no", 2), 0);
    int status = 0;
    const auto data = expect_event(ends.client.events, RDMA_CM_EVENT_REJECTED, nullptr, &status);
    assert_int_not_equal(status, 0);
    assert_int_equal(data.compare(0, 2, "no"), 0);
}

void an_empty_channel_that_does_not_block_says_so(void **) {
    Ends ends;
    ends.connect();
    assert_int_equal(fcntl(ends.client.events->fd, F_SETFL, fcntl(ends.client.events->fd, F_GETFL) | O_NONBLOCK), 0);
    rdma_cm_event *event = nullptr;
    assert_int_equal(subject.provider->get_cm_event(ends.client.events, &event), -1);
    assert_int_equal(errno, EAGAIN);
    pollfd fd{.fd = ends.client.events->fd, .events = POLLIN, .revents = 0};
    assert_int_equal(poll(&fd, 1, 0), 0);
    assert_int_equal(subject.provider->disconnect(ends.server.id), 0);
    assert_int_equal(poll(&fd, 1, 20'000), 1);
    expect_event(ends.client.events, RDMA_CM_EVENT_DISCONNECTED);
    assert_int_equal(poll(&fd, 1, 0), 0);
}

constexpr CMUnitTest tests[] = {
    cmocka_unit_test(private_data_goes_both_ways),
    cmocka_unit_test(a_disconnect_is_seen_by_both),
    cmocka_unit_test(a_rejection_is_seen),
    cmocka_unit_test(an_empty_channel_that_does_not_block_says_so),
};

}  // namespace

std::span<const CMUnitTest> connection_tests() { return tests; }

}  // namespace conformance
