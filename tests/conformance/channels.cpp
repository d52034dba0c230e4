// SPDX-License-Identifier: BSD-3-Clause
// conformance: tests when a completion channel has an event and when it has none.
#include <poll.h>

#include <cerrno>

#include "suite.hpp"

namespace conformance {

namespace {

void write_once(const Ends &ends) {
    assert_int_equal(post(ends.client, {write_request(ends.client, ends.server, 0, 8, 1)}), 0);
}

void an_event_for_each_time_it_is_asked_for(void **) {
    Ends &ends = connected();
    const End &client = ends.client;
    write_once(ends);
    expect_completion(client.cq, 1);
    assert_false(has_event(client.channel->fd));  // nobody asked
    for (unsigned round = 0; round < 3; ++round) {
        arm(client.cq);
        assert_false(has_event(client.channel->fd));
        write_once(ends);
        write_once(ends);
        expect_cq_event(client, client.cq);
        expect_completion(client.cq, 1);
        expect_completion(client.cq, 1);
        assert_false(has_event(client.channel->fd));  // one, whatever follows
    }
}

void what_is_there_already_gives_no_event(void **) {
    if (!subject.is_soft) {
        skip();  // devices may give one
    }
    Ends &ends = connected();
    arm(ends.client.cq);
    write_once(ends);
    expect_cq_event(ends.client, ends.client.cq);  // the completion is there, and stays there
    arm(ends.client.cq);
    assert_false(has_event(ends.client.channel->fd));
    write_once(ends);
    expect_cq_event(ends.client, ends.client.cq);
    expect_completion(ends.client.cq, 1);
    expect_completion(ends.client.cq, 1);
}

void only_solicited_ones(void **) {
    Ends &ends = connected();
    const End &server = ends.server;
    for (std::uint64_t i = 0; i < 4; ++i) {
        assert_int_equal(post_receive(server, i, {sge(server, 0, 8)}), 0);
    }
    const Request plain = send_request(ends.client, 0, 8, 9);
    arm(server.cq, true);
    assert_int_equal(post(ends.client, {plain}), 0);
    expect_completion(server.cq, 0);
    assert_false(has_event(server.channel->fd));
    assert_int_equal(post(ends.client, {solicited(plain)}), 0);
    expect_cq_event(server, server.cq);
    expect_completion(server.cq, 1);
    // Asking for any completion replaces asking for solicited ones.
    arm(server.cq, true);
    arm(server.cq, false);
    assert_int_equal(post(ends.client, {plain}), 0);
    expect_cq_event(server, server.cq);
    expect_completion(server.cq, 2);
    // An error is solicited by itself.
    arm(server.cq, true);
    assert_int_equal(provider().cm.disconnect(ends.client.id), 0);
    expect_event(server.events, RDMA_CM_EVENT_DISCONNECTED);
    expect_cq_event(server, server.cq);
    expect_completion(server.cq, 3, IBV_WC_WR_FLUSH_ERR);
}

void two_queues_on_one_channel(void **) {
    Ends &ends = connected({.separate_cqs = true});
    const End &server = ends.server;
    arm(server.cq);
    arm(server.receive_cq);
    assert_int_equal(post_receive(server, 1, {sge(server, 0, 8)}), 0);
    assert_int_equal(post(ends.client, {send_request(ends.client, 0, 8, 2)}), 0);
    expect_cq_event(server, server.receive_cq);
    assert_false(has_event(server.channel->fd));
    assert_int_equal(post(server, {write_request(server, ends.client, 64, 8, 3)}), 0);
    expect_cq_event(server, server.cq);
    expect_completion(server.receive_cq, 1);
    expect_completion(server.cq, 3);
    // Both queues have an event at once.
    arm(server.cq);
    arm(server.receive_cq);
    assert_int_equal(post_receive(server, 1, {sge(server, 0, 8)}), 0);
    assert_int_equal(post(server, {write_request(server, ends.client, 64, 8, 3)}), 0);
    assert_int_equal(post(ends.client, {send_request(ends.client, 0, 8, 2)}), 0);
    ibv_cq *const one = take_cq_event(server);
    ibv_cq *const other = take_cq_event(server);
    assert_ptr_not_equal(one, other);
    provider().completion.ack_cq_events(one, 1);
    provider().completion.ack_cq_events(other, 1);
}

void a_channel_that_does_not_block(void **) {
    Ends &ends = connected();
    const End &client = ends.client;
    make_non_blocking(client.channel->fd);
    arm(client.cq);
    ibv_cq *cq = nullptr;
    void *context = nullptr;
    errno = 0;
    assert_int_equal(provider().completion.get_cq_event(client.channel, &cq, &context), -1);
    assert_int_equal(errno, EAGAIN);
    assert_int_equal(post_receive(client, 5, {sge(client, 0, 8)}), 0);
    assert_int_equal(post(ends.server, {send_request(ends.server, 0, 8, 1)}), 0);
    pollfd ready{.fd = client.channel->fd, .events = POLLIN, .revents = 0};
    assert_int_equal(poll(&ready, 1, patience_ms), 1);
    expect_cq_event(client, client.cq);
    assert_int_equal(provider().completion.get_cq_event(client.channel, &cq, &context), -1);
    assert_int_equal(errno, EAGAIN);
    expect_completion(client.cq, 5);
}

constexpr CMUnitTest tests[] = {
    cmocka_unit_test(an_event_for_each_time_it_is_asked_for),
    cmocka_unit_test(what_is_there_already_gives_no_event),
    cmocka_unit_test(only_solicited_ones),
    cmocka_unit_test(two_queues_on_one_channel),
    cmocka_unit_test(a_channel_that_does_not_block),
};

}  // namespace

std::span<const CMUnitTest> channel_tests() {
    return tests;
}

}  // namespace conformance
