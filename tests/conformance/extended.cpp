// SPDX-License-Identifier: BSD-3-Clause
// conformance: tests the calls that programs reach through a context or an object: requests
// prepared one by one (ibv_wr_start and so on), completions read one by one (ibv_start_poll and so
// on), and the calls of verbs_context.
#include <arpa/inet.h>

#include <array>
#include <cerrno>

#include "suite.hpp"

namespace conformance {

namespace {

constexpr std::uint64_t rdma_and_send =
    IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_SEND;

ibv_qp_ex *extended(const End &end) {
    return subject.is_soft ? softrdma_ibv_qp_to_qp_ex(end.id->qp) : ibv_qp_to_qp_ex(end.id->qp);
}

// Returns two connected ends whose queue pairs have these operations. The kernel's devices
// in software have none of them.
Ends &connected_with(std::uint64_t operations, Sizes sizes = {}) {
    if (!subject.is_soft) {
        skip();
    }
    sizes.send_operations = operations;
    Ends &ends = connected(sizes);
    assert_non_null(extended(ends.client));
    return ends;
}

struct Prepare {
    const Ends &ends;
    ibv_qp_ex *qp = extended(ends.client);

    void next(std::uint64_t wr_id, unsigned flags = IBV_SEND_SIGNALED) const {
        qp->wr_id = wr_id;
        qp->wr_flags = flags;
    }
    void local(std::size_t offset, std::size_t length) const {
        ibv_wr_set_sge(qp, ends.client.mr->lkey, ends.client.address(offset),
                       static_cast<std::uint32_t>(length));
    }
    void write(std::uint64_t wr_id, std::size_t offset, std::size_t length) const {
        next(wr_id);
        ibv_wr_rdma_write(qp, ends.server.mr->rkey, ends.server.address(offset));
        local(offset, length);
    }
};

void only_of_a_queue_pair_that_was_asked_for_it(void **) {
    Ends &ends = connected();
    if (!subject.is_soft) {
        skip();
    }
    assert_null(extended(ends.client));
}

// No request is posted before all requests are.
void every_operation_prepared_and_posted_at_once(void **) {
    Ends &ends = connected_with(rdma_and_send | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                                    IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_ATOMIC_WRITE,
                                {.sge = 2});
    for (std::uint64_t i = 0; i < 3; ++i) {
        assert_int_equal(post_receive(ends.server, i, {sge(ends.server, 500'000 + 1000 * i, 1000)}), 0);
    }
    fill(ends.client, 0, 100'000, 1);
    fill(ends.server, 200'000, 100, 2);
    const Prepare prepare{ends};
    ibv_qp_ex *const qp = prepare.qp;
    ibv_wr_start(qp);
    prepare.write(1, 0, 70'000);
    prepare.next(2, 0);
    ibv_wr_send(qp);
    const std::array<ibv_sge, 2> pieces{sge(ends.client, 10, 20), sge(ends.client, 40, 30)};
    ibv_wr_set_sge_list(qp, pieces.size(), pieces.data());
    prepare.next(3);
    ibv_wr_send_imm(qp, htonl(77));
    prepare.local(100, 60);
    prepare.next(4);
    ibv_wr_rdma_write_imm(qp, ends.server.mr->rkey, ends.server.address(80'000), htonl(78));
    prepare.local(80'000, 8);
    prepare.next(5);
    ibv_wr_rdma_read(qp, ends.server.mr->rkey, ends.server.address(200'000));
    prepare.local(200'000, 100);
    prepare.next(6, IBV_SEND_SIGNALED | IBV_SEND_FENCE);
    const std::uint64_t value = 0x1122334455667788;
    ibv_wr_atomic_write(qp, ends.server.mr->rkey, ends.server.address(90'000), &value);
    expect_no_completion(ends.client.cq);
    assert_int_equal(ends.server.memory[69'999], 0);
    assert_int_equal(ibv_wr_complete(qp), 0);

    for (const std::uint64_t wr_id : {1U, 3U, 4U, 5U, 6U}) {
        expect_completion(ends.client.cq, wr_id);
    }
    assert_true(holds(ends.client, 200'000, 100, 2));
    ibv_wc received = next_completion(ends.server.cq);
    assert_int_equal(received.byte_len, 50);
    assert_memory_equal(ends.server.memory.data() + 500'000, ends.client.memory.data() + 10, 20);
    assert_memory_equal(ends.server.memory.data() + 500'020, ends.client.memory.data() + 40, 30);
    received = next_completion(ends.server.cq);
    assert_int_equal(received.byte_len, 60);
    assert_int_equal(received.imm_data, htonl(77));
    received = next_completion(ends.server.cq);
    assert_int_equal(received.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    assert_int_equal(received.imm_data, htonl(78));
    settle(ends.client, ends.server);
    assert_true(holds(ends.server, 0, 70'000, 1));
    assert_memory_equal(ends.server.memory.data() + 90'000, &value, sizeof(value));
}

void inline_data_is_copied_when_it_is_set(void **) {
    Ends &ends = connected_with(rdma_and_send);
    const Prepare prepare{ends};
    std::array<char, 32> text{"copied, and then written over"};
    assert_int_equal(post_receive(ends.server, 1, {sge(ends.server, 4096, 64)}), 0);
    ibv_wr_start(prepare.qp);
    prepare.next(1);
    ibv_wr_rdma_write(prepare.qp, ends.server.mr->rkey, ends.server.address(64));
    ibv_wr_set_inline_data(prepare.qp, text.data(), text.size());
    prepare.next(2);
    ibv_wr_send(prepare.qp);
    const std::array<ibv_data_buf, 2> buffers{
        {{.addr = text.data(), .length = 6}, {.addr = text.data() + 12, .length = 4}}};
    ibv_wr_set_inline_data_list(prepare.qp, buffers.size(), buffers.data());
    prepare.next(3);
    ibv_wr_rdma_write(prepare.qp, 0, 0);
    ibv_wr_set_inline_data(prepare.qp, nullptr, 0);
    text.fill('x');
    assert_int_equal(ibv_wr_complete(prepare.qp), 0);
    for (const std::uint64_t wr_id : {1U, 2U, 3U}) {
        expect_completion(ends.client.cq, wr_id);
    }
    expect_completion(ends.server.cq, 1);
    assert_memory_equal(ends.server.memory.data() + 64, "copied, and then written over", 30);
    assert_memory_equal(ends.server.memory.data() + 4096, "copiedthen", 10);
}

// A batch with a bad request is refused at its end, with the first error. It posts nothing and takes no slot.
void a_bad_one_refuses_all(void **) {
    static constexpr std::uint32_t slots = 8;
    Ends &ends = connected_with(rdma_and_send, {.send_wr = slots, .sge = 2});
    const Prepare prepare{ends};
    ibv_qp_ex *const qp = prepare.qp;
    const auto refused = [&](const std::function<void()> &bad) {
        fill(ends.client, 0, 64, 5);
        ibv_wr_start(qp);
        prepare.write(1, 0, 64);
        bad();
        prepare.write(2, 0, 64);
        return ibv_wr_complete(qp);
    };
    const std::vector<ibv_sge> too_many(3, sge(ends.client, 0, 8));
    std::array<char, 1024> bytes{};
    assert_int_equal(refused([&] { ibv_wr_set_sge_list(qp, too_many.size(), too_many.data()); }), EINVAL);
    assert_int_equal(
        refused([&] { ibv_wr_set_inline_data(qp, bytes.data(), ends.client.sizes.max_inline + 1); }), EINVAL);
    assert_int_equal(refused([&] { ibv_wr_set_ud_addr(qp, nullptr, 1, 1); }), EINVAL);
    assert_int_equal(refused([&] { ibv_wr_bind_mw(qp, nullptr, 1, nullptr); }), EINVAL);
    assert_int_equal(refused([&] { ibv_wr_send_tso(qp, bytes.data(), 1, 1); }), EOPNOTSUPP);
    assert_int_equal(refused([&] {  // what only ibv_post_send sees
                         ibv_wr_rdma_read(qp, 1, 1);
                         ibv_wr_set_inline_data(qp, bytes.data(), 8);
                     }),
                     EINVAL);
    assert_int_equal(refused([&] {
                         for (std::uint32_t i = 0; i < slots; ++i) {
                             prepare.write(3, 0, 8);
                         }
                     }),
                     ENOMEM);
    // The test sets a buffer for a request that is not there.
    ibv_wr_start(qp);
    prepare.local(0, 8);
    assert_int_equal(ibv_wr_complete(qp), EINVAL);
    expect_no_completion(ends.client.cq);
    settle(ends.client, ends.server);
    assert_int_equal(ends.server.memory[0], 0);
    for (unsigned round = 0; round < 3; ++round) {
        ibv_wr_start(qp);
        for (std::uint64_t i = 0; i < slots; ++i) {
            prepare.write(i, 64 * i, 64);
        }
        assert_int_equal(ibv_wr_complete(qp), 0);
        for (std::uint64_t i = 0; i < slots; ++i) {
            expect_completion(ends.client.cq, i);
        }
    }
}

void what_is_aborted_is_not_posted(void **) {
    Ends &ends = connected_with(rdma_and_send);
    const Prepare prepare{ends};
    fill(ends.client, 0, 64, 5);
    ibv_wr_start(prepare.qp);
    prepare.write(1, 0, 64);
    ibv_wr_abort(prepare.qp);
    ibv_wr_start(prepare.qp);
    assert_int_equal(ibv_wr_complete(prepare.qp), 0);  // nothing at all
    settle(ends.client, ends.server);
    assert_int_equal(ends.server.memory[0], 0);
}

void after_the_end_they_are_flushed(void **) {
    Ends &ends = connected_with(rdma_and_send);
    const Prepare prepare{ends};
    assert_int_equal(provider().cm.disconnect(ends.client.id), 0);
    ends.expect_disconnected();
    ibv_wr_start(prepare.qp);
    prepare.write(1, 0, 64);
    prepare.write(2, 0, 64);
    assert_int_equal(ibv_wr_complete(prepare.qp), 0);
    expect_completion(ends.client.cq, 1, IBV_WC_WR_FLUSH_ERR);
    expect_completion(ends.client.cq, 2, IBV_WC_WR_FLUSH_ERR);
}

// A thread is alone from ibv_wr_start to ibv_wr_complete, so that each chain stays together.
void two_threads_prepare_requests(void **) {
    static constexpr std::uint64_t chains = 300;
    Ends &ends = connected_with(rdma_and_send, {.send_wr = 4096, .cqe = 4096});
    const Prepare prepare{ends};
    const auto work = [&prepare](std::uint64_t first) {
        return [&prepare, first]() -> std::string {
            for (std::uint64_t i = 0; i < chains; ++i) {
                ibv_wr_start(prepare.qp);
                prepare.write(first, 0, 8);
                prepare.write(first + 1, 0, 8);
                if (ibv_wr_complete(prepare.qp) != 0) {
                    return "a chain was refused";
                }
            }
            return {};
        };
    };
    auto &one = make<Thread>(work(10));
    auto &other = make<Thread>(work(20));
    one.expect_well();
    other.expect_well();
    for (std::uint64_t i = 0; i < 2 * chains; ++i) {
        const std::uint64_t first = next_completion(ends.client.cq).wr_id;
        assert_int_equal(first % 10, 0);
        expect_completion(ends.client.cq, first + 1);
    }
}

void operations_that_no_queue_pair_has(void **) {
    Ends &ends = connected_with(rdma_and_send);
    ends.client.destroy_queue_pair();
    ibv_qp_init_attr_ex wanted{};
    wanted.send_cq = wanted.recv_cq = ends.client.cq;
    wanted.qp_type = IBV_QPT_RC;
    wanted.pd = ends.client.pd;
    wanted.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    for (const std::uint64_t operation : {std::uint64_t{IBV_QP_EX_WITH_TSO}, std::uint64_t{1} << 40}) {
        wanted.send_ops_flags = rdma_and_send | operation;
        assert_null(ibv_create_qp_ex(ends.client.id->verbs, &wanted));
        assert_int_equal(errno, EOPNOTSUPP);
    }
    wanted.send_ops_flags = rdma_and_send;
    wanted.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
    ibv_qp *const qp = ibv_create_qp_ex(ends.client.id->verbs, &wanted);
    assert_non_null(qp);
    assert_ptr_equal(softrdma_ibv_qp_to_qp_ex(qp), qp);  // qp_base is its first member
    assert_int_equal(softrdma_ibv_destroy_qp(qp), 0);
    wanted.create_flags = 1;
    assert_null(ibv_create_qp_ex(ends.client.id->verbs, &wanted));
    assert_int_equal(errno, EOPNOTSUPP);
}

void completions_are_read_one_by_one(void **) {
    if (!subject.is_soft) {
        skip();
    }
    Ends &ends = connected({.extended_cq = true});
    auto *const queue = reinterpret_cast<ibv_cq_ex *>(ends.server.cq);
    ibv_poll_cq_attr attributes{};
    assert_int_equal(ibv_start_poll(queue, &attributes), ENOENT);
    for (std::uint64_t i = 0; i < 3; ++i) {
        assert_int_equal(post_receive(ends.server, 10 + i, {sge(ends.server, 0, 100)}), 0);
    }
    assert_int_equal(
        post(ends.client, {send_request(ends.client, 0, 10, 1),
                           with_immediate(send_request(ends.client, 0, 20, 2), htonl(5)),
                           with_immediate(write_request(ends.client, ends.server, 0, 30, 3), htonl(6))}),
        0);
    for (std::uint64_t wr_id = 1; wr_id <= 3; ++wr_id) {
        expect_completion(ends.client.cq, wr_id);
    }
    settle(ends.client, ends.server);
    assert_int_equal(ibv_start_poll(queue, &attributes), 0);
    for (std::uint32_t i = 0; i < 3; ++i) {
        assert_int_equal(queue->wr_id, 10 + i);
        assert_int_equal(queue->status, IBV_WC_SUCCESS);
        assert_int_equal(ibv_wc_read_opcode(queue), i == 2 ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV);
        assert_int_equal(ibv_wc_read_byte_len(queue), 10 + 10 * i);
        assert_int_equal(ibv_wc_read_qp_num(queue), ends.server.id->qp->qp_num);
        assert_int_equal(ibv_wc_read_wc_flags(queue), i == 0 ? 0 : IBV_WC_WITH_IMM);
        assert_int_equal(ibv_wc_read_vendor_err(queue), 0);
        if (i != 0) {
            assert_int_equal(ibv_wc_read_imm_data(queue), htonl(4 + i));
        }
        assert_int_equal(ibv_next_poll(queue), i == 2 ? ENOENT : 0);
    }
    ibv_end_poll(queue);
    // The other way of polling is still there, and the queue is free after a poll that found nothing.
    assert_int_equal(ibv_start_poll(queue, &attributes), ENOENT);
    expect_no_completion(ends.server.cq);
    attributes.comp_mask = 1;
    assert_int_equal(ibv_start_poll(queue, &attributes), EINVAL);
}

std::uint64_t nanoseconds(const timespec &time) {
    return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(time.tv_nsec);
}

// A stamp tells when a completion came, and not when it is polled, also after the queue was resized.
void completions_have_time_stamps(void **) {
    Ends &ends = connected();
    if (!subject.is_soft) {
        skip();
    }
    ibv_context *const context = ends.client.id->verbs;
    ibv_device_attr_ex attributes{};
    assert_int_equal(softrdma_ibv_query_device_ex(context, nullptr, &attributes), 0);
    assert_int_equal(attributes.hca_core_clock, 1'000'000);
    assert_true(attributes.completion_timestamp_mask == UINT64_MAX);
    ibv_cq_init_attr_ex wanted{};
    wanted.cqe = 4;
    wanted.wc_flags = static_cast<unsigned>(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP) |
                      static_cast<unsigned>(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK);
    ibv_cq_ex *const queue = ibv_create_cq_ex(context, &wanted);
    assert_non_null(queue);
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = ibv_cq_ex_to_cq(queue);
    init.cap = {
        .max_send_wr = 16, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
    init.qp_type = IBV_QPT_RC;
    ibv_qp *const qp = softrdma_ibv_create_qp(ends.client.pd, &init);
    assert_non_null(qp);
    ibv_qp_attr state{};
    state.qp_state = IBV_QPS_ERR;
    assert_int_equal(softrdma_ibv_modify_qp(qp, &state, IBV_QP_STATE), 0);
    ibv_values_ex now{.comp_mask = IBV_VALUES_MASK_RAW_CLOCK, .raw_clock = {}};
    std::array<std::uint64_t, 5> between{};
    for (std::size_t i = 0; i <= 4; ++i) {
        assert_int_equal(ibv_query_rt_values_ex(context, &now), 0);
        between[i] = nanoseconds(now.raw_clock);
        ibv_send_wr request{};
        request.wr_id = i;
        request.opcode = IBV_WR_SEND;
        request.send_flags = IBV_SEND_SIGNALED;
        ibv_send_wr *bad = nullptr;
        if (i < 4) {  // it is flushed, and complete
            assert_int_equal(ibv_post_send(qp, &request, &bad), 0);
        }
    }
    assert_int_equal(provider().completion.resize_cq(ibv_cq_ex_to_cq(queue), 16), 0);
    ibv_poll_cq_attr poll{};
    std::uint64_t wallclock = 0;
    assert_int_equal(ibv_start_poll(queue, &poll), 0);
    for (std::uint64_t i = 0; i < 4; ++i) {
        assert_int_equal(queue->wr_id, i);
        assert_in_range(ibv_wc_read_completion_ts(queue), between[i], between[i + 1]);
        assert_true(ibv_wc_read_completion_wallclock_ns(queue) >= wallclock);
        wallclock = ibv_wc_read_completion_wallclock_ns(queue);
        assert_int_equal(ibv_next_poll(queue), i == 3 ? ENOENT : 0);
    }
    ibv_end_poll(queue);
    assert_int_equal(softrdma_ibv_destroy_qp(qp), 0);
    assert_int_equal(provider().completion.destroy_cq(ibv_cq_ex_to_cq(queue)), 0);
}

void completions_with_what_is_not_known(void **) {
    Ends &ends = connected();
    if (!subject.is_soft) {
        skip();
    }
    ibv_cq_init_attr_ex wanted{};
    wanted.cqe = 4;
    wanted.wc_flags = IBV_WC_EX_WITH_FLOW_TAG;
    assert_null(ibv_create_cq_ex(ends.client.id->verbs, &wanted));
    assert_int_equal(errno, EOPNOTSUPP);
    wanted.wc_flags = IBV_WC_STANDARD_FLAGS;
    wanted.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
    wanted.flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
    assert_null(ibv_create_cq_ex(ends.client.id->verbs, &wanted));
    assert_int_equal(errno, EOPNOTSUPP);
    wanted.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
    ibv_cq_ex *const queue = ibv_create_cq_ex(ends.client.id->verbs, &wanted);
    assert_non_null(queue);
    assert_int_equal(provider().completion.destroy_cq(ibv_cq_ex_to_cq(queue)), 0);
}

// The context answers programs with any size of structure that they were compiled with.
void the_context_answers(void **) {
    Ends &ends = connected();
    if (!subject.is_soft) {
        skip();
    }
    ibv_context *const context = ends.client.id->verbs;
    ibv_port_attr port{};
    assert_int_equal(ibv_query_port(context, 1, &port), 0);
    assert_int_equal(port.state, IBV_PORT_ACTIVE);
    assert_int_equal(port.link_layer, IBV_LINK_LAYER_ETHERNET);
    assert_int_equal(ibv_query_port(context, 2, &port), EINVAL);
    ibv_device_attr_ex whole{};
    ibv_device_attr_ex mine{};
    assert_int_equal(provider().device.query_device_ex(context, nullptr, &whole), 0);
    assert_int_equal(ibv_query_device_ex(context, nullptr, &mine), 0);
    assert_memory_equal(&mine, &whole, sizeof(whole));
    assert_int_equal(whole.phys_port_cnt_ex, whole.orig_attr.phys_port_cnt);
    assert_int_not_equal(whole.orig_attr.vendor_id, 0);
    const auto *const calls = reinterpret_cast<const verbs_context *>(
        reinterpret_cast<const char *>(context) - offsetof(verbs_context, context));
    std::array<std::byte, sizeof(ibv_device_attr_ex)> short_one;
    short_one.fill(std::byte{0x5a});
    assert_int_equal(
        calls->query_device_ex(context, nullptr, reinterpret_cast<ibv_device_attr_ex *>(short_one.data()),
                               sizeof(ibv_device_attr)),
        0);
    assert_memory_equal(short_one.data(), &whole, sizeof(ibv_device_attr));
    assert_int_equal(short_one[sizeof(ibv_device_attr)], 0x5a);

    ibv_srq_init_attr_ex wanted{};
    wanted.attr.max_wr = 4;
    wanted.pd = ends.client.pd;
    wanted.comp_mask = IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE;
    wanted.srq_type = IBV_SRQT_BASIC;
    // The test does not call the inline, which calls the system library's ibv_create_srq for the type BASIC.
    ibv_srq *const queue = calls->create_srq_ex(context, &wanted);
    assert_non_null(queue);
    assert_int_equal(provider().domain.destroy_srq(queue), 0);
    wanted.srq_type = IBV_SRQT_TM;
    assert_null(ibv_create_srq_ex(context, &wanted));
    assert_int_equal(errno, EOPNOTSUPP);
    // Calls that the device does not have fail cleanly.
    assert_null(ibv_create_counters(context, nullptr));
    assert_int_equal(errno, EOPNOTSUPP);
}

constexpr CMUnitTest tests[] = {
    cmocka_unit_test(only_of_a_queue_pair_that_was_asked_for_it),
    cmocka_unit_test(every_operation_prepared_and_posted_at_once),
    cmocka_unit_test(inline_data_is_copied_when_it_is_set),
    cmocka_unit_test(a_bad_one_refuses_all),
    cmocka_unit_test(what_is_aborted_is_not_posted),
    cmocka_unit_test(after_the_end_they_are_flushed),
    cmocka_unit_test(two_threads_prepare_requests),
    cmocka_unit_test(operations_that_no_queue_pair_has),
    cmocka_unit_test(completions_are_read_one_by_one),
    cmocka_unit_test(completions_have_time_stamps),
    cmocka_unit_test(completions_with_what_is_not_known),
    cmocka_unit_test(the_context_answers),
};

}  // namespace

std::span<const CMUnitTest> extended_tests() {
    return tests;
}

}  // namespace conformance
