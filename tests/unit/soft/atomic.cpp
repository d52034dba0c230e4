// SPDX-License-Identifier: BSD-3-Clause
// Atomic operations and sends with invalidate, byte by byte, against a peer that is nothing but a TCP socket.
#include <cstring>

#include "soft/wire/rdmap.hpp"

// Last, as it wants.
#include "device.hpp"

namespace {

using namespace soft::wire;
using test::assert_same_bytes;
using test::Bytes;
using test::Device;
using test::Ends;
using test::fpdu;

const MpaFrame soft_device{.soft_operations = true, .ird = 4, .ord = 4};

std::uint64_t word(Device &device, std::size_t offset) {
    std::uint64_t value = 0;
    std::memcpy(&value, device.at(offset), sizeof(value));
    return value;
}

// Each answer is on queue 3, in order, with its request's identifier; of 64 bits only what the masks say is
// touched.
void answers_a_request(void **state) {
    auto &[device, peer, other] = *static_cast<Ends *>(*state);
    rdma_cm_id *const id = device.establish(peer, soft_device);
    AtomicRequest request{.operation = AtomicOperation::CompareSwap,
                          .identifier = 0xa1b2c3d4,
                          .stag = device.mr->rkey,
                          .offset = device.address(64),
                          .add_swap = 0xaaaa'bbbb'cccc'dddd,
                          .add_swap_mask = 0x0000'0000'ffff'ffff,
                          .compare = 0x1111'0000'0000'0000,
                          .compare_mask = 0xffff'0000'0000'0000};
    const std::uint64_t before = 0x1111'2222'3333'4444;
    std::memcpy(device.at(64), &before, sizeof(before));
    peer.send(fpdu({.opcode = Opcode::AtomicRequest, .msn = 1}, encode(request)));
    request.operation = AtomicOperation::FetchAdd;
    request.identifier = 7;
    request.add_swap = 1;
    request.add_swap_mask = 0;
    peer.send(fpdu({.opcode = Opcode::AtomicRequest, .msn = 2}, encode(request)));
    const std::uint64_t swapped = 0x1111'2222'cccc'dddd;
    device.work_until([&] { return word(device, 64) == swapped + 1; });
    for (std::uint32_t msn = 1; msn <= 2; ++msn) {
        const test::Fpdu answer = peer.receive_fpdu();
        assert_true(answer.segment.opcode == Opcode::AtomicResponse);
        assert_true(answer.segment.queue == Queue::Response);
        assert_true(answer.segment.last);
        assert_int_equal(answer.segment.msn, msn);
        assert_int_equal(answer.segment.offset, 0);
        assert_same_bytes(answer.payload, encode(AtomicResponse{.identifier = msn == 1 ? 0xa1b2c3d4 : 7,
                                                                .original = msn == 1 ? before : swapped}));
    }
    device.close(id);
}

void post_atomic(Device &device, rdma_cm_id *id, ibv_wr_opcode opcode, std::uint64_t wr_id) {
    ibv_sge sink = device.sge(128, 8);
    ibv_send_wr request{};
    request.wr_id = wr_id;
    request.sg_list = &sink;
    request.num_sge = 1;
    request.opcode = opcode;
    request.send_flags = IBV_SEND_SIGNALED;
    request.wr.atomic = {.remote_addr = 0x1020304050607080, .compare_add = 5, .swap = 9, .rkey = 0x01020304};
    ibv_send_wr *bad = nullptr;
    assert_int_equal(ibv_post_send(id->qp, &request, &bad), 0);
}

void asks_byte_by_byte(void **state) {
    auto &[device, peer, other] = *static_cast<Ends *>(*state);
    rdma_cm_id *const id = device.establish(peer, soft_device);
    std::uint32_t msn = 0;
    for (const auto opcode : {IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP}) {
        post_atomic(device, id, opcode, 1);
        const test::Fpdu asked = peer.receive_fpdu();
        assert_true(asked.segment.opcode == Opcode::AtomicRequest);
        assert_true(asked.segment.queue == Queue::Request);
        assert_int_equal(asked.segment.msn, ++msn);
        const auto request = decode_atomic_request(asked.payload);
        const bool adds = opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
        assert_true(request.has_value());
        assert_true(request->operation == (adds ? AtomicOperation::FetchAdd : AtomicOperation::CompareSwap));
        assert_int_equal(request->stag, 0x01020304);
        assert_int_equal(request->offset, 0x1020304050607080);
        assert_int_equal(request->add_swap, adds ? 5 : 9);
        assert_int_equal(request->add_swap_mask, adds ? 0 : UINT64_MAX);
        assert_int_equal(request->compare, adds ? 0 : 5);
        assert_int_equal(request->compare_mask, adds ? 0 : UINT64_MAX);
        // The answer is a number, and comes into memory as this machine has numbers.
        peer.send(fpdu({.opcode = Opcode::AtomicResponse, .msn = msn},
                       encode(AtomicResponse{.identifier = request->identifier, .original = 1000 + msn})));
        device.expect_completion(1);
        assert_int_equal(word(device, 128), 1000 + msn);
    }
    // Another's identifier.
    post_atomic(device, id, IBV_WR_ATOMIC_FETCH_AND_ADD, 2);
    const auto request = decode_atomic_request(peer.receive_fpdu().payload);
    peer.send(fpdu({.opcode = Opcode::AtomicResponse, .msn = ++msn},
                   encode(AtomicResponse{.identifier = request->identifier + 1, .original = 1})));
    device.expect_completion(2, IBV_WC_WR_FLUSH_ERR);
    assert_true(decode_terminate(peer.receive_fpdu().payload).value() == terminate::untagged_msn);
    device.close(id);
}

// RFC 5040 has it: any peer may, and each segment names the key.
void invalidates_byte_by_byte(void **state) {
    auto &[device, peer, other] = *static_cast<Ends *>(*state);
    rdma_cm_id *const id = device.establish(peer, {});
    ibv_sge source = device.sge(0, 100);
    ibv_send_wr send{};
    send.sg_list = &source;
    send.num_sge = 1;
    send.opcode = IBV_WR_SEND_WITH_INV;
    send.invalidate_rkey = 0x01020304;
    ibv_send_wr *bad = nullptr;
    std::uint32_t msn = 0;
    for (const unsigned flags : {0U, unsigned{IBV_SEND_SOLICITED}}) {
        send.send_flags = flags;
        assert_int_equal(ibv_post_send(id->qp, &send, &bad), 0);
        const test::Fpdu sent = peer.receive_fpdu();
        assert_true(sent.segment.opcode ==
                    (flags == 0 ? Opcode::SendInvalidate : Opcode::SendSolicitedInvalidate));
        assert_int_equal(sent.segment.stag, 0x01020304);
        assert_int_equal(sent.segment.msn, ++msn);
    }
    device.post_receive(id, 5, 1024, 64);
    peer.send(
        fpdu({.opcode = Opcode::SendInvalidate, .last = false, .stag = device.mr->rkey, .msn = 1}, Bytes(8)));
    peer.send(
        fpdu({.opcode = Opcode::SendInvalidate, .stag = device.mr->rkey, .offset = 8, .msn = 1}, Bytes(8)));
    const ibv_wc received = device.next_completion();
    assert_int_equal(received.wr_id, 5);
    assert_int_equal(received.byte_len, 16);
    assert_int_equal(received.wc_flags, IBV_WC_WITH_INV);
    assert_int_equal(received.invalidated_rkey, device.mr->rkey);
    peer.send(fpdu({.opcode = Opcode::Write, .stag = device.mr->rkey, .offset = device.address()}, Bytes(8)));
    assert_true(decode_terminate(peer.receive_fpdu().payload).value() == terminate::tagged_invalid_stag);
    device.close(id);
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {test_of_ends(answers_a_request), test_of_ends(asks_byte_by_byte),
                                test_of_ends(invalidates_byte_by_byte)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
