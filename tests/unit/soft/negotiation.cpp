// SPDX-License-Identifier: BSD-3-Clause
// RFC 6581 has two ends agree on depths and on the first FPDU, and
// tells how they part when they cannot agree.
#include "soft/ground/limits.hpp"
#include "soft/wire/rdmap.hpp"

// This comes last, because it asserts.
#include "device.hpp"

namespace {

using namespace soft::wire;
using test::assert_same_bytes;
using test::Bytes;
using test::Device;
using test::encoded;
using test::Ends;
using test::Frame;

// Has the device ask for a connection and get this reply.
rdma_cm_id *answered(Ends &ends, MpaFrame reply) {
    rdma_cm_id *const id = ends.device.connect(ends.peer.listen());
    ends.peer.accept();
    (void)ends.peer.receive_frame(MpaRole::Request);
    reply.role = MpaRole::Reply;
    ends.peer.send_frame(reply);
    return id;
}

// Asserts that the device does not continue, and reports the reason with one
// FPDU, the end of its stream, and an event.
void expect_terminate(Ends &ends, const MpaFrame &reply, const TerminateCode &code) {
    for (const bool crc : {false, true}) {
        MpaFrame with = reply;
        with.crc = crc;
        rdma_cm_id *const id = answered(ends, with);
        const test::Fpdu last = ends.peer.receive_fpdu();
        assert_true(last.segment.opcode == Opcode::Terminate);
        assert_int_equal(last.segment.msn, 1);
        assert_int_equal(last.checksum_is_right, crc);
        assert_same_bytes(last.payload, encode(code));
        assert_int_equal(ends.peer.receive_rest().size(), 0);
        assert_int_equal(ends.device.wait_for(RDMA_CM_EVENT_CONNECT_ERROR, id).status, -EPROTO);
        ends.device.close(id);
        ends.peer.close();
    }
}

void rfc6581_9_1_an_initiator_without_the_ird_must_terminate(Ends &ends) {
    for (const unsigned depth : {unsigned{soft::limits::max_rd_atomic} + 1, unsigned{mpa_max_depth} - 1}) {
        expect_terminate(ends, {.ird = 4, .ord = static_cast<std::uint16_t>(depth)},
                         terminate::insufficient_ird);
    }
}

void rfc6581_9_2_an_initiator_without_a_matching_rtr_must_terminate(Ends &ends) {
    expect_terminate(ends, {.peer_to_peer = true, .rtr_send = true, .rtr_read = true, .ird = 4, .ord = 4},
                     terminate::no_matching_rtr);
    expect_terminate(ends, {.peer_to_peer = true, .ird = 4, .ord = 4}, terminate::no_matching_rtr);
}

void rfc6581_9_1_an_initiator_must_leave_its_depths_at_all_ones(Ends &ends) {
    rdma_cm_id *const id = answered(ends, {.ird = mpa_max_depth, .ord = mpa_max_depth});
    const auto established = ends.device.wait_for(RDMA_CM_EVENT_ESTABLISHED, id);
    assert_int_equal(established.responder_resources, Device::depth);
    assert_int_equal(established.initiator_depth, Device::depth);
}

void rfc6581_9_1_an_initiator_must_raise_its_ird(Ends &ends) {
    rdma_cm_id *const id = answered(ends, {.ird = 1, .ord = Device::depth + 3});
    const auto established = ends.device.wait_for(RDMA_CM_EVENT_ESTABLISHED, id);
    assert_int_equal(established.responder_resources, Device::depth + 3);
    assert_int_equal(established.initiator_depth, 1);
}

Frame reply_to(Ends &ends, const MpaFrame &request) {
    ends.peer.connect(ends.device.port());
    ends.peer.send_frame(request);
    rdma_cm_id *const id = ends.device.take_request();
    ends.device.accept(id);
    Frame reply = ends.peer.receive_frame(MpaRole::Reply);
    ends.device.close(id);
    return reply;
}

void rfc6581_9_1_a_responder_must_answer_all_ones_with_all_ones(Ends &ends) {
    const Frame both = reply_to(ends, {.ird = mpa_max_depth, .ord = mpa_max_depth});
    assert_int_equal(both.mpa.ird, mpa_max_depth);
    assert_int_equal(both.mpa.ord, mpa_max_depth);
    const Frame inbound = reply_to(ends, {.ird = 2, .ord = mpa_max_depth});
    assert_int_equal(inbound.mpa.ird, mpa_max_depth);
    assert_int_equal(inbound.mpa.ord, 2);
}

void rfc6581_9_1_a_responder_must_set_its_ord_at_most_to_the_ird(Ends &ends) {
    for (const std::uint16_t ird : std::initializer_list<std::uint16_t>{0, 1, 4, 5, 200}) {
        assert_int_equal(reply_to(ends, {.ird = ird, .ord = 1}).mpa.ord,
                         std::min<unsigned>(ird, Device::depth));
    }
}

void rfc6581_9_1_depths_of_a_rejection_must_be_passed_on(Ends &ends) {
    rdma_cm_id *const id = answered(ends, {.reject = true, .ird = 3, .ord = 300});
    const auto rejected = ends.device.wait_for(RDMA_CM_EVENT_REJECTED, id);
    assert_int_equal(rejected.initiator_depth, 3);
    assert_int_equal(rejected.responder_resources, UINT8_MAX);
}

// An initiator may offer an empty send as RTR, which would cost a receive. The
// responder names the RTR that it takes instead.
void rfc6581_9_2_a_responder_must_name_an_rtr_that_it_takes(Ends &ends) {
    for (const bool send : {false, true}) {
        const Frame reply = reply_to(ends, {.peer_to_peer = true, .rtr_send = send});
        assert_true(reply.mpa.peer_to_peer && reply.mpa.rtr_write);
        assert_false(reply.mpa.rtr_send || reply.mpa.rtr_read);
    }
}

void rfc6581_9_2_a_responder_must_answer_in_the_initiators_model(Ends &ends) {
    auto &[device, peer, other] = ends;
    for (const bool peer_to_peer : {false, true}) {
        peer.connect(device.port());
        peer.send_frame({.peer_to_peer = peer_to_peer, .rtr_write = true, .rtr_read = true});
        const auto request = device.wait_for(RDMA_CM_EVENT_CONNECT_REQUEST);
        assert_int_equal(softrdma_rdma_reject(request.id, nullptr, 0), 0);
        const Frame reply = peer.receive_frame(MpaRole::Reply);
        assert_true(reply.mpa.reject);
        assert_int_equal(reply.mpa.peer_to_peer, peer_to_peer);
        assert_int_equal(reply.mpa.rtr_write, peer_to_peer);
        device.close(request.id);
    }
}

// The device does not wait for an FPDU that the peer did not promise.
void rfc6581_9_2_flags_without_peer_to_peer_must_be_ignored(Ends &ends) {
    auto &[device, peer, other] = ends;
    peer.connect(device.port());
    peer.send_frame({.rtr_send = true, .rtr_write = true, .rtr_read = true, .ird = 4, .ord = 4});
    rdma_cm_id *const id = device.take_request();
    device.accept(id);
    const Frame reply = peer.receive_frame(MpaRole::Reply);
    assert_false(reply.mpa.peer_to_peer || reply.mpa.rtr_send || reply.mpa.rtr_write || reply.mpa.rtr_read);
    (void)device.wait_for(RDMA_CM_EVENT_ESTABLISHED, id);
}

void rfc6581_5_nothing_must_be_sent_before_the_rtr(Ends &ends) {
    rdma_cm_id *const id =
        answered(ends, {.peer_to_peer = true, .rtr_write = true, .rtr_read = true, .ird = 4, .ord = 4});
    (void)ends.device.wait_for(RDMA_CM_EVENT_ESTABLISHED, id);
    ends.device.post(id, IBV_WR_SEND, 1, 0, 8);
    const test::Fpdu first = ends.peer.receive_fpdu();
    assert_true(first.segment.opcode == Opcode::Write);
    assert_int_equal(first.payload.size(), 0);
    assert_true(ends.peer.receive_fpdu().segment.opcode == Opcode::Send);
}

// The initiator could not continue, so there never was a connection.
void a_terminate_instead_of_the_rtr(Ends &ends) {
    auto &[device, peer, other] = ends;
    peer.connect(device.port());
    peer.send_frame({.peer_to_peer = true, .rtr_send = true});
    rdma_cm_id *const id = device.take_request();
    device.accept(id);
    (void)peer.receive_frame(MpaRole::Reply);
    peer.send(test::fpdu({.opcode = Opcode::Terminate, .msn = 1}, encode(terminate::no_matching_rtr)));
    assert_int_equal(device.wait_for(RDMA_CM_EVENT_CONNECT_ERROR, id).status, -ECONNRESET);
    assert_false(device.has_event());
    assert_int_equal(peer.receive_rest().size(), 0);
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {fixture_test(rfc6581_9_1_an_initiator_without_the_ird_must_terminate),
                                fixture_test(rfc6581_9_2_an_initiator_without_a_matching_rtr_must_terminate),
                                fixture_test(rfc6581_9_1_an_initiator_must_leave_its_depths_at_all_ones),
                                fixture_test(rfc6581_9_1_an_initiator_must_raise_its_ird),
                                fixture_test(rfc6581_9_1_a_responder_must_answer_all_ones_with_all_ones),
                                fixture_test(rfc6581_9_1_a_responder_must_set_its_ord_at_most_to_the_ird),
                                fixture_test(rfc6581_9_1_depths_of_a_rejection_must_be_passed_on),
                                fixture_test(rfc6581_9_2_a_responder_must_name_an_rtr_that_it_takes),
                                fixture_test(rfc6581_9_2_a_responder_must_answer_in_the_initiators_model),
                                fixture_test(rfc6581_9_2_flags_without_peer_to_peer_must_be_ignored),
                                fixture_test(rfc6581_5_nothing_must_be_sent_before_the_rtr),
                                fixture_test(a_terminate_instead_of_the_rtr)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
