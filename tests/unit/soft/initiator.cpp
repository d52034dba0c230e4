// SPDX-License-Identifier: BSD-3-Clause
// Tests the device as initiator. The responder is nothing but a TCP socket, and sees what the device asks for
// and how it treats each reply.
#include "soft/wire/rdmap.hpp"

// This comes last, because it asserts.
#include "device.hpp"

namespace {

using namespace soft::wire;
using test::assert_same_bytes;
using test::Bytes;
using test::bytes;
using test::encoded;
using test::Ends;
using test::fpdu;
using test::joined;

// Sends the device's request to the peer, which has accepted its TCP connection when this returns.
rdma_cm_id *request(Ends &ends, std::string_view private_data = {}) {
    rdma_cm_id *const id = ends.device.connect(ends.peer.listen(), private_data);
    ends.peer.accept();
    return id;
}

// Sends the device's request as well, and the peer answers with this reply.
rdma_cm_id *answered(Ends &ends, const Bytes &reply) {
    rdma_cm_id *const id = request(ends);
    (void)ends.peer.receive_frame(MpaRole::Request);
    ends.peer.send(reply);
    return id;
}

Bytes reply(MpaFrame frame) {
    frame.role = MpaRole::Reply;
    return encoded(frame);
}

// The request has revision 2 with S and the soft offer, P2P with WRITE as RTR, and IRD and ORD of the
// program. Its last offer is to go on through memory, because the peer is on this host. It has no markers
// and no CRC32C, and nothing follows it.
void the_request_byte_by_byte(Ends &ends) {
    (void)request(ends, "hello");
    assert_same_bytes(ends.peer.receive_frame(MpaRole::Request).raw,
                      joined(bytes(std::string_view{"MPA ID Req Frame"}),
                             bytes({0x15, 2, 0, 9, 0x80, 4, 0x80, 4}), bytes(std::string_view{"hello"})));
    assert_false(ends.device.has_event());
    assert_true(ends.peer.silent());
}

void the_first_fpdu_is_an_empty_write(Ends &ends) {
    rdma_cm_id *const id = answered(
        ends, reply({.soft_operations = true, .peer_to_peer = true, .rtr_write = true, .ird = 4, .ord = 4}));
    const auto established = ends.device.wait_for(RDMA_CM_EVENT_ESTABLISHED, id);
    assert_int_equal(established.responder_resources, 4);
    assert_int_equal(established.initiator_depth, 4);
    const test::Fpdu first = ends.peer.receive_fpdu();
    assert_true(first.segment.opcode == Opcode::Write);
    assert_true(first.segment.last);
    assert_int_equal(first.payload.size(), 0);
    assert_same_bytes(first.checksum, bytes({0, 0, 0, 0}));
    assert_int_equal(softrdma_peer_operations(id->qp),
                     SOFTRDMA_OPERATION_FLUSH | SOFTRDMA_OPERATION_ATOMIC_WRITE |
                         SOFTRDMA_OPERATION_IMMEDIATE | SOFTRDMA_OPERATION_ATOMIC);
}

// siw does not accept the offer. It echoes the flag word, and wants no RTR.
void a_reply_like_siws(Ends &ends) {
    Bytes echo = reply({.ird = 4, .ord = 1});
    echo[16] = std::byte{0x14};
    rdma_cm_id *const id = answered(ends, echo);
    const auto established = ends.device.wait_for(RDMA_CM_EVENT_ESTABLISHED, id);
    assert_int_equal(established.initiator_depth, 4);
    assert_int_equal(softrdma_peer_operations(id->qp), 0);
    assert_false(ends.device.has_event());
    assert_true(ends.peer.silent());
    // The device refuses at once, with an error, the operations that this peer does not have.
    for (const int opcode : {int{IBV_WR_SEND_WITH_IMM}, int{IBV_WR_RDMA_WRITE_WITH_IMM},
                             int{IBV_WR_ATOMIC_WRITE}, SOFTRDMA_WR_FLUSH}) {
        (void)test::logged();
        ibv_send_wr wanted{};
        wanted.opcode = static_cast<ibv_wr_opcode>(opcode);
        ibv_send_wr *refused = nullptr;
        assert_int_equal(ibv_post_send(id->qp, &wanted, &refused), EOPNOTSUPP);
        assert_ptr_equal(refused, &wanted);
        assert_int_equal(test::logged().errors, 1);
    }
    ends.device.post(id, IBV_WR_SEND, 1, 0, 8);
    assert_true(ends.peer.receive_fpdu().segment.opcode == Opcode::Send);
    ends.device.expect_completion(1);
}

// The peer serves two reads at a time, so the third waits for an answer.
void rfc5040_6_1_reads_must_not_exceed_what_was_negotiated(Ends &ends) {
    rdma_cm_id *const id = answered(ends, reply({.ird = 2, .ord = 4}));
    assert_int_equal(ends.device.wait_for(RDMA_CM_EVENT_ESTABLISHED, id).initiator_depth, 2);
    for (std::uint64_t i = 1; i <= 3; ++i) {
        ends.device.post(id, IBV_WR_RDMA_READ, i, 64 * i, 8, 0x1000 * i, 0x100);
    }
    for (std::uint32_t msn = 1; msn <= 2; ++msn) {
        const test::Fpdu asked = ends.peer.receive_fpdu();
        assert_true(asked.segment.opcode == Opcode::ReadRequest);
        assert_int_equal(asked.segment.msn, msn);
    }
    assert_false(ends.device.has_event());
    assert_true(ends.peer.silent());
    const Bytes payload = bytes({1, 2, 3, 4, 5, 6, 7, 8});
    ends.peer.send(fpdu(
        {.opcode = Opcode::ReadResponse, .stag = ends.device.mr->lkey, .offset = ends.device.address(64)},
        payload));
    ends.device.expect_completion(1);
    assert_same_bytes({ends.device.at(64), 8}, payload);
    const auto third = decode_read_request(ends.peer.receive_fpdu().payload);
    assert_int_equal(third.value().source_offset, 0x3000);
    assert_int_equal(third.value().sink_offset, ends.device.address(192));
}

void rfc5044_7_1_1_crc_must_be_used_when_one_side_asks(Ends &ends) {
    rdma_cm_id *const id =
        answered(ends, reply({.crc = true, .peer_to_peer = true, .rtr_write = true, .ird = 4, .ord = 4}));
    (void)ends.device.wait_for(RDMA_CM_EVENT_ESTABLISHED, id);
    assert_true(ends.peer.receive_fpdu().checksum_is_right);
    ends.device.post(id, IBV_WR_SEND, 1, 0, 99);
    assert_true(ends.peer.receive_fpdu().checksum_is_right);
    ends.device.expect_completion(1);
    // The device checks the CRC.
    ends.device.post_receive(id, 2, 0, 64);
    ends.peer.send(fpdu({.opcode = Opcode::Send, .msn = 1}, bytes({1, 2, 3}), true));
    ends.device.expect_completion(2);
    ends.peer.send(fpdu({.opcode = Opcode::Send, .msn = 2}, bytes({1, 2, 3}), false));
    assert_true(ends.peer.receive_fpdu().segment.opcode == Opcode::Terminate);
    (void)ends.device.wait_for(RDMA_CM_EVENT_DISCONNECTED, id);
}

// siw as responder does not wait for our first FPDU.
void what_follows_the_reply_is_not_lost(Ends &ends) {
    rdma_cm_id *const id = request(ends);
    (void)ends.peer.receive_frame(MpaRole::Request);
    ends.device.post_receive(id, 1, 0, 64);
    ends.peer.send(
        joined(reply({.ird = 4, .ord = 4}), fpdu({.opcode = Opcode::Send, .msn = 1}, bytes({7, 8}))));
    (void)ends.device.wait_for(RDMA_CM_EVENT_ESTABLISHED, id);
    ends.device.expect_completion(1);
    assert_same_bytes({ends.device.at(0), 2}, bytes({7, 8}));
}

void a_reply_in_single_bytes(Ends &ends) {
    const Bytes data = bytes(std::string_view{"server says hello"});
    rdma_cm_id *const id = request(ends);
    (void)ends.peer.receive_frame(MpaRole::Request);
    for (const std::byte &byte : reply({.ird = 1, .ord = 1, .private_data = data})) {
        assert_false(ends.device.has_event());
        ends.peer.send({&byte, 1});
    }
    assert_true(ends.device.wait_for(RDMA_CM_EVENT_ESTABLISHED, id).private_data == "server says hello");
}

void a_rejection(Ends &ends) {
    const Bytes data = bytes(std::string_view{"full"});
    rdma_cm_id *const id = answered(ends, reply({.reject = true, .private_data = data}));
    const auto event = ends.device.wait_for(RDMA_CM_EVENT_REJECTED, id);
    assert_int_equal(event.status, -ECONNREFUSED);
    assert_true(event.private_data == "full");
    assert_int_equal(ends.peer.receive_rest().size(), 0);
}

// A device that has no descriptor for the connection rejects it with that reason, without asking its program.
void a_rejection_by_the_peers_device(Ends &ends) {
    for (const bool by_device : {true, false}) {
        rdma_cm_id *const id = answered(ends, reply({.reject = true, .soft_operations = by_device}));
        assert_int_equal(ends.device.wait_for(RDMA_CM_EVENT_REJECTED, id).status, -ECONNREFUSED);
        assert_int_equal(test::logged().warnings, by_device ? 1 : 0);
        ends.device.close(id);
        ends.peer.close();
    }
}

void an_old_peer(Ends &ends) {
    const Bytes data = bytes(std::string_view{"v1"});
    rdma_cm_id *const id = answered(ends, reply({.revision = 1, .enhanced = false, .private_data = data}));
    assert_true(ends.device.wait_for(RDMA_CM_EVENT_ESTABLISHED, id).private_data == "v1");
    assert_int_equal(softrdma_peer_operations(id->qp), 0);
    assert_true(ends.peer.silent());
}

void rfc5044_7_1_2_an_improper_reply_must_close(Ends &ends) {
    Bytes too_long = reply({});
    too_long[18] = std::byte{2};
    too_long[19] = std::byte{1};
    const Bytes replies[] = {reply({.markers = true}), reply({.revision = 3}), encoded({}),
                             Bytes(24, std::byte{0xff}), too_long};
    for (const Bytes &bad : replies) {
        rdma_cm_id *const id = answered(ends, bad);
        assert_int_equal(ends.device.wait_for(RDMA_CM_EVENT_CONNECT_ERROR, id).status, -EPROTO);
        assert_int_equal(ends.peer.receive_rest().size(), 0);
        assert_int_equal(test::logged().warnings, 1);
        ends.device.close(id);
        ends.peer.close();
    }
}

void a_peer_that_goes_without_an_answer(Ends &ends) {
    const Bytes whole = reply({.ird = 1, .ord = 1});
    for (std::size_t size = 0; size < whole.size(); ++size) {
        rdma_cm_id *const id = answered(ends, Bytes(whole.begin(), whole.begin() + static_cast<long>(size)));
        ends.peer.finish();
        assert_int_equal(ends.device.wait_for(RDMA_CM_EVENT_REJECTED, id).status, -ECONNRESET);
        ends.device.close(id);
        ends.peer.close();
    }
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {fixture_test(the_request_byte_by_byte),
                                fixture_test(the_first_fpdu_is_an_empty_write),
                                fixture_test(a_reply_like_siws),
                                fixture_test(rfc5040_6_1_reads_must_not_exceed_what_was_negotiated),
                                fixture_test(rfc5044_7_1_1_crc_must_be_used_when_one_side_asks),
                                fixture_test(what_follows_the_reply_is_not_lost),
                                fixture_test(a_reply_in_single_bytes),
                                fixture_test(a_rejection),
                                fixture_test(a_rejection_by_the_peers_device),
                                fixture_test(an_old_peer),
                                fixture_test(rfc5044_7_1_2_an_improper_reply_must_close),
                                fixture_test(a_peer_that_goes_without_an_answer)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
