// SPDX-License-Identifier: BSD-3-Clause
// Tests UD queue pairs over UDP: messages, states, dropped messages, groups,
// and a peer that is nothing but a socket.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "soft/ground/limits.hpp"
#include "soft/wire/datagram.hpp"

// These come last, because they assert.
#include "datagram_end.hpp"

#include "../base/fixture.hpp"

namespace {

using test::DatagramEnd;
using test::gid_of;
using test::Message;
using test::qkey;
using test::route_bytes;

constexpr std::uint32_t to_group = 0xffffff;
const char *const group = "239.255.77.1";

// These are two ends. A test may make more of its own.
struct Ends {
    DatagramEnd a;
    DatagramEnd b;
};

// Is called once, when the network has the next message and the call that sends it has not returned. The
// flag tells that it is there.
std::function<void()> behind_the_next_message;
std::atomic<bool> is_there{false};

void assert_same_gid(const ibv_gid &seen, const ibv_gid &expected) {
    assert_memory_equal(&seen, &expected, sizeof(seen));
}

void exchange(DatagramEnd &a, DatagramEnd &b) {
    b.post_receive(1);
    a.post_receive(2);
    std::strcpy(a.at(0), "ping");
    ibv_sge place = a.sge(0, 4);
    ibv_send_wr request{};
    request.sg_list = &place;
    request.num_sge = 1;
    request.opcode = IBV_WR_SEND_WITH_IMM;
    request.imm_data = htonl(0xfeedf00d);
    request.wr.ud = {.ah = a.handle_to(b.gid()), .remote_qpn = b.qp->qp_num, .remote_qkey = qkey};
    assert_int_equal(a.post_send(request), 0);

    Message got = b.next_message();
    assert_string_equal(got.text.c_str(), "ping");
    assert_int_equal(got.completion.wc_flags, IBV_WC_GRH | IBV_WC_WITH_IMM);
    assert_int_equal(got.completion.imm_data, htonl(0xfeedf00d));
    assert_int_equal(got.completion.src_qp, a.qp->qp_num);
    assert_int_equal(got.completion.qp_num, b.qp->qp_num);
    assert_same_gid(got.route.sgid, a.gid());
    assert_same_gid(got.route.dgid, b.gid());
    assert_int_equal(ntohs(got.route.paylen), 4);

    ibv_ah *const back = softrdma_ibv_create_ah_from_wc(b.pd, &got.completion, &got.route, 1);
    assert_non_null(back);
    b.send("pong", back, got.completion.src_qp);
    assert_int_equal(softrdma_ibv_destroy_ah(back), 0);
    got = a.next_message();
    assert_string_equal(got.text.c_str(), "pong");
    assert_int_equal(got.completion.wc_flags, IBV_WC_GRH);
}

void a_message_and_its_answer(Ends &ends) {
    auto &[a, b] = ends;
    exchange(a, b);
}

void over_ipv6(void **) {
    const auto a = std::make_unique<DatagramEnd>(IBV_QPS_RTS, true);
    const auto b = std::make_unique<DatagramEnd>(IBV_QPS_RTS, true);
    exchange(*a, *b);
}

void a_queue_pair_sends_to_itself(Ends &ends) {
    DatagramEnd &a = ends.a;
    a.post_receive(0);
    a.send("echo", a);
    assert_string_equal(a.next_message().text.c_str(), "echo");
}

void the_number_has_the_port(Ends &ends) {
    auto &[a, b] = ends;
    for (const DatagramEnd *const end : {&a, &b}) {
        assert_true(end->qp->qp_num >= 0x800000 && end->qp->qp_num < to_group);
        const int rival = socket(AF_INET6, SOCK_DGRAM, 0);
        sockaddr_in6 address{};
        address.sin6_family = AF_INET6;
        address.sin6_port = htons(static_cast<std::uint16_t>(end->qp->qp_num & 0xffff));
        assert_int_equal(bind(rival, reinterpret_cast<sockaddr *>(&address), sizeof(address)), -1);
        assert_int_equal(errno, EADDRINUSE);
        close(rival);
    }
}

void sizes_from_nothing_to_the_mtu(Ends &ends) {
    auto &[a, b] = ends;
    const std::string largest(soft::limits::max_datagram_bytes, 'x');
    for (const std::string &text : {std::string{}, std::string{"y"}, largest}) {
        b.post_receive(3);
        a.send(text, b);
        assert_true(b.next_message().text == text);
    }
    ibv_sge place = a.sge(0, soft::limits::max_datagram_bytes + 1);
    ibv_send_wr request{};
    request.sg_list = &place;
    request.num_sge = 1;
    request.opcode = IBV_WR_SEND;
    request.wr.ud = {.ah = a.handle_to(b.gid()), .remote_qpn = b.qp->qp_num, .remote_qkey = qkey};
    assert_int_equal(a.post_send(request), EINVAL);
}

// The device gathers a message from two places, once as inline data, and scatters it over
// three places, its header over two of them.
void scatter_and_gather(Ends &ends) {
    auto &[a, b] = ends;
    for (const unsigned flags : {0U, unsigned{IBV_SEND_INLINE}}) {
        ibv_sge places[] = {b.sge(0, 30), b.sge(1, 12), b.sge(2, 100)};
        ibv_recv_wr receive{.wr_id = 9, .next = nullptr, .sg_list = places, .num_sge = 3};
        ibv_recv_wr *bad = nullptr;
        assert_int_equal(ibv_post_recv(b.qp, &receive, &bad), 0);
        std::memcpy(a.at(0), "scat", 4);
        std::memcpy(a.at(1), "tered", 5);
        ibv_sge sources[] = {a.sge(0, 4), a.sge(1, 5)};
        ibv_send_wr request{};
        request.sg_list = sources;
        request.num_sge = 2;
        request.opcode = IBV_WR_SEND;
        request.send_flags = flags;
        request.wr.ud = {.ah = a.handle_to(b.gid()), .remote_qpn = b.qp->qp_num, .remote_qkey = qkey};
        assert_int_equal(a.post_send(request), 0);
        assert_int_equal(b.next_completion().byte_len, route_bytes + 9);
        assert_memory_equal(b.at(1) + 10, "sc", 2);  // 40 bytes of header end 10 bytes into the second
        assert_memory_equal(b.at(2), "attered", 7);
    }
}

// A message that is dropped takes no receive. The messages that are sent after it still arrive.
void what_is_dropped(Ends &ends) {
    auto &[a, b] = ends;
    a.send("no receive", b);
    b.expect_nothing();
    b.post_receive(1, route_bytes + 4);
    a.send("too long for it", b);
    a.send("qkey", b, qkey + 1);
    const std::uint32_t other_number = b.qp->qp_num ^ 0x010000;
    a.send("for an earlier queue pair on the port", a.handle_to(b.gid()), other_number);
    a.send("fits", b);
    assert_string_equal(b.next_message().text.c_str(), "fits");
    b.expect_nothing();
}

// When the highest bit of the Q_Key in a request is set, the device uses the Q_Key of the queue pair.
void the_queue_pairs_own_qkey(Ends &ends) {
    auto &[a, b] = ends;
    b.post_receive(1);
    a.send("mine", b, 0x80000000);
    assert_string_equal(b.next_message().text.c_str(), "mine");
}

void the_states(void **) {
    const auto end = std::make_unique<DatagramEnd>(IBV_QPS_RESET);
    const DatagramEnd &a = *end;
    assert_int_equal(a.state(), IBV_QPS_RESET);
    ibv_recv_wr receive{};
    ibv_recv_wr *bad = nullptr;
    assert_int_equal(ibv_post_recv(a.qp, &receive, &bad), EINVAL);
    assert_int_equal(a.modify(IBV_QPS_INIT), EINVAL);  // without port, pkey, qkey
    assert_int_equal(a.modify(IBV_QPS_RTR), EINVAL);
    a.climb(IBV_QPS_INIT);
    a.post_receive(0);
    assert_int_equal(a.modify(IBV_QPS_RTS, IBV_QP_SQ_PSN), EINVAL);
    assert_int_equal(a.modify(IBV_QPS_RTR), 0);
    ibv_send_wr request{};
    request.opcode = IBV_WR_SEND;
    assert_int_equal(a.post_send(request), EINVAL);
    assert_int_equal(a.modify(IBV_QPS_RTS), EINVAL);  // without psn
    assert_int_equal(a.modify(IBV_QPS_RTS, IBV_QP_SQ_PSN), 0);
    assert_int_equal(a.modify(IBV_QPS_RTS, IBV_QP_AV), EINVAL);
    ibv_qp_attr attributes{};
    ibv_qp_init_attr init{};
    assert_int_equal(softrdma_ibv_query_qp(a.qp, &attributes, IBV_QP_QKEY, &init), 0);
    assert_int_equal(attributes.qkey, qkey);
    assert_int_equal(init.qp_type, IBV_QPT_UD);
}

void an_error_flushes_and_a_reset_forgets(Ends &ends) {
    auto &[a, b] = ends;
    b.post_receive(1);
    b.post_receive(2);
    assert_int_equal(b.modify(IBV_QPS_ERR), 0);
    for (std::uint64_t slot = 1; slot <= 2; ++slot) {
        const ibv_wc completion = b.next_completion();
        assert_int_equal(completion.wr_id, slot);
        assert_int_equal(completion.status, IBV_WC_WR_FLUSH_ERR);
    }
    b.post_receive(3);  // flushed at once
    assert_int_equal(b.next_completion().wr_id, 3);
    ibv_send_wr request{};
    request.opcode = IBV_WR_SEND;
    request.wr.ud = {.ah = b.handle_to(a.gid()), .remote_qpn = a.qp->qp_num, .remote_qkey = qkey};
    assert_int_equal(b.post_send(request), 0);
    assert_int_equal(b.next_completion().status, IBV_WC_WR_FLUSH_ERR);

    assert_int_equal(b.modify(IBV_QPS_RESET), 0);
    b.climb(IBV_QPS_RTS);
    for (std::uint64_t slot = 0; slot < 8; ++slot) {
        b.post_receive(slot);  // every place is free
    }
    a.send("again", b);
    assert_string_equal(b.next_message().text.c_str(), "again");
    assert_int_equal(b.modify(IBV_QPS_RESET), 0);
    b.expect_nothing();
}

void bad_memory_of_a_send(Ends &ends) {
    auto &[a, b] = ends;
    ibv_sge place = a.sge(0, 4);
    place.lkey ^= 1;
    ibv_send_wr request{};
    request.wr_id = 7;
    request.sg_list = &place;
    request.num_sge = 1;
    request.opcode = IBV_WR_SEND;
    request.wr.ud = {.ah = a.handle_to(b.gid()), .remote_qpn = b.qp->qp_num, .remote_qkey = qkey};
    assert_int_equal(a.post_send(request), 0);
    const ibv_wc completion = a.next_completion();
    assert_int_equal(completion.status, IBV_WC_LOC_PROT_ERR);
    assert_int_equal(completion.wr_id, 7);
    assert_int_equal(a.state(), IBV_QPS_SQE);
    // The queue pair still receives, and can be brought back.
    a.post_receive(0);
    b.send("still there?", a);
    assert_string_equal(a.next_message().text.c_str(), "still there?");
    assert_int_equal(a.modify(IBV_QPS_RTS), 0);
    b.post_receive(0);
    a.send("yes", b);
    assert_string_equal(b.next_message().text.c_str(), "yes");
}

// The queue pair sends nothing after the overrun, and still receives.
void an_overrun_of_the_send_side(Ends &ends) {
    auto &[a, b] = ends;
    ibv_qp *const own = a.qp;
    ibv_cq *const small = softrdma_ibv_create_cq(a.context, 1, nullptr, nullptr, 0);
    assert_non_null(small);
    ibv_qp_init_attr wanted{};
    wanted.send_cq = small;
    wanted.recv_cq = a.cq;
    wanted.cap = {
        .max_send_wr = 8, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 16};
    wanted.qp_type = IBV_QPT_UD;
    a.qp = softrdma_ibv_create_qp(a.pd, &wanted);
    assert_non_null(a.qp);
    a.climb(IBV_QPS_RTS);
    std::array<ibv_send_wr, 4> requests{};
    for (std::size_t i = 0; i < requests.size(); ++i) {
        b.post_receive(i);
        requests[i].next = i + 1 < requests.size() ? &requests[i + 1] : nullptr;
        requests[i].opcode = IBV_WR_SEND;
        requests[i].send_flags = IBV_SEND_SIGNALED;
        requests[i].wr.ud = {.ah = a.handle_to(b.gid()), .remote_qpn = b.qp->qp_num, .remote_qkey = qkey};
    }
    assert_int_equal(a.post_send(requests[0]), 0);
    const ibv_qp_state after = a.state();
    ibv_wc completion{};
    assert_int_equal(ibv_poll_cq(small, 1, &completion), 1);
    assert_int_equal(completion.status, IBV_WC_SUCCESS);
    a.post_receive(0);
    b.send("still there?", a);
    const bool there = a.next_message().text == "still there?";
    assert_int_equal(softrdma_ibv_destroy_qp(std::exchange(a.qp, own)), 0);
    assert_int_equal(softrdma_ibv_destroy_cq(small), 0);
    assert_int_equal(after, IBV_QPS_SQE);
    assert_true(there);
    // The first message has arrived, and so has the second, whose completion was lost.
    (void)b.next_message();
    (void)b.next_message();
    b.expect_nothing();
}

void bad_memory_of_a_receive(Ends &ends) {
    auto &[a, b] = ends;
    ibv_sge place = b.sge(0, 100);
    place.lkey ^= 1;
    ibv_recv_wr receive{.wr_id = 5, .next = nullptr, .sg_list = &place, .num_sge = 1};
    ibv_recv_wr *bad = nullptr;
    assert_int_equal(ibv_post_recv(b.qp, &receive, &bad), 0);
    a.send("lost", b);
    const ibv_wc completion = b.next_completion();
    assert_int_equal(completion.status, IBV_WC_LOC_PROT_ERR);
    assert_int_equal(completion.wr_id, 5);
    assert_int_equal(b.state(), IBV_QPS_ERR);
}

// A chain through ibv_qp_ex is posted whole or not at all.
void requests_prepared_one_by_one(Ends &ends) {
    auto &[a, b] = ends;
    ibv_qp_init_attr_ex wanted{};
    wanted.send_cq = wanted.recv_cq = a.cq;
    wanted.cap = {
        .max_send_wr = 4, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 16};
    wanted.qp_type = IBV_QPT_UD;
    wanted.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    wanted.pd = a.pd;
    wanted.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE;
    assert_null(softrdma_ibv_create_qp_ex(a.context, &wanted));
    wanted.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
    ibv_qp *const own = std::exchange(a.qp, softrdma_ibv_create_qp_ex(a.context, &wanted));
    assert_non_null(a.qp);
    a.climb(IBV_QPS_RTS);
    ibv_qp_ex *const extended = softrdma_ibv_qp_to_qp_ex(a.qp);
    assert_non_null(extended);
    char text[] = "one";
    ibv_ah *const to = a.handle_to(b.gid());
    for (const bool sound : {false, true}) {
        b.post_receive(1);
        b.post_receive(2);
        ibv_wr_start(extended);
        extended->wr_flags = IBV_SEND_SIGNALED;
        ibv_wr_send_imm(extended, htonl(7));
        ibv_wr_set_ud_addr(extended, to, b.qp->qp_num, qkey);
        ibv_wr_set_inline_data(extended, text, sizeof(text));
        ibv_wr_send(extended);
        ibv_wr_set_ud_addr(extended, sound ? to : nullptr, b.qp->qp_num, qkey);
        ibv_wr_set_sge(extended, a.mr->lkey, a.sge(0, 0).addr, 0);
        assert_int_equal(ibv_wr_complete(extended), sound ? 0 : EINVAL);
        if (!sound) {
            b.expect_nothing();
            a.expect_nothing();
            assert_int_equal(b.modify(IBV_QPS_RESET), 0);
            b.climb(IBV_QPS_RTS);
        }
    }
    const Message first = b.next_message();
    assert_string_equal(first.text.c_str(), text);
    assert_int_equal(first.completion.imm_data, htonl(7));
    assert_int_equal(b.next_message().completion.byte_len, route_bytes);
    assert_int_equal(softrdma_ibv_destroy_qp(std::exchange(a.qp, own)), 0);
}

// A completion event wakes a sleeping thread, and the queue's slots are used as on hardware.
void events_and_full_queues(Ends &ends) {
    auto &[a, b] = ends;
    b.post_receive(1);
    assert_int_equal(ibv_req_notify_cq(b.cq, 0), 0);
    a.send("wake up", b);
    ibv_cq *cq = nullptr;
    void *cq_context = nullptr;
    assert_int_equal(softrdma_ibv_get_cq_event(b.channel, &cq, &cq_context), 0);
    assert_ptr_equal(cq, b.cq);
    softrdma_ibv_ack_cq_events(cq, 1);
    assert_string_equal(b.next_message().text.c_str(), "wake up");

    ibv_send_wr request{};
    request.opcode = IBV_WR_SEND;
    request.wr.ud = {.ah = a.handle_to(b.gid()), .remote_qpn = b.qp->qp_num, .remote_qkey = qkey};
    for (int i = 0; i < 7; ++i) {
        assert_int_equal(a.post_send(request), 0);
    }
    request.send_flags = IBV_SEND_SIGNALED;
    assert_int_equal(a.post_send(request), 0);
    assert_int_equal(a.post_send(request), ENOMEM);  // until that completion is polled
    assert_int_equal(a.next_completion().status, IBV_WC_SUCCESS);
    assert_int_equal(a.post_send(request), 0);
}

void what_cannot_be_sent(Ends &ends) {
    auto &[a, b] = ends;
    ibv_send_wr request{};
    request.opcode = IBV_WR_RDMA_WRITE;
    request.wr.ud = {.ah = a.handle_to(b.gid()), .remote_qpn = b.qp->qp_num, .remote_qkey = qkey};
    assert_int_equal(a.post_send(request), EOPNOTSUPP);
    request.opcode = IBV_WR_SEND;
    request.num_sge = 3;
    assert_int_equal(a.post_send(request), EINVAL);
    request.num_sge = 0;
    request.wr.ud.ah = nullptr;
    assert_int_equal(a.post_send(request), EINVAL);
    request.wr.ud.ah = b.handle_to(b.gid());  // of another protection domain
    assert_int_equal(a.post_send(request), EINVAL);
    request.wr.ud.ah = a.handle_to(b.gid());
    request.wr.ud.remote_qpn = to_group;  // with the address of no group
    assert_int_equal(a.post_send(request), EINVAL);
}

void address_handles_that_are_none(Ends &ends) {
    DatagramEnd &a = ends.a;
    const ibv_ah_attr sound = a.attributes_to(gid_of("127.0.0.1"));
    const auto refused = [&](auto change) {
        ibv_ah_attr attributes = sound;
        change(attributes);
        errno = 0;
        assert_null(softrdma_ibv_create_ah(a.pd, &attributes));
        assert_int_equal(errno, EINVAL);
    };
    refused([](ibv_ah_attr &one) { one.is_global = 0; });
    refused([](ibv_ah_attr &one) { one.port_num = 2; });
    refused([](ibv_ah_attr &one) { one.grh.sgid_index = 200; });
    refused([](ibv_ah_attr &one) { one.grh.dgid = gid_of("0.0.0.0"); });
    refused([](ibv_ah_attr &one) { one.grh.dgid = gid_of("::"); });
    refused([](ibv_ah_attr &one) { one.grh.dgid = gid_of("::1"); });  // from an IPv4 source
    ibv_wc without_route{};
    ibv_grh route{};
    ibv_ah_attr attributes{};
    assert_int_equal(softrdma_ibv_init_ah_from_wc(a.context, 1, &without_route, &route, &attributes), -1);
    assert_int_equal(errno, EINVAL);
    // The handle is counted, so the protection domain cannot go before it.
    ibv_ah *const handle = a.handle_to(gid_of("127.0.0.1"));
    assert_ptr_equal(handle->pd, a.pd);
    assert_int_equal(softrdma_ibv_dealloc_pd(a.pd), EBUSY);
}

// ---- groups ----

void members_of_a_group(Ends &ends) {
    auto &[a, b] = ends;
    const auto third = std::make_unique<DatagramEnd>();
    const ibv_gid gid = gid_of(group);
    const ibv_gid other = gid_of("239.255.77.2");
    assert_int_equal(softrdma_ibv_attach_mcast(a.qp, &gid, 0), 0);
    assert_int_equal(softrdma_ibv_attach_mcast(b.qp, &gid, 0), 0);
    assert_int_equal(softrdma_ibv_attach_mcast(b.qp, &gid, 0), 0);  // it is a member already
    assert_int_equal(softrdma_ibv_attach_mcast(third->qp, &other, 0), 0);
    a.post_receive(1);
    b.post_receive(1);
    third->post_receive(1);
    third->send("all", third->handle_to(gid), to_group);
    for (DatagramEnd *const member : {&a, &b}) {
        const Message got = member->next_message();
        assert_string_equal(got.text.c_str(), "all");
        assert_int_equal(got.completion.src_qp, third->qp->qp_num);
        assert_same_gid(got.route.sgid, third->gid());
        assert_same_gid(got.route.dgid, gid);
    }
    third->expect_nothing();

    assert_int_equal(softrdma_ibv_detach_mcast(b.qp, &gid, 0), 0);
    assert_int_equal(softrdma_ibv_detach_mcast(b.qp, &gid, 0), EINVAL);
    a.post_receive(1);
    b.post_receive(1);
    a.send("me too", a.handle_to(gid), to_group);  // a member hears itself
    assert_string_equal(a.next_message().text.c_str(), "me too");
    a.send("who is left", b);
    assert_string_equal(b.next_message().text.c_str(), "who is left");
}

// A destroyed queue pair, still a member or no longer, leaves nothing behind in the queue that it shared.
void a_member_goes(Ends &ends) {
    auto &[a, b] = ends;
    ibv_qp_init_attr wanted{};
    wanted.send_cq = wanted.recv_cq = a.cq;
    wanted.cap = {
        .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
    wanted.qp_type = IBV_QPT_UD;
    const ibv_gid groups[] = {gid_of(group), gid_of("239.255.77.2")};
    for (const bool detaches : {false, true}) {
        ibv_qp *const member = softrdma_ibv_create_qp(a.pd, &wanted);
        assert_non_null(member);
        for (const ibv_gid &gid : groups) {
            assert_int_equal(softrdma_ibv_attach_mcast(member, &gid, 0), 0);
        }
        if (detaches) {
            assert_int_equal(softrdma_ibv_detach_mcast(member, &groups[0], 0), 0);
        }
        assert_int_equal(softrdma_ibv_destroy_qp(member), 0);
        a.expect_nothing();
    }
    a.post_receive(1);
    b.send("still here", a);
    assert_string_equal(a.next_message().text.c_str(), "still here");
}

// Every send completes and every message arrives whole while the receiver joins and leaves a group.
void many_threads_send(Ends &ends) {
    static constexpr unsigned threads = 3;
    static constexpr unsigned rounds = 200;
    using Text = std::array<char, 64>;  // all of one character, the thread's
    auto &[a, b] = ends;
    ibv_ah *const to = a.handle_to(b.gid());
    std::atomic<unsigned> failed{0};
    unsigned sent = 0;
    unsigned received = 0;
    unsigned torn = 0;
    for (std::uint64_t slot = 0; slot < 8; ++slot) {
        b.post_receive(slot);
    }
    {
        std::vector<std::jthread> running;
        for (unsigned thread = 0; thread < threads; ++thread) {
            running.emplace_back([&, thread](const std::stop_token &stop) {
                Text text;
                text.fill(static_cast<char>('a' + thread));
                ibv_sge place{
                    .addr = reinterpret_cast<std::uintptr_t>(text.data()), .length = text.size(), .lkey = 0};
                ibv_send_wr request{};
                request.sg_list = &place;
                request.num_sge = 1;
                request.opcode = IBV_WR_SEND;
                request.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
                request.wr.ud = {.ah = to, .remote_qpn = b.qp->qp_num, .remote_qkey = qkey};
                for (unsigned i = 0; i < rounds; ++i) {
                    int error = ENOMEM;  // until a completion is polled
                    while (error == ENOMEM && !stop.stop_requested()) {
                        error = a.post_send(request);
                    }
                    failed.fetch_add(error == 0 ? 0 : 1);
                }
            });
        }
        running.emplace_back([&](const std::stop_token &stop) {
            const ibv_gid gid = gid_of(group);
            while (!stop.stop_requested()) {
                failed.fetch_add(softrdma_ibv_attach_mcast(b.qp, &gid, 0) == 0 ? 0 : 1);
                failed.fetch_add(softrdma_ibv_detach_mcast(b.qp, &gid, 0) == 0 ? 0 : 1);
            }
        });
        const auto until = std::chrono::steady_clock::now() + std::chrono::seconds{30};
        ibv_wc completion{};
        while ((sent + failed.load() < threads * rounds || received == 0) &&
               std::chrono::steady_clock::now() < until) {
            if (ibv_poll_cq(a.cq, 1, &completion) == 1) {
                failed.fetch_add(completion.status == IBV_WC_SUCCESS ? 0 : 1);
                ++sent;
            }
            if (ibv_poll_cq(b.cq, 1, &completion) == 1) {
                const char *const text = b.at(completion.wr_id) + route_bytes;
                const auto same = std::count(text, text + sizeof(Text), *text);
                torn += completion.byte_len == route_bytes + sizeof(Text) && same == sizeof(Text) ? 0 : 1;
                ++received;
                b.post_receive(completion.wr_id);
            }
        }
    }
    assert_int_equal(failed.load(), 0);
    assert_int_equal(sent, threads * rounds);
    assert_int_equal(torn, 0);
    assert_int_not_equal(received, 0);
}

void groups_that_are_none(Ends &ends) {
    DatagramEnd &a = ends.a;
    const ibv_gid host = gid_of("127.0.0.1");
    assert_int_equal(softrdma_ibv_attach_mcast(a.qp, &host, 0), EINVAL);
    for (std::size_t i = 0; i <= soft::limits::max_groups_of_qp; ++i) {
        const ibv_gid gid = gid_of(("239.255.78." + std::to_string(i)).c_str());
        const bool room = i < soft::limits::max_groups_of_qp;
        assert_int_equal(softrdma_ibv_attach_mcast(a.qp, &gid, 0), room ? 0 : ENOMEM);
    }
}

// ---- a hostile peer ----

// The device delivers no datagram that was changed or cut, and none that comes from another port than that of
// the queue pair that it names.
void any_byte_may_be_wrong(Ends &ends) {
    using namespace soft::wire;
    DatagramEnd &a = ends.a;
    const int peer = socket(AF_INET, SOCK_DGRAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(bind(peer, reinterpret_cast<sockaddr *>(&address), sizeof(address)), 0);
    socklen_t length = sizeof(address);
    assert_int_equal(getsockname(peer, reinterpret_cast<sockaddr *>(&address), &length), 0);
    const std::uint32_t own_number = 0x900000U | ntohs(address.sin_port);
    address.sin_port = htons(static_cast<std::uint16_t>(a.qp->qp_num & 0xffff));
    const auto send = [&](std::string_view bytes) {
        assert_int_equal(sendto(peer, bytes.data(), bytes.size(), 0, reinterpret_cast<sockaddr *>(&address),
                                sizeof(address)),
                         bytes.size());
    };
    const auto text_of = [](const MessageHeaderBytes &bytes, std::size_t size) {
        return std::string_view{reinterpret_cast<const char *>(bytes.data()), size};
    };
    const auto tell = [&](const MessageHeaderBytes &bytes, std::size_t size) {
        send(text_of(bytes, size));
        ibv_wc completion{};
        return ibv_poll_cq(a.cq, 1, &completion);
    };
    a.post_receive(0);
    const MessageHeader header{.destination = a.qp->qp_num, .source = own_number, .qkey = qkey};
    const MessageHeaderBytes sound = encode(header);
    for (std::size_t size = 0; size < sound.size(); ++size) {
        assert_int_equal(tell(sound, size), 0);
    }
    for (std::size_t i = 0; i < sound.size(); ++i) {
        for (unsigned bit = 0; bit < 8; ++bit) {
            MessageHeaderBytes changed = sound;
            changed[i] ^= static_cast<std::byte>(1U << bit);
            // A changed bit may do this: turn solicited or immediate data on or off, or
            // change the number of the source port.
            const bool harmless = (i == 7 && bit < 2) || i == 13;
            assert_int_equal(harmless ? 0 : tell(changed, changed.size()), 0);
        }
    }
    // The datagram is longer than any message, so the device drops all of it.
    std::string longer{text_of(sound, sound.size())};
    longer.resize(sound.size() + soft::limits::max_datagram_bytes + 1);
    send(longer);
    // The first message is the sound one, and it has text: none of those before it took the receive, even if
    // the kernel delivered them late.
    send(std::string{text_of(sound, sound.size())} + "sound");
    assert_true(a.next_message().text == "sound");
    a.post_receive(0);
    a.expect_nothing();
    close(peer);
}

// The peer has the message, and has answered it, before the call that sends the message returns. Meanwhile
// another thread polls.
void an_answer_completes_behind_its_message(Ends &ends) {
    constexpr int most_looks = 10'000;
    ends.a.post_receive(1);
    ends.b.post_receive(1);
    std::array<ibv_wc, 2> completions{};
    std::atomic<std::size_t> polled{0};
    behind_the_next_message = [&] {
        (void)ends.b.next_message();
        ends.b.send("pong", ends.a);
        for (int i = 0; i < most_looks && polled == 0; ++i) {
            std::this_thread::yield();
        }
    };
    is_there = true;
    std::thread poller{[&] {
        while (polled < completions.size()) {
            polled += static_cast<std::size_t>(ibv_poll_cq(ends.a.cq, 1, &completions[polled]));
        }
    }};
    ibv_sge place = ends.a.sge(0, 4);
    ibv_send_wr request{};
    request.sg_list = &place;
    request.num_sge = 1;
    request.opcode = IBV_WR_SEND;
    request.send_flags = IBV_SEND_SIGNALED;
    request.wr.ud = {
        .ah = ends.a.handle_to(ends.b.gid()), .remote_qpn = ends.b.qp->qp_num, .remote_qkey = qkey};
    assert_int_equal(ends.a.post_send(request), 0);
    poller.join();
    assert_int_equal(completions[0].opcode, IBV_WC_SEND);
    assert_int_equal(completions[1].opcode, IBV_WC_RECV);
}

}  // namespace

// In place of the C library's.
ssize_t sendmsg(int fd, const msghdr *message, int flags) {
    const ssize_t sent = syscall(SYS_sendmsg, fd, message, flags);
    if (is_there.exchange(false)) {
        behind_the_next_message();
    }
    return sent;
}

int main() {
    const CMUnitTest tests[] = {
        fixture_test(a_message_and_its_answer),
        cmocka_unit_test(over_ipv6),
        fixture_test(a_queue_pair_sends_to_itself),
        fixture_test(the_number_has_the_port),
        fixture_test(sizes_from_nothing_to_the_mtu),
        fixture_test(scatter_and_gather),
        fixture_test(what_is_dropped),
        fixture_test(the_queue_pairs_own_qkey),
        cmocka_unit_test(the_states),
        fixture_test(an_error_flushes_and_a_reset_forgets),
        fixture_test(bad_memory_of_a_send),
        fixture_test(an_overrun_of_the_send_side),
        fixture_test(bad_memory_of_a_receive),
        fixture_test(requests_prepared_one_by_one),
        fixture_test(events_and_full_queues),
        fixture_test(what_cannot_be_sent),
        fixture_test(address_handles_that_are_none),
        fixture_test(members_of_a_group),
        fixture_test(a_member_goes),
        fixture_test(many_threads_send),
        fixture_test(groups_that_are_none),
        fixture_test(any_byte_may_be_wrong),
        fixture_test(an_answer_completes_behind_its_message),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
