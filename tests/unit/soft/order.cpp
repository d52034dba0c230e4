// SPDX-License-Identifier: BSD-3-Clause
// RFC 5040 section 5.5 and RFC 7306 section 6.4 define an order, and a peer sees whether the device keeps it.
// stream.cpp tests the order of answers, and atomic.cpp that of atomic operations.
#include <sys/mman.h>

#include "soft/wire/rdmap.hpp"

// This comes last, because it asserts.
#include "device.hpp"

namespace {

using namespace soft::wire;
using test::assert_same_bytes;
using test::bytes;
using test::Bytes;
using test::Device;
using test::Ends;
using test::Fpdu;
using test::fpdu;
using test::from_a_soft_device;
using test::joined;
using test::pattern;
using test::plain;

void rfc5040_5_5_messages_must_be_sent_in_the_order_they_were_posted(Ends &ends) {
    auto &[device, peer, other] = ends;
    rdma_cm_id *const id = device.establish(peer, plain);
    constexpr std::uint64_t to = 0x7000;
    const struct {
        ibv_wr_opcode posted;
        Opcode sent;
    } cases[] = {{IBV_WR_RDMA_WRITE, Opcode::Write},
                 {IBV_WR_RDMA_READ, Opcode::ReadRequest},
                 {IBV_WR_SEND, Opcode::Send},
                 {IBV_WR_SEND, Opcode::Send},
                 {IBV_WR_RDMA_READ, Opcode::ReadRequest},
                 {IBV_WR_RDMA_WRITE, Opcode::Write}};
    for (const auto &one : cases) {
        device.post(id, one.posted, 1, 0, 8, to, 0x99);
    }
    for (const auto &one : cases) {
        assert_true(peer.receive_fpdu().segment.opcode == one.sent);
    }
}

// The requests that were posted after the read do not complete before it
// either, though the peer has them already.
void rfc5040_5_5_a_read_must_not_complete_before_its_response(Ends &ends) {
    auto &[device, peer, other] = ends;
    rdma_cm_id *const id = device.establish(peer, plain);
    device.post(id, IBV_WR_RDMA_READ, 1, 1000, 16, 0x7000, 0x99);
    device.post(id, IBV_WR_RDMA_WRITE, 2, 0, 8, 0x7000, 0x99);
    device.post(id, IBV_WR_SEND, 3, 0, 8);
    const auto asked = decode_read_request(peer.receive_fpdu().payload);
    assert_true(peer.receive_fpdu().segment.opcode == Opcode::Write);
    assert_true(peer.receive_fpdu().segment.opcode == Opcode::Send);
    assert_false(device.has_completion());
    const Bytes read = pattern(16, 3);
    Segment response{.opcode = Opcode::ReadResponse,
                     .last = false,
                     .stag = asked.value().sink_stag,
                     .offset = asked->sink_offset};
    peer.send(fpdu(response, std::span{read}.first(8)));
    assert_false(device.has_completion());
    response.last = true;
    response.offset += 8;
    peer.send(fpdu(response, std::span{read}.subspan(8)));
    for (std::uint64_t wr_id = 1; wr_id <= 3; ++wr_id) {
        device.expect_completion(wr_id);
    }
    assert_same_bytes({device.at(1000), 16}, read);
}

// Asserts that when a message is delivered, earlier writes are placed. `message`
// makes one with the number that it is given.
template <typename Message>
void expect_placed_before(Ends &ends, const MpaFrame &request, ibv_wc_opcode opcode, Message message) {
    auto &[device, peer, other] = ends;
    rdma_cm_id *const id = device.establish(peer, request);
    for (std::uint32_t msn = 1; msn <= 50; ++msn) {
        const Bytes written = pattern(std::size_t{msn} * 977, msn);
        const Segment write{.opcode = Opcode::Write, .stag = device.mr->rkey, .offset = device.address(64)};
        device.post_receive(id, msn, 0, 8);
        peer.send(joined(fpdu(write, written), message(msn)));
        const ibv_wc delivered = device.next_completion();
        assert_int_equal(delivered.wr_id, msn);
        assert_int_equal(delivered.opcode, opcode);
        assert_same_bytes({device.at(64), written.size()}, written);
    }
}

void rfc5040_5_5_a_send_must_be_delivered_after_what_was_sent_before(Ends &ends) {
    expect_placed_before(ends, plain, IBV_WC_RECV, [](std::uint32_t msn) {
        return fpdu({.opcode = Opcode::Send, .msn = msn}, Bytes(8));
    });
}

void rfc7306_6_4_immediate_data_must_be_delivered_after_the_write(Ends &ends) {
    expect_placed_before(ends, from_a_soft_device, IBV_WC_RECV_RDMA_WITH_IMM, [](std::uint32_t msn) {
        return fpdu({.opcode = Opcode::Immediate, .msn = msn}, bytes({1, 2, 3, 4, 0, 0, 0, 0}));
    });
}

// The peer counts its message as done when it has the answers to the reads before it. TCP has no room for all
// of these when the program has the message and answers it.
void a_message_follows_the_answers_that_were_owed_before_it(Ends &ends) {
    auto &[device, peer, other] = ends;
    constexpr std::uint32_t read_bytes = 32 << 20;
    constexpr std::uint32_t reads = 3;
    void *const memory =
        mmap(nullptr, read_bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(memory != MAP_FAILED);
    ibv_mr *const region = softrdma_ibv_reg_mr(device.mr->pd, memory, read_bytes, IBV_ACCESS_REMOTE_READ);
    assert_non_null(region);
    rdma_cm_id *const id = device.establish(peer, from_a_soft_device);
    device.post_receive(id, 1, 0, 8);
    for (std::uint32_t msn = 1; msn <= reads; ++msn) {
        peer.send(fpdu({.opcode = Opcode::ReadRequest, .msn = msn},
                       encode(ReadRequest{.sink_stag = msn,
                                          .sink_offset = 0,
                                          .size = read_bytes,
                                          .source_stag = region->rkey,
                                          .source_offset = reinterpret_cast<std::uintptr_t>(memory)})));
    }
    peer.send(fpdu({.opcode = Opcode::Send, .msn = 1}, Bytes(8)));
    device.expect_completion(1);
    device.post(id, IBV_WR_SEND, 2, 0, 8);
    for (std::uint32_t msn = 1; msn <= reads; ++msn) {
        Segment part{.last = false};
        while (!part.last) {
            part = peer.receive_fpdu().segment;
            assert_true(part.opcode == Opcode::ReadResponse);
            assert_int_equal(part.stag, msn);
        }
    }
    assert_true(peer.receive_fpdu().segment.opcode == Opcode::Send);
    device.expect_completion(2);
    device.close(id);
    assert_int_equal(softrdma_ibv_dereg_mr(region), 0);
    assert_int_equal(munmap(memory, read_bytes), 0);
}

// The device checks all memory of a request before it sends any of it, and none before the request's turn.
// The last element here is far after the first segment.
void a_refused_request_fails_behind_those_before_it(Ends &ends) {
    auto &[device, peer, other] = ends;
    rdma_cm_id *const id = device.establish(peer, plain);
    ibv_sge small = device.sge(0, 8);
    ibv_sge large[] = {device.sge(0, Device::memory_bytes), device.sge(0, 8)};
    large[1].lkey ^= 1;
    ibv_send_wr requests[2]{};
    requests[0].next = &requests[1];
    requests[0].sg_list = &small;
    requests[0].num_sge = 1;
    requests[1].sg_list = large;
    requests[1].num_sge = 2;
    for (ibv_send_wr &request : requests) {
        request.wr_id = static_cast<std::uint64_t>(&request - requests) + 1;
        request.opcode = IBV_WR_RDMA_WRITE;
        request.send_flags = IBV_SEND_SIGNALED;
    }
    ibv_send_wr *bad = nullptr;
    assert_int_equal(ibv_post_send(id->qp, requests, &bad), 0);
    device.expect_completion(1);
    device.expect_completion(2, IBV_WC_LOC_PROT_ERR);
    assert_same_bytes(peer.receive_fpdu().payload, {device.at(0), 8});
    assert_int_equal(peer.receive_rest().size(), 0);
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {fixture_test(rfc5040_5_5_messages_must_be_sent_in_the_order_they_were_posted),
                                fixture_test(rfc5040_5_5_a_read_must_not_complete_before_its_response),
                                fixture_test(rfc5040_5_5_a_send_must_be_delivered_after_what_was_sent_before),
                                fixture_test(rfc7306_6_4_immediate_data_must_be_delivered_after_the_write),
                                fixture_test(a_message_follows_the_answers_that_were_owed_before_it),
                                fixture_test(a_refused_request_fails_behind_those_before_it)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
