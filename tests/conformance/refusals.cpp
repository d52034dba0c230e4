// SPDX-License-Identifier: BSD-3-Clause
// conformance: tests requests that are refused when they are made, and leave everything as it was.
#include <cerrno>
#include <limits>

#include "suite.hpp"

namespace conformance {

namespace {

void posts_that_make_no_sense(void **) {
    Ends &ends = connected();
    const Request write = write_request(ends.client, ends.server, 0, 8, 1);
    Request bad = write;
    bad.sges = {write.sges[0], write.sges[0]};
    assert_int_equal(post(ends.client, {bad}), EINVAL);  // more elements than the queue pair takes
    bad = inlined(write_request(ends.client, ends.server, 0, 513, 1));
    assert_int_equal(post(ends.client, {bad}), EINVAL);  // more inline bytes
    settle(ends.client, ends.server);
}

void posts_that_the_soft_device_refuses(void **) {
    if (!subject.is_soft) {
        skip();
    }
    Ends &ends = connected({.sge = 2});
    const End &client = ends.client;
    const auto read = read_request(client, ends.server, 0, 8);
    assert_int_equal(post(client, {inlined(read)}), EINVAL);
    auto bad = read;
    bad.sges.push_back(read.sges[0]);
    assert_int_equal(post(client, {bad}), EINVAL);  // a read has one sink on this wire
    bad = inlined(write_request(client, ends.server, 0, Sizes{}.max_inline + 1));
    assert_int_equal(post(client, {bad}), EINVAL);
    bad = write_request(client, ends.server, 0, 8);
    bad.sges[0].length = 1U << 31;
    bad.sges.push_back(bad.sges[0]);
    assert_int_equal(post(client, {bad}), EINVAL);  // longer than the largest message

    bad = atomic_write_request(client, ends.server, 4);
    assert_int_equal(post(client, {bad}), EINVAL);  // not aligned
    for (const std::uint32_t length : {0U, 4U, 7U, 9U, 16U}) {
        bad = atomic_write_request(client, ends.server, 0);
        bad.sges[0].length = length;
        assert_int_equal(post(client, {bad}), EINVAL);
    }
    for (const std::uint32_t level : {0U, 3U, 4U, 0x8000'0000U}) {
        assert_int_equal(post(client, {flush_request(ends.server, 0, 8, level)}), EINVAL);
    }
    ibv_send_wr negative{};
    negative.opcode = IBV_WR_SEND;
    negative.num_sge = -1;
    ibv_send_wr *refused = nullptr;
    assert_int_equal(ibv_post_send(client.id->qp, &negative, &refused), EINVAL);
    assert_ptr_equal(refused, &negative);
    expect_no_completion(client.cq);
    settle(client, ends.server);
}

void operations_that_the_device_does_not_have(void **) {
    if (!subject.is_soft) {
        skip();
    }
    Ends &ends = connected();
    for (const auto opcode : {IBV_WR_TSO, IBV_WR_DRIVER1, static_cast<ibv_wr_opcode>(12)}) {
        Request request = write_request(ends.client, ends.server, 0, 8);
        request.opcode = opcode;
        assert_int_equal(post(ends.client, {request}), EOPNOTSUPP);
    }
    const std::pair<ibv_wr_opcode, unsigned> optional[] = {
        {IBV_WR_RDMA_WRITE_WITH_IMM, verbs::native_immediate},
        {IBV_WR_SEND_WITH_IMM, verbs::native_immediate},
        {IBV_WR_ATOMIC_CMP_AND_SWP, SOFTRDMA_OPERATION_ATOMIC},
        {IBV_WR_ATOMIC_FETCH_AND_ADD, SOFTRDMA_OPERATION_ATOMIC},
    };
    for (const auto &[opcode, operation] : optional) {
        Request request = write_request(ends.client, ends.server, 0, 8);
        request.opcode = opcode;
        if (!ends.client.native(operation)) {
            assert_int_equal(post(ends.client, {request}), EOPNOTSUPP);
        }
    }
    settle(ends.client, ends.server);
}

void sends_before_the_connection_is_there(void **) {
    Ends &ends = make<Ends>();
    ends.request();
    ends.take_request();
    if (subject.is_soft) {
        assert_int_equal(provider().native.of_queue_pair(ends.client.id->qp), 0);
        const Request write{.opcode = IBV_WR_RDMA_WRITE};
        assert_int_equal(post(ends.client, {write}), EINVAL);
        assert_int_equal(post(ends.server, {write}), EINVAL);
    }
    // The server may post receives before the connection is there.
    assert_int_equal(post_receive(ends.server, 1, {sge(ends.server, 0, 8)}), 0);
    ends.accept();
    ends.expect_established();
    assert_int_equal(post(ends.client, {send_request(ends.client, 0, 8, 2)}), 0);
    expect_completion(ends.server.cq, 1);
}

void objects_that_are_too_large(void **) {
    Ends &ends = connected();
    errno = 0;
    assert_null(provider().completion.create_cq(ends.client.id->verbs, 0, nullptr, nullptr, 0));
    assert_int_equal(errno, EINVAL);
    assert_null(provider().completion.create_cq(ends.client.id->verbs, std::numeric_limits<int>::max(),
                                                nullptr, nullptr, 0));

    ibv_device_attr_ex attributes{};
    assert_int_equal(provider().device.query_device_ex(ends.client.id->verbs, nullptr, &attributes), 0);
    const auto &most = attributes.orig_attr;
    assert_true(most.max_qp > 0 && most.max_qp_wr > 0 && most.max_sge > 0 && most.max_cqe > 0 &&
                most.max_mr > 0);
    for (int which = 0; which < 5; ++which) {
        End &end = make<End>();
        end.resolve(ends.listener.port);
        end.destroy_queue_pair();
        ibv_qp_init_attr_ex wanted{};
        wanted.send_cq = wanted.recv_cq = end.cq;
        wanted.qp_type = which == 4 ? IBV_QPT_UD : IBV_QPT_RC;
        wanted.comp_mask = IBV_QP_INIT_ATTR_PD;
        wanted.pd = end.pd;
        const auto over = [which](int place, int limit) {
            return which == place ? static_cast<std::uint32_t>(limit) + 1 : 1U;
        };
        wanted.cap = {.max_send_wr = over(0, most.max_qp_wr),
                      .max_recv_wr = over(1, most.max_qp_wr),
                      .max_send_sge = over(2, most.max_sge),
                      .max_recv_sge = over(3, most.max_sge),
                      .max_inline_data = 0};
        assert_int_equal(provider().cm.create_qp_ex(end.id, &wanted), -1);
        assert_null(end.id->qp);
        end.destroy();
    }
}

void regions_with_impossible_access(void **) {
    Ends &ends = connected();
    std::byte *const place = ends.client.memory.data();
    assert_null(provider().domain.reg_mr(ends.client.pd, place, 64, IBV_ACCESS_REMOTE_WRITE));
    assert_int_equal(errno, EINVAL);
    if (subject.is_soft) {
        assert_null(provider().domain.reg_mr(ends.client.pd, place, 64, 1 << 17));
        assert_int_equal(errno, EINVAL);
        assert_null(provider().domain.reg_mr(ends.client.pd, place, SIZE_MAX, IBV_ACCESS_LOCAL_WRITE));
        assert_int_equal(errno, EINVAL);
        // The whole address space is one region only on demand.
        assert_null(provider().domain.reg_mr(ends.client.pd, nullptr, SIZE_MAX, IBV_ACCESS_LOCAL_WRITE));
        assert_int_equal(errno, EFAULT);
    }
}

void objects_in_use_are_not_destroyed(void **) {
    Ends &ends = connected();
    assert_int_equal(provider().domain.dealloc_pd(ends.client.pd), EBUSY);
    assert_int_equal(provider().completion.destroy_cq(ends.client.cq), EBUSY);
    assert_int_equal(provider().completion.destroy_comp_channel(ends.client.channel), EBUSY);
    settle(ends.client, ends.server);
}

constexpr CMUnitTest tests[] = {
    cmocka_unit_test(posts_that_make_no_sense),
    cmocka_unit_test(posts_that_the_soft_device_refuses),
    cmocka_unit_test(operations_that_the_device_does_not_have),
    cmocka_unit_test(sends_before_the_connection_is_there),
    cmocka_unit_test(objects_that_are_too_large),
    cmocka_unit_test(regions_with_impossible_access),
    cmocka_unit_test(objects_in_use_are_not_destroyed),
};

}  // namespace

std::span<const CMUnitTest> refusal_tests() {
    return tests;
}

}  // namespace conformance
