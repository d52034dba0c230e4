// SPDX-License-Identifier: BSD-3-Clause
// Tests the device as responder. The initiator is nothing but a TCP socket, and sees the device's answers,
// and that none comes too early.
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <string>
#include <string_view>

#include "base/log.hpp"

// This comes last, because it asserts.
#include "device.hpp"

namespace {

using namespace soft::wire;
using test::assert_same_bytes;
using test::Bytes;
using test::bytes;
using test::Device;
using test::encoded;
using test::Ends;
using test::fpdu;
using test::Frame;
using test::joined;
using test::Peer;

// RFC 5044 section 7.1.2: the responder sends nothing after its reply before the initiator's first FPDU.
void rfc5044_7_1_2_a_responder_must_receive_an_fpdu_before_it_sends(Ends &ends) {
    auto &[device, peer, other] = ends;
    peer.connect(device.port());
    peer.send_frame({.peer_to_peer = true, .rtr_write = true, .ird = 4, .ord = 4});
    rdma_cm_id *const id = device.take_request();
    device.accept(id);
    (void)peer.receive_frame(MpaRole::Reply);
    device.post(id, IBV_WR_SEND, 1, 0, 100);
    device.post(id, IBV_WR_RDMA_WRITE, 2, 0, 8, 0x1000, 0x100);
    assert_false(device.has_event());
    assert_true(peer.silent());
    // A part of an FPDU does not count as one.
    const Bytes first = fpdu({.opcode = Opcode::Write, .stag = 1}, {});
    peer.send(std::span{first}.first(tagged_bytes - 1));
    assert_false(device.has_event());
    assert_true(peer.silent());
    peer.send(std::span{first}.subspan(tagged_bytes - 1));
    const auto established = device.wait_for(RDMA_CM_EVENT_ESTABLISHED, id);
    assert_int_equal(established.status, 0);
    device.expect_completion(1);
    device.expect_completion(2);
    const test::Fpdu message = peer.receive_fpdu();
    assert_true(message.segment.opcode == Opcode::Send);
    assert_int_equal(message.segment.msn, 1);
    assert_same_bytes(message.payload, {device.at(0), 100});
    assert_true(peer.receive_fpdu().segment.opcode == Opcode::Write);
}

// An initiator that promised no first FPDU, as siw, may only receive. The program learns at once that it is
// connected, and the device still sends nothing.
void is_established_with_an_initiator_that_promises_nothing(Ends &ends) {
    auto &[device, peer, other] = ends;
    peer.connect(device.port());
    peer.send_frame({.ird = 4, .ord = 4});
    rdma_cm_id *const id = device.take_request();
    device.accept(id);
    assert_int_equal(device.wait_for(RDMA_CM_EVENT_ESTABLISHED, id).status, 0);
    (void)peer.receive_frame(MpaRole::Reply);
    device.post(id, IBV_WR_SEND, 1, 0, 100);
    assert_true(peer.silent());
    peer.send(fpdu({.opcode = Opcode::Write, .stag = 1}, {}));
    device.expect_completion(1);
    assert_true(peer.receive_fpdu().segment.opcode == Opcode::Send);
    assert_false(device.has_event());
}

// A client may connect again as soon as it is established. The program gets both events in that order, though
// they come to sockets that different queues serve.
void established_is_told_before_the_next_request(Ends &ends) {
    auto &[device, peer, other] = ends;
    const MpaFrame request{.peer_to_peer = true, .rtr_write = true, .ird = 4, .ord = 4};
    constexpr int rounds = 100;
    Peer peers[2];
    peers[0].connect(device.port());
    peers[0].send_frame(request);
    rdma_cm_id *before = nullptr;
    for (int round = 0; round < rounds; ++round) {
        Peer &first = peers[round % 2];
        Peer &next = peers[(round + 1) % 2];
        rdma_cm_id *const id = device.take_request();
        if (before != nullptr) {
            device.close(before);
        }
        device.accept(id);
        (void)first.receive_frame(MpaRole::Reply);
        next.connect(device.port());
        first.send(test::ready_to_receive());
        next.send_frame(request);
        std::optional<test::Event> told;
        device.work_until([&] { return (told = device.next_event()).has_value(); });
        assert_int_equal(told->type, RDMA_CM_EVENT_ESTABLISHED);
        assert_ptr_equal(told->id, id);
        before = id;
    }
    device.accept(device.take_request());
}

Frame reply_to(Ends &ends, const MpaFrame &request, std::string_view private_data = {}) {
    ends.peer.connect(ends.device.port());
    ends.peer.send_frame(request);
    rdma_cm_id *const id = ends.device.take_request();
    ends.device.accept(id, private_data);
    Frame reply = ends.peer.receive_frame(MpaRole::Reply);
    assert_true(ends.peer.silent());
    ends.device.close(id);
    return reply;
}

Bytes reply_bytes(std::initializer_list<unsigned> rest) {
    return joined(bytes(std::string_view{"MPA ID Rep Frame"}), bytes(rest));
}

// The program grants depth 4 both ways.
void rfc6581_10_a_reply_must_be_of_the_requests_kind(Ends &ends) {
    // This is siw's request.
    assert_same_bytes(reply_to(ends, {.ird = 1, .ord = 1}).raw, reply_bytes({0x10, 2, 0, 4, 0, 4, 0, 1}));
    // This is the request of our device.
    assert_same_bytes(
        reply_to(ends,
                 {.soft_operations = true, .peer_to_peer = true, .rtr_write = true, .ird = 64, .ord = 64})
            .raw,
        reply_bytes({0x12, 2, 0, 4, 0x80, 4, 0x80, 4}));
    // The device echoes CRC, and takes the other RTR when it is the only one.
    assert_same_bytes(reply_to(ends, {.crc = true, .peer_to_peer = true, .rtr_read = true, .ird = 2}).raw,
                      reply_bytes({0x50, 2, 0, 4, 0x80, 4, 0x40, 2}));
    // The initiator offers both, and the responder takes one.
    assert_same_bytes(reply_to(ends, {.peer_to_peer = true, .rtr_write = true, .rtr_read = true}).raw,
                      reply_bytes({0x10, 2, 0, 4, 0x80, 4, 0x80, 0}));
    // A request without S has no words, and one of revision 1 is answered in revision 1.
    assert_same_bytes(reply_to(ends, {.enhanced = false}).raw, reply_bytes({0, 2, 0, 0}));
    assert_same_bytes(reply_to(ends, {.revision = 1, .enhanced = false}).raw, reply_bytes({0, 1, 0, 0}));
    assert_same_bytes(reply_to(ends, {.revision = 1, .crc = true, .enhanced = false}, "ab").raw,
                      reply_bytes({0x40, 1, 0, 2, 'a', 'b'}));
}

void rfc5044_7_1_1_reserved_bits_must_not_be_checked(Ends &ends) {
    for (const unsigned flags : {0x1002U, 0x1202U, 0x1102U, 0x1802U}) {
        Bytes request = encoded({.ird = 1, .ord = 1});
        request[16] = static_cast<std::byte>(flags >> 8);
        ends.peer.connect(ends.device.port());
        ends.peer.send(request);
        rdma_cm_id *const id = ends.device.take_request();
        ends.device.accept(id);
        assert_same_bytes(ends.peer.receive_frame(MpaRole::Reply).raw,
                          reply_bytes({0x10, 2, 0, 4, 0, 4, 0, 1}));
        assert_int_equal(softrdma_peer_operations(id->qp), 0);
        ends.device.close(id);
    }
}

void rfc6581_9_1_depths_must_be_crossed_and_passed_on(Ends &ends) {
    auto &[device, peer, other] = ends;
    peer.connect(device.port());
    peer.send_frame({.ird = 3, .ord = 7});
    const auto request = device.wait_for(RDMA_CM_EVENT_CONNECT_REQUEST);
    assert_int_equal(request.responder_resources, 7);
    assert_int_equal(request.initiator_depth, 3);
    device.create_queue_pair(request.id);
    device.accept(request.id);
    const Frame reply = peer.receive_frame(MpaRole::Reply);
    assert_int_equal(reply.mpa.ird, 4);
    assert_int_equal(reply.mpa.ord, 3);
    peer.send(test::ready_to_receive());
    const auto established = device.wait_for(RDMA_CM_EVENT_ESTABLISHED, request.id);
    assert_int_equal(established.responder_resources, 4);
    assert_int_equal(established.initiator_depth, 3);
}

void private_data_both_ways(Ends &ends) {
    auto &[device, peer, other] = ends;
    for (const std::size_t size : {0UL, 1UL, 195UL, 196UL}) {
        const Bytes data = test::pattern(size, 3);
        const std::string text{reinterpret_cast<const char *>(data.data()), size};
        peer.connect(device.port());
        peer.send_frame({.private_data = data});
        const auto request = device.wait_for(RDMA_CM_EVENT_CONNECT_REQUEST);
        assert_true(request.private_data == text);
        device.create_queue_pair(request.id);
        device.accept(request.id, text);
        assert_same_bytes(peer.receive_frame(MpaRole::Reply).private_data, data);
        device.close(request.id);
    }
    // The private data is one byte longer than an accept takes.
    peer.connect(device.port());
    peer.send_frame({});
    rdma_cm_id *const id = device.take_request();
    const std::string text(197, 'x');
    rdma_conn_param parameters{};
    parameters.private_data = text.data();
    parameters.private_data_len = static_cast<std::uint8_t>(text.size());
    assert_int_equal(softrdma_rdma_accept(id, &parameters), -1);
    assert_int_equal(errno, EINVAL);
    assert_true(peer.silent());
}

void a_program_rejects(Ends &ends) {
    auto &[device, peer, other] = ends;
    peer.connect(device.port());
    peer.send_frame({});
    rdma_cm_id *const id = device.wait_for(RDMA_CM_EVENT_CONNECT_REQUEST).id;
    assert_int_equal(softrdma_rdma_reject(id, "no", 2), 0);
    const Frame reply = peer.receive_frame(MpaRole::Reply);
    assert_true(reply.mpa.reject);
    assert_int_equal(reply.mpa.revision, 2);
    assert_same_bytes(reply.private_data, bytes(std::string_view{"no"}));
    assert_int_equal(peer.receive_rest().size(), 0);
}

void expect_refusal(Ends &ends, const MpaFrame &request) {
    ends.peer.connect(ends.device.port());
    ends.peer.send_frame(request);
    const Frame reply = ends.peer.receive_frame(MpaRole::Reply);
    assert_true(reply.mpa.reject);
    assert_false(reply.mpa.markers);
    assert_int_equal(reply.mpa.revision, std::min<unsigned>(request.revision, 2));
    assert_int_equal(reply.mpa.enhanced, request.enhanced);
    assert_int_equal(ends.peer.receive_rest().size(), 0);
    assert_int_equal(test::logged().warnings, 1);
    assert_false(ends.device.has_event());
}

void what_we_do_not_speak_is_rejected(Ends &ends) {
    expect_refusal(ends, {.markers = true});
    expect_refusal(ends, {.markers = true, .enhanced = false});
    expect_refusal(ends, {.revision = 3});
    expect_refusal(ends, {.revision = 255, .enhanced = false});
}

// RFC 5044: the reply has the requester's revision, also when it is a refusal.
void revision_1_with_markers_is_rejected_in_revision_1(Ends &ends) {
    expect_refusal(ends, {.revision = 1, .markers = true, .enhanced = false});
}

// The device closes on an invalid start-up and sends nothing, and serves the next one.
void rfc5044_7_1_2_an_improper_request_must_close(Ends &ends) {
    auto &[device, peer, other] = ends;
    Bytes too_long = encoded({});
    too_long[18] = std::byte{2};
    too_long[19] = std::byte{1};
    Bytes no_words = encoded({.enhanced = false});
    no_words[16] = std::byte{0x10};
    const Bytes starts[] = {bytes(std::string_view{"GET / HTTP/1.1\r\n\r\n...."}),
                            encoded({.role = MpaRole::Reply}), too_long, no_words,
                            Bytes(100, std::byte{0xff})};
    for (const Bytes &start : starts) {
        peer.connect(device.port());
        peer.send(start);
        assert_int_equal(peer.receive_rest().size(), 0);
        assert_int_equal(test::logged().warnings, 1);
    }
    // The peer leaves in the middle of the start-up.
    const Bytes request = encoded({});
    for (std::size_t size = 0; size < request.size(); ++size) {
        peer.connect(device.port());
        peer.send(std::span{request}.first(size));
        peer.finish();
        assert_int_equal(peer.receive_rest().size(), 0);
        assert_int_equal(test::logged().warnings, 1);
    }
    assert_false(device.has_event());
    (void)device.establish(peer, {});
}

// A peer that leaves between the reply and its first FPDU was never connected.
void a_peer_that_goes_before_it_is_ready(Ends &ends) {
    auto &[device, peer, other] = ends;
    peer.connect(device.port());
    peer.send_frame({.peer_to_peer = true, .rtr_write = true});
    rdma_cm_id *const id = device.take_request();
    device.accept(id);
    (void)peer.receive_frame(MpaRole::Reply);
    peer.close();
    assert_int_equal(device.wait_for(RDMA_CM_EVENT_CONNECT_ERROR, id).status, -ECONNRESET);
    assert_false(device.has_event());
}

std::string awaited_line;
std::atomic<bool> line_came{false};

// NOLINTNEXTLINE(cert-dcl50-cpp): the signature is librpma's log function.
void look_for_line(int, const char *, int, const char *, const char *format, ...) {
    std::array<char, 512> text{};
    va_list arguments;
    va_start(arguments, format);
    (void)std::vsnprintf(text.data(), text.size(), format, arguments);
    va_end(arguments);
    if (std::string_view{text.data()}.starts_with(awaited_line)) {
        line_came = true;
    }
}

// The kernel has no address for a connection that was reset.
void a_peer_that_resets_has_its_address_in_the_log(Ends &ends) {
    auto &[device, peer, other] = ends;
    peer.connect(device.port());
    sockaddr_in address{};
    socklen_t size = sizeof(address);
    assert_int_equal(getsockname(peer.socket(), reinterpret_cast<sockaddr *>(&address), &size), 0);
    awaited_line = "no connection with 127.0.0.1:" + std::to_string(ntohs(address.sin_port)) + ": ";
    softrdma_set_log(look_for_line, static_cast<int>(base::LogLevel::Warning));
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    assert_int_equal(setsockopt(peer.socket(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)), 0);
    peer.close();
    device.work_until([] { return line_came.load(); });
    test::watch_log();
}

// TCP may cut the request anywhere, and an initiator that does not wait for the reply loses nothing.
void a_request_in_single_bytes(Ends &ends) {
    auto &[device, peer, other] = ends;
    const Bytes data = bytes(std::string_view{"data"});
    const Bytes all = joined(encoded({.private_data = data}), test::ready_to_receive());
    peer.connect(device.port());
    for (const std::byte &byte : all) {
        peer.send({&byte, 1});
        (void)device.has_event();
    }
    const auto request = device.wait_for(RDMA_CM_EVENT_CONNECT_REQUEST);
    assert_true(request.private_data == "data");
    device.create_queue_pair(request.id);
    device.accept(request.id);
    (void)peer.receive_frame(MpaRole::Reply);
    (void)device.wait_for(RDMA_CM_EVENT_ESTABLISHED, request.id);
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {fixture_test(rfc5044_7_1_2_a_responder_must_receive_an_fpdu_before_it_sends),
                                fixture_test(is_established_with_an_initiator_that_promises_nothing),
                                fixture_test(established_is_told_before_the_next_request),
                                fixture_test(rfc6581_10_a_reply_must_be_of_the_requests_kind),
                                fixture_test(rfc5044_7_1_1_reserved_bits_must_not_be_checked),
                                fixture_test(rfc6581_9_1_depths_must_be_crossed_and_passed_on),
                                fixture_test(private_data_both_ways),
                                fixture_test(a_program_rejects),
                                fixture_test(what_we_do_not_speak_is_rejected),
                                fixture_test(revision_1_with_markers_is_rejected_in_revision_1),
                                fixture_test(rfc5044_7_1_2_an_improper_request_must_close),
                                fixture_test(a_peer_that_goes_before_it_is_ready),
                                fixture_test(a_peer_that_resets_has_its_address_in_the_log),
                                fixture_test(a_request_in_single_bytes)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
