// SPDX-License-Identifier: BSD-3-Clause
// RFC 5040 and RFC 5041 have rules for whole messages, and a peer sees whether the device keeps them: how the
// device numbers its own messages, how it treats those of the peer, and how both behave after an error.
#include "soft/wire/rdmap.hpp"

// This comes last, because it asserts.
#include "device.hpp"

namespace {

using namespace soft::wire;
using test::assert_same_bytes;
using test::Bytes;
using test::bytes;
using test::Device;
using test::Ends;
using test::Fpdu;
using test::fpdu;
using test::joined;
using test::pattern;
using test::plain;

void rfc5041_4_3_msns_must_begin_at_one_and_rise_by_one(Ends &ends) {
    auto &[device, peer, other] = ends;
    rdma_cm_id *const id = device.establish(peer, plain);
    for (std::uint32_t msn = 1; msn <= 4; ++msn) {
        device.post(id, IBV_WR_SEND, 1, 0, 8 * (msn - 1));
        device.post(id, IBV_WR_RDMA_READ, 2, 64 * msn, 8, 0x1000, 0x77);
        const Fpdu send = peer.receive_fpdu();
        assert_true(send.segment.opcode == Opcode::Send);
        assert_int_equal(send.segment.msn, msn);
        const Fpdu read = peer.receive_fpdu();
        assert_true(read.segment.opcode == Opcode::ReadRequest);
        assert_int_equal(read.segment.msn, msn);  // each queue counts for itself
    }
}

// Every segment of a message has the message's number and its own offset.
// Only the last one is marked as the last.
void rfc5041_5_2_each_segment_must_say_where_it_belongs(Ends &ends) {
    auto &[device, peer, other] = ends;
    constexpr int short_segments = 536;
    constexpr std::size_t bytes = 3000;
    peer.connect(device.port(), short_segments);
    peer.send_frame(plain);
    rdma_cm_id *const id = device.take_request();
    device.accept(id);
    (void)peer.receive_frame(MpaRole::Reply);
    peer.send(test::ready_to_receive());
    device.post(id, IBV_WR_RDMA_WRITE, 1, 0, bytes, 0x7000, 0x99);
    device.post(id, IBV_WR_SEND, 2, 0, bytes);
    for (const Opcode opcode : {Opcode::Write, Opcode::Send}) {
        std::size_t done = 0;
        while (done < bytes) {
            const Fpdu part = peer.receive_fpdu();
            assert_true(part.segment.opcode == opcode);
            assert_int_equal(part.segment.stag, opcode == Opcode::Write ? 0x99 : 0);
            assert_int_equal(part.segment.msn, opcode == Opcode::Write ? 0 : 1);
            assert_int_equal(part.segment.offset, (opcode == Opcode::Write ? 0x7000 : 0) + done);
            assert_same_bytes(part.payload, {device.at(done), part.payload.size()});
            done += part.payload.size();
            assert_int_equal(part.segment.last, done == bytes);
        }
    }
}

void rfc5040_5_1_a_write_must_not_be_delivered(Ends &ends) {
    auto &[device, peer, other] = ends;
    rdma_cm_id *const id = device.establish(peer, plain);
    device.post_receive(id, 1, 0, 8);
    const Segment write{.opcode = Opcode::Write, .stag = device.mr->rkey, .offset = device.address(64)};
    peer.send(joined(fpdu(write, pattern(16, 3)), fpdu({.opcode = Opcode::Send, .msn = 1}, pattern(3, 4))));
    const ibv_wc first = device.next_completion();
    assert_int_equal(first.opcode, IBV_WC_RECV);
    assert_int_equal(first.byte_len, 3);
    assert_same_bytes({device.at(64), 16}, pattern(16, 3));
}

void rfc5040_5_3_an_empty_send_must_consume_a_buffer(Ends &ends) {
    auto &[device, peer, other] = ends;
    rdma_cm_id *const id = device.establish(peer, plain);
    device.post_receive(id, 1, 0, 8);
    device.post_receive(id, 2, 8, 8);
    peer.send(joined(fpdu({.opcode = Opcode::Send, .msn = 1}, {}),
                     fpdu({.opcode = Opcode::Send, .msn = 2}, pattern(8, 1))));
    const ibv_wc empty = device.next_completion();
    assert_int_equal(empty.wr_id, 1);
    assert_int_equal(empty.byte_len, 0);
    device.expect_completion(2);
    assert_same_bytes({device.at(8), 8}, pattern(8, 1));
}

// No segment behind a broken rule has an effect, even when it is right. The TERMINATE tells the first error.
void rfc5041_7_1_what_follows_an_error_must_be_dropped(Ends &ends) {
    auto &[device, peer, other] = ends;
    rdma_cm_id *const id = device.establish(peer, plain);
    device.fill(5);
    device.post_receive(id, 7, 0, 8);
    const Segment good{.opcode = Opcode::Write, .stag = device.mr->rkey, .offset = device.address(64)};
    Segment bad = good;
    bad.stag ^= 1;
    peer.send(joined(fpdu(bad, Bytes(8)), fpdu(good, Bytes(8)),
                     fpdu({.opcode = Opcode::Send, .msn = 1}, Bytes(8)),
                     fpdu({.opcode = Opcode::Send, .msn = 9}, Bytes(8))));
    const Fpdu terminate = peer.receive_fpdu();
    assert_true(terminate.segment.opcode == Opcode::Terminate);
    assert_true(decode_terminate(terminate.payload).value() == terminate::tagged_invalid_stag);
    assert_int_equal(peer.receive_rest().size(), 0);
    device.expect_completion(7, IBV_WC_WR_FLUSH_ERR);
    assert_same_bytes({device.at(0), Device::memory_bytes}, pattern(Device::memory_bytes, 5));
}

// The device sends neither the answers that it owes nor the requests that the program posts.
void rfc5040_5_4_nothing_must_follow_a_terminate(Ends &ends) {
    auto &[device, peer, other] = ends;
    rdma_cm_id *const id = device.establish(peer, plain);
    const ReadRequest read{.sink_stag = 1,
                           .sink_offset = 2,
                           .size = 8,
                           .source_stag = device.mr->rkey,
                           .source_offset = device.address()};
    peer.send(joined(fpdu({.opcode = Opcode::ReadRequest, .msn = 1}, encode(read)),
                     fpdu({.opcode = Opcode::ReadRequest, .msn = 3}, encode(read))));
    (void)device.wait_for(RDMA_CM_EVENT_DISCONNECTED, id);
    device.post(id, IBV_WR_SEND, 1, 0, 8);
    device.expect_completion(1, IBV_WC_WR_FLUSH_ERR);
    Fpdu last = peer.receive_fpdu();
    if (last.segment.opcode == Opcode::ReadResponse) {
        last = peer.receive_fpdu();
    }
    assert_true(last.segment.opcode == Opcode::Terminate);
    assert_int_equal(peer.receive_rest().size(), 0);
}

void rfc5040_5_4_a_terminate_must_reach_the_program(Ends &ends) {
    auto &[device, peer, other] = ends;
    const struct {
        TerminateCode code;
        ibv_wc_status status;
    } cases[] = {{terminate::access, IBV_WC_REM_ACCESS_ERR},
                 {terminate::tagged_bounds, IBV_WC_REM_ACCESS_ERR},
                 {terminate::untagged_no_buffer, IBV_WC_RNR_RETRY_EXC_ERR},
                 {terminate::untagged_too_long, IBV_WC_REM_INV_REQ_ERR},
                 {terminate::unexpected_opcode, IBV_WC_REM_OP_ERR},
                 {{15, 15, 255}, IBV_WC_REM_OP_ERR}};
    for (const auto &one : cases) {
        rdma_cm_id *const id = device.establish(peer, plain);
        device.post(id, IBV_WR_RDMA_READ, 1, 0, 8, 0x1000, 0x77);
        device.post(id, IBV_WR_SEND, 2, 0, 8);
        device.post(id, IBV_WR_RDMA_READ, 3, 8, 8, 0x1000, 0x77);
        (void)peer.receive_fpdu();
        peer.send(fpdu({.opcode = Opcode::Terminate, .msn = 1}, encode(one.code)));
        device.expect_completion(1, one.status);
        device.expect_completion(2, IBV_WC_WR_FLUSH_ERR);
        device.expect_completion(3, IBV_WC_WR_FLUSH_ERR);
        (void)device.wait_for(RDMA_CM_EVENT_DISCONNECTED, id);
        device.close(id);
    }
}

// A TERMINATE comes once, on a queue of its own. It quotes the length and the header of the wrong segment,
// and the whole of a read request.
void rfc5040_4_8_a_terminate_must_quote_what_was_wrong(Ends &ends) {
    auto &[device, peer, other] = ends;
    const ReadRequest read{.sink_stag = 1, .sink_offset = 2, .size = 8, .source_stag = 0, .source_offset = 0};
    const struct {
        Bytes wrong;
        Bytes said;  // layer and type, code; which of length, header and request follow
        std::size_t quoted;
    } cases[] = {
        {fpdu({.opcode = Opcode::Write, .stag = 0x01020304}, Bytes(8)), bytes({0x11, 0x00, 0xc0, 0}), 16},
        {fpdu({.opcode = Opcode::Send, .msn = 9}, Bytes(8)), bytes({0x12, 0x03, 0xc0, 0}), 20},
        {fpdu({.opcode = Opcode::ReadRequest, .msn = 1}, encode(read)), bytes({0x01, 0x00, 0xe0, 0}), 48},
        {joined(bytes({0, 17, 0x41, 0x43}), Bytes(20)), bytes({0x20, 0x04, 0x00, 0}),
         0},  // no room for a header
    };
    for (const auto &[wrong, said, quoted] : cases) {
        rdma_cm_id *const id = device.establish(peer, plain);
        peer.send(wrong);
        const Fpdu terminate = peer.receive_fpdu();
        assert_true(terminate.segment.opcode == Opcode::Terminate);
        assert_true(terminate.segment.queue == Queue::Terminate);
        assert_true(terminate.segment.last);
        assert_int_equal(terminate.segment.msn, 1);
        assert_int_equal(terminate.segment.offset, 0);
        assert_same_bytes(terminate.payload, joined(said, Bytes(wrong.data(), wrong.data() + quoted)));
        device.close(id);
    }
}

void rfc5040_4_8_reserved_bits_must_not_be_checked(Ends &ends) {
    auto &[device, peer, other] = ends;
    rdma_cm_id *const id = device.establish(peer, plain);
    device.post(id, IBV_WR_RDMA_READ, 1, 0, 8, 0x1000, 0x77);
    (void)peer.receive_fpdu();
    peer.send(fpdu({.opcode = Opcode::Terminate, .msn = 1}, bytes({0x01, 0x02, 0x1f, 0xff})));
    device.expect_completion(1, IBV_WC_REM_ACCESS_ERR);
}

// A TERMINATE of either side ends TCP's stream in order, and bytes after it have no effect.
void rfc5040_7_a_terminate_must_end_the_stream(Ends &ends) {
    auto &[device, peer, other] = ends;
    const Segment write{.opcode = Opcode::Write, .stag = device.mr->rkey, .offset = device.address(64)};
    const struct {
        Bytes end;
        std::size_t answers;
    } cases[] = {{fpdu({.opcode = Opcode::Terminate, .msn = 1}, encode(terminate::access)), 0},
                 {fpdu({.opcode = Opcode::Send, .msn = 2}, Bytes(8)), 1}};
    for (const auto &[end, answers] : cases) {
        rdma_cm_id *const id = device.establish(peer, plain);
        device.fill(6);
        peer.send(joined(end, fpdu(write, Bytes(8))));
        for (std::size_t i = 0; i < answers; ++i) {
            assert_true(peer.receive_fpdu().segment.opcode == Opcode::Terminate);
        }
        assert_int_equal(peer.receive_rest().size(), 0);
        (void)device.wait_for(RDMA_CM_EVENT_DISCONNECTED, id);
        assert_same_bytes({device.at(0), Device::memory_bytes}, pattern(Device::memory_bytes, 6));
        device.close(id);
    }
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {fixture_test(rfc5041_4_3_msns_must_begin_at_one_and_rise_by_one),
                                fixture_test(rfc5041_5_2_each_segment_must_say_where_it_belongs),
                                fixture_test(rfc5040_5_1_a_write_must_not_be_delivered),
                                fixture_test(rfc5040_5_3_an_empty_send_must_consume_a_buffer),
                                fixture_test(rfc5041_7_1_what_follows_an_error_must_be_dropped),
                                fixture_test(rfc5040_5_4_nothing_must_follow_a_terminate),
                                fixture_test(rfc5040_5_4_a_terminate_must_reach_the_program),
                                fixture_test(rfc5040_4_8_a_terminate_must_quote_what_was_wrong),
                                fixture_test(rfc5040_4_8_reserved_bits_must_not_be_checked),
                                fixture_test(rfc5040_7_a_terminate_must_end_the_stream)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
