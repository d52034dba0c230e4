// SPDX-License-Identifier: BSD-3-Clause
// conformance: tests the states of a queue pair as a program of rdma_cm asks for them, and what the device
// says of itself: limits that can be had, and one partition key.
#include <arpa/inet.h>

#include <cerrno>

#include "suite.hpp"

namespace conformance {

namespace {

int modify(const End &end, ibv_qp_state state, int mask = IBV_QP_STATE) {
    ibv_qp_attr attributes{};
    attributes.qp_state = state;
    attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    attributes.dest_qp_num = 2;
    return softrdma_ibv_modify_qp(end.id->qp, &attributes, mask);
}

ibv_qp_state state_of(const End &end) {
    ibv_qp_attr attributes{};
    ibv_qp_init_attr init{};
    assert_int_equal(softrdma_ibv_query_qp(end.id->qp, &attributes, IBV_QP_STATE, &init), 0);
    return attributes.qp_state;
}

// Returns two ends whose request has arrived.
Ends &requested() {
    if (!subject.is_soft) {
        skip();
    }
    Ends &ends = make<Ends>();
    ends.request();
    ends.take_request();
    return ends;
}

// TCP acknowledges, but a program may look for the time that it has set.
void a_query_tells_the_acknowledge_timeout(void **) {
    Ends &ends = requested();
    const std::uint8_t time = 9;
    assert_int_equal(provider().cm.set_option(ends.server.id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT,
                                              const_cast<std::uint8_t *>(&time), sizeof(time)),
                     0);
    ends.accept();
    ends.expect_established();
    ibv_qp_attr attributes{};
    ibv_qp_init_attr init{};
    for (const End *const end : {&ends.server, &ends.client}) {
        assert_int_equal(softrdma_ibv_query_qp(end->id->qp, &attributes, IBV_QP_TIMEOUT, &init), 0);
        assert_int_equal(attributes.timeout, end == &ends.server ? time : 0);
    }
}

// The connection manager brings a queue pair to RTS. A program that asks for a
// state in between changes nothing.
void states_that_the_connection_manager_has_done(void **) {
    Ends &ends = requested();
    assert_int_equal(state_of(ends.server), IBV_QPS_INIT);
    for (const auto state : {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
        assert_int_equal(modify(ends.server, state, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS), 0);
    }
    assert_int_equal(state_of(ends.server), IBV_QPS_INIT);
    ends.accept();
    ends.expect_established();
    for (const End *const end : {&ends.client, &ends.server}) {
        assert_int_equal(state_of(*end), IBV_QPS_RTS);
        assert_int_equal(modify(*end, IBV_QPS_RTR), 0);
        assert_int_equal(modify(*end, IBV_QPS_RTS), 0);
        assert_int_equal(modify(*end, IBV_QPS_ERR, IBV_QP_ACCESS_FLAGS), 0);  // no state
        assert_int_equal(state_of(*end), IBV_QPS_RTS);
        assert_int_equal(modify(*end, IBV_QPS_RESET), EOPNOTSUPP);
        assert_int_equal(modify(*end, IBV_QPS_SQD), EOPNOTSUPP);
    }
    settle(ends.client, ends.server);
}

// The device has nobody to whom it could send the number of a queue pair.
void a_queue_pair_is_not_connected_by_its_states(void **) {
    Ends &ends = requested();
    assert_int_equal(modify(ends.server, IBV_QPS_RTR, IBV_QP_STATE | IBV_QP_DEST_QPN), EOPNOTSUPP);
    ends.accept();
    ends.expect_established();
    settle(ends.client, ends.server);
}

void error_ends_the_connection(void **) {
    Ends &ends = requested();
    ends.accept();
    ends.expect_established();
    assert_int_equal(post_receive(ends.client, 1, {sge(ends.client, 0, 8)}), 0);
    assert_int_equal(modify(ends.client, IBV_QPS_ERR), 0);
    expect_completion(ends.client.cq, 1, IBV_WC_WR_FLUSH_ERR);
    ends.expect_disconnected();
    assert_int_equal(modify(ends.client, IBV_QPS_ERR), 0);
    assert_int_equal(modify(ends.client, IBV_QPS_RTS), EINVAL);
    for (const End *const end : {&ends.client, &ends.server}) {
        assert_int_equal(state_of(*end), IBV_QPS_ERR);
        assert_int_equal(post(*end, {write_request(*end, *end, 0, 8, 2)}), 0);
        expect_completion(end->cq, 2, IBV_WC_WR_FLUSH_ERR);
    }
}

// Requests of a queue pair that was never connected come back too.
void error_before_it_is_accepted(void **) {
    Ends &ends = requested();
    assert_int_equal(post_receive(ends.server, 1, {sge(ends.server, 0, 8)}), 0);
    assert_int_equal(modify(ends.server, IBV_QPS_ERR), 0);
    expect_completion(ends.server.cq, 1, IBV_WC_WR_FLUSH_ERR);
    assert_int_equal(state_of(ends.server), IBV_QPS_ERR);
    assert_int_equal(post(ends.server, {send_request(ends.server, 0, 8, 2)}), 0);
    expect_completion(ends.server.cq, 2, IBV_WC_WR_FLUSH_ERR);
    assert_int_equal(post_receive(ends.server, 3, {sge(ends.server, 0, 8)}), 0);
    expect_completion(ends.server.cq, 3, IBV_WC_WR_FLUSH_ERR);
    rdma_conn_param parameters = connection_parameters(no_data, 1);
    assert_int_equal(provider().cm.accept(ends.server.id, &parameters), -1);
    assert_int_equal(errno, EINVAL);
}

// The answer to the client's request comes later, and the connection ends at once.
void error_while_it_connects(void **) {
    Ends &ends = requested();
    assert_int_equal(modify(ends.client, IBV_QPS_ERR), 0);
    ends.accept();
    ends.expect_established();
    ends.expect_disconnected();
    assert_int_equal(state_of(ends.client), IBV_QPS_ERR);
}

// A program can have every limit that the device reports, all at once.
void the_largest_there_can_be(void **) {
    Ends &ends = requested();
    const End &client = ends.client;
    ibv_device_attr_ex attributes{};
    assert_int_equal(provider().device.query_device_ex(client.id->verbs, nullptr, &attributes), 0);
    const ibv_device_attr &most = attributes.orig_attr;
    ibv_cq *const queue =
        provider().completion.create_cq(client.id->verbs, most.max_cqe, nullptr, nullptr, 0);
    assert_non_null(queue);
    ibv_srq_init_attr shared{};
    shared.attr = {.max_wr = static_cast<std::uint32_t>(most.max_srq_wr),
                   .max_sge = static_cast<std::uint32_t>(most.max_srq_sge),
                   .srq_limit = 0};
    ibv_srq *const receives = provider().domain.create_srq(client.pd, &shared);
    assert_non_null(receives);
    ibv_qp_init_attr wanted{};
    wanted.send_cq = wanted.recv_cq = queue;
    wanted.qp_type = IBV_QPT_RC;
    wanted.cap = {.max_send_wr = static_cast<std::uint32_t>(most.max_qp_wr),
                  .max_recv_wr = static_cast<std::uint32_t>(most.max_qp_wr),
                  .max_send_sge = static_cast<std::uint32_t>(most.max_sge),
                  .max_recv_sge = static_cast<std::uint32_t>(most.max_sge),
                  .max_inline_data = 0};
    ibv_qp *const qp = softrdma_ibv_create_qp(client.pd, &wanted);
    assert_non_null(qp);
    assert_int_equal(softrdma_ibv_destroy_qp(qp), 0);
    assert_int_equal(provider().domain.destroy_srq(receives), 0);
    assert_int_equal(provider().completion.destroy_cq(queue), 0);
    assert_int_equal(most.atomic_cap, IBV_ATOMIC_GLOB);
}

void one_partition_key(void **) {
    Ends &ends = requested();
    ibv_context *const context = ends.client.id->verbs;
    __be16 key = 0;
    assert_int_equal(softrdma_ibv_query_pkey(context, 1, 0, &key), 0);
    assert_int_equal(key, htons(0xffff));
    assert_int_equal(softrdma_ibv_query_pkey(context, 1, 1, &key), -1);
    assert_int_equal(softrdma_ibv_query_pkey(context, 2, 0, &key), -1);
    assert_int_equal(softrdma_ibv_get_pkey_index(context, 1, htons(0xffff)), 0);
    assert_int_equal(softrdma_ibv_get_pkey_index(context, 1, htons(0x7fff)), -1);
}

constexpr CMUnitTest tests[] = {
    cmocka_unit_test(states_that_the_connection_manager_has_done),
    cmocka_unit_test(a_query_tells_the_acknowledge_timeout),
    cmocka_unit_test(a_queue_pair_is_not_connected_by_its_states),
    cmocka_unit_test(error_ends_the_connection),
    cmocka_unit_test(error_before_it_is_accepted),
    cmocka_unit_test(error_while_it_connects),
    cmocka_unit_test(the_largest_there_can_be),
    cmocka_unit_test(one_partition_key),
};

}  // namespace

std::span<const CMUnitTest> state_tests() {
    return tests;
}

}  // namespace conformance
