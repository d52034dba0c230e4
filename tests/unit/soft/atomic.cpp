// SPDX-License-Identifier: BSD-3-Clause
// Tests atomic operations and sends with invalidate, byte by byte, against a
// peer that is nothing but a TCP socket.
#include <atomic>
#include <cstring>

#include "soft/wire/rdmap.hpp"

// This comes last, because it asserts.
#include "device.hpp"

namespace {

using namespace soft::wire;
using test::assert_same_bytes;
using test::Bytes;
using test::Device;
using test::Ends;
using test::fpdu;
using test::from_a_soft_device;
using test::joined;

// Reads the word atomically, because the device may be changing it.
std::uint64_t word(Device &device, std::size_t offset) {
    const std::atomic_ref target{*reinterpret_cast<std::uint64_t *>(device.at(offset))};
    return target.load(std::memory_order_acquire);
}

// Each answer is on queue 3, in order, with its request's identifier. The operation changes only the bits
// that the masks select.
void rfc7306_5_2_2_a_response_must_carry_its_requests_identifier(Ends &ends) {
    auto &[device, peer, other] = ends;
    rdma_cm_id *const id = device.establish(peer, from_a_soft_device);
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

std::uint32_t take_identifier(test::Peer &peer) {
    const test::Fpdu asked = peer.receive_fpdu();
    assert_true(asked.segment.opcode == Opcode::AtomicRequest);
    return decode_atomic_request(asked.payload).value().identifier;
}

Bytes response(std::uint32_t msn, std::uint32_t identifier, std::uint64_t original) {
    return fpdu({.opcode = Opcode::AtomicResponse, .msn = msn},
                encode(AtomicResponse{.identifier = identifier, .original = original}));
}

// Atomic requests are numbered together with reads. Answers have numbers of their own.
void rfc7306_5_2_1_a_request_must_be_on_the_queue_of_reads(Ends &ends) {
    auto &[device, peer, other] = ends;
    rdma_cm_id *const id = device.establish(peer, from_a_soft_device);
    device.post(id, IBV_WR_RDMA_READ, 3, 0, 0, 0x1000, 0x77);
    const test::Fpdu first = peer.receive_fpdu();
    assert_int_equal(first.segment.msn, 1);
    const auto read = decode_read_request(first.payload);
    peer.send(fpdu(
        {.opcode = Opcode::ReadResponse, .stag = read.value().sink_stag, .offset = read->sink_offset}, {}));
    device.expect_completion(3);
    std::uint32_t answers = 0;
    for (const auto opcode : {IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP}) {
        post_atomic(device, id, opcode, 1);
        const test::Fpdu asked = peer.receive_fpdu();
        assert_true(asked.segment.opcode == Opcode::AtomicRequest);
        assert_true(asked.segment.queue == Queue::Request);
        assert_int_equal(asked.segment.msn, ++answers + 1);
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
        // The answer is a number, and the device stores it in this machine's byte order.
        peer.send(response(answers, request->identifier, 1000 + answers));
        device.expect_completion(1);
        assert_int_equal(word(device, 128), 1000 + answers);
    }
    device.close(id);
}

void rfc7306_5_2_2_a_response_must_be_to_the_oldest_request(Ends &ends) {
    auto &[device, peer, other] = ends;
    rdma_cm_id *const id = device.establish(peer, from_a_soft_device);
    post_atomic(device, id, IBV_WR_ATOMIC_FETCH_AND_ADD, 2);
    peer.send(response(1, take_identifier(peer) + 1, 1));
    device.expect_completion(2, IBV_WC_WR_FLUSH_ERR);
    assert_true(decode_terminate(peer.receive_fpdu().payload).value() == terminate::untagged_msn);
    device.close(id);
}

// The requests that were posted after the atomic operation do not complete before it either.
void rfc7306_5_4_an_atomic_must_not_complete_before_its_response(Ends &ends) {
    auto &[device, peer, other] = ends;
    rdma_cm_id *const id = device.establish(peer, from_a_soft_device);
    post_atomic(device, id, IBV_WR_ATOMIC_FETCH_AND_ADD, 1);
    device.post(id, IBV_WR_RDMA_WRITE, 2, 0, 8, 0x7000, 0x99);
    const std::uint32_t identifier = take_identifier(peer);
    assert_true(peer.receive_fpdu().segment.opcode == Opcode::Write);
    assert_false(device.has_completion());
    peer.send(response(1, identifier, 77));
    device.expect_completion(1);
    device.expect_completion(2);
    assert_int_equal(word(device, 128), 77);
    device.close(id);
}

// Returns a peer's request to add 1 to the word at 64, and to read it.
Bytes add_one(const Device &device, std::uint32_t msn) {
    return fpdu(
        {.opcode = Opcode::AtomicRequest, .msn = msn},
        encode(AtomicRequest{
            .identifier = msn + 100, .stag = device.mr->rkey, .offset = device.address(64), .add_swap = 1}));
}
Bytes read_it(const Device &device, std::uint32_t msn) {
    return fpdu({.opcode = Opcode::ReadRequest, .msn = msn},
                encode(ReadRequest{.sink_stag = 1,
                                   .sink_offset = 2,
                                   .size = 8,
                                   .source_stag = device.mr->rkey,
                                   .source_offset = device.address(64)}));
}

// A read sees the atomic operations before it, and may see those after it.
void rfc7306_5_4_requests_must_be_executed_and_answered_in_order(Ends &ends) {
    auto &[device, peer, other] = ends;
    rdma_cm_id *const id = device.establish(peer, from_a_soft_device);
    const std::uint64_t before = word(device, 64);
    std::uint32_t msn = 0;
    std::uint32_t answers = 0;
    for (std::uint64_t round = 0; round < 20; ++round) {
        peer.send(joined(add_one(device, msn + 1), read_it(device, msn + 2), add_one(device, msn + 3),
                         read_it(device, msn + 4)));
        for (std::uint64_t value = 2 * round; value < 2 * round + 2; ++value) {
            const test::Fpdu added = peer.receive_fpdu();
            assert_true(added.segment.opcode == Opcode::AtomicResponse);
            assert_int_equal(added.segment.msn, ++answers);
            assert_same_bytes(added.payload,
                              encode(AtomicResponse{.identifier = ++msn + 100, .original = before + value}));
            const test::Fpdu seen = peer.receive_fpdu();
            assert_true(seen.segment.opcode == Opcode::ReadResponse);
            std::uint64_t now = 0;
            assert_int_equal(seen.payload.size(), sizeof(now));
            std::memcpy(&now, seen.payload.data(), sizeof(now));
            assert_in_range(now - before, value + 1, 2 * round + 2);
            ++msn;
        }
    }
    device.close(id);
}

void rfc7306_5_4_an_atomic_must_follow_what_was_sent_before(Ends &ends) {
    auto &[device, peer, other] = ends;
    rdma_cm_id *const id = device.establish(peer, from_a_soft_device);
    for (std::uint32_t msn = 1; msn <= 20; ++msn) {
        const std::uint64_t written = 0x0101'0101'0101'0101 * msn;
        const Segment write{.opcode = Opcode::Write, .stag = device.mr->rkey, .offset = device.address(64)};
        peer.send(joined(fpdu(write, std::as_bytes(std::span{&written, 1})), add_one(device, msn)));
        assert_same_bytes(peer.receive_fpdu().payload,
                          encode(AtomicResponse{.identifier = msn + 100, .original = written}));
    }
    device.close(id);
}

void rfc7306_5_2_1_requests_must_be_sent_in_the_order_they_were_posted(Ends &ends) {
    auto &[device, peer, other] = ends;
    rdma_cm_id *const id = device.establish(peer, from_a_soft_device);
    device.post(id, IBV_WR_RDMA_WRITE_WITH_IMM, 1, 0, 8, 0x7000, 0x99);
    post_atomic(device, id, IBV_WR_ATOMIC_FETCH_AND_ADD, 2);
    device.post(id, IBV_WR_SEND, 3, 0, 8);
    device.post(id, IBV_WR_RDMA_READ, 4, 0, 8, 0x7000, 0x99);
    post_atomic(device, id, IBV_WR_ATOMIC_CMP_AND_SWP, 5);
    device.post(id, IBV_WR_RDMA_WRITE, 6, 0, 8, 0x7000, 0x99);
    for (const Opcode opcode : {Opcode::Write, Opcode::Immediate, Opcode::AtomicRequest, Opcode::Send,
                                Opcode::ReadRequest, Opcode::AtomicRequest, Opcode::Write}) {
        assert_true(peer.receive_fpdu().segment.opcode == opcode);
    }
    device.close(id);
}

// RFC 5040 allows any peer to invalidate a key, and each segment names the key.
void invalidates_byte_by_byte(Ends &ends) {
    auto &[device, peer, other] = ends;
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

// The segments come at once. The region of the writes is held meanwhile, but not for those behind the
// message.
void invalidates_between_writes(Ends &ends) {
    auto &[device, peer, other] = ends;
    rdma_cm_id *const id = device.establish(peer, {});
    device.post_receive(id, 5, 1024, 64);
    const auto write = [&](std::size_t at, unsigned seed) {
        return fpdu({.opcode = Opcode::Write, .stag = device.mr->rkey, .offset = device.address(at)},
                    test::pattern(8, seed));
    };
    device.fill(1);
    const Bytes before{device.at(16), device.at(24)};
    peer.send(test::joined(
        write(0, 2), write(8, 3),
        fpdu({.opcode = Opcode::SendInvalidate, .stag = device.mr->rkey, .msn = 1}, Bytes(8)), write(16, 4)));
    const ibv_wc received = device.next_completion();
    assert_int_equal(received.wr_id, 5);
    assert_int_equal(received.invalidated_rkey, device.mr->rkey);
    test::assert_same_bytes({device.at(0), device.at(8)}, test::pattern(8, 2));
    test::assert_same_bytes({device.at(8), device.at(16)}, test::pattern(8, 3));
    assert_true(decode_terminate(peer.receive_fpdu().payload).value() == terminate::tagged_invalid_stag);
    test::assert_same_bytes({device.at(16), device.at(24)}, before);
    device.close(id);
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        fixture_test(rfc7306_5_2_1_a_request_must_be_on_the_queue_of_reads),
        fixture_test(rfc7306_5_2_2_a_response_must_carry_its_requests_identifier),
        fixture_test(rfc7306_5_2_2_a_response_must_be_to_the_oldest_request),
        fixture_test(rfc7306_5_4_an_atomic_must_follow_what_was_sent_before),
        fixture_test(rfc7306_5_4_requests_must_be_executed_and_answered_in_order),
        fixture_test(rfc7306_5_4_an_atomic_must_not_complete_before_its_response),
        fixture_test(rfc7306_5_2_1_requests_must_be_sent_in_the_order_they_were_posted),
        fixture_test(invalidates_byte_by_byte),
        fixture_test(invalidates_between_writes)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
