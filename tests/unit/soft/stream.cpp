// SPDX-License-Identifier: BSD-3-Clause
// Tests a connected device on the wire: TCP cuts the stream anywhere, the device answers in order, its FPDUs
// have the right length, and it keeps messages that have no receive yet.
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <chrono>

#include "../../limits.hpp"
#include "soft/connected/queue_pair.hpp"
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
using test::from_a_soft_device;
using test::joined;
using test::pattern;
using test::plain;

MpaFrame with_crc(MpaFrame frame, bool crc) {
    frame.crc = crc;
    return frame;
}

Bytes read_request(const Device &device, std::size_t from, std::uint32_t size, std::uint32_t msn,
                   std::uint32_t sink_stag = 0x5151, std::uint64_t sink_offset = 0x6161616161,
                   bool crc = false) {
    return fpdu({.opcode = Opcode::ReadRequest, .msn = msn},
                encode(ReadRequest{.sink_stag = sink_stag,
                                   .sink_offset = sink_offset,
                                   .size = size,
                                   .source_stag = device.mr->rkey,
                                   .source_offset = device.address(from)}),
                crc);
}

// Receives the whole answer to a read. It must be contiguous, with the last segment
// marked and no other message in between.
void expect_read_response(Ends &ends, std::size_t from, std::size_t size, std::uint32_t sink_stag,
                          std::uint64_t sink_offset) {
    Bytes all;
    Fpdu part;
    do {
        part = ends.peer.receive_fpdu();
        assert_true(part.segment.opcode == Opcode::ReadResponse);
        assert_int_equal(part.segment.stag, sink_stag);
        assert_int_equal(part.segment.offset, sink_offset + all.size());
        all = joined(std::move(all), part.payload);
        assert_int_equal(part.segment.last, all.size() == size);
    } while (!part.segment.last);
    assert_same_bytes(all, {ends.device.at(from), size});
}

// The stream has a message of every kind, and is cut in two at every byte.
void a_stream_cut_anywhere(Ends &ends) {
    auto &[device, peer, other] = ends;
    for (const bool crc : {false, true}) {
        rdma_cm_id *const id = device.establish(peer, with_crc(from_a_soft_device, crc));
        const Bytes written = pattern(37, 5);
        const Bytes sent = pattern(22, 6);
        std::uint32_t msn = 0;
        std::uint32_t request = 0;
        std::size_t cuts = 1;
        for (std::size_t cut = 0; cut < cuts; ++cut) {
            device.fill(static_cast<unsigned>(cut));
            ++msn;
            const Segment write{
                .opcode = Opcode::Write, .stag = device.mr->rkey, .offset = device.address(1000)};
            const Bytes stream = joined(
                fpdu(write, written, crc),
                fpdu({.opcode = Opcode::Send, .last = false, .msn = msn}, std::span{sent}.first(13), crc),
                fpdu({.opcode = Opcode::Send, .offset = 13, .msn = msn}, std::span{sent}.subspan(13), crc),
                read_request(device, 1000, 37, ++request, 1, 2, crc),
                fpdu({.opcode = Opcode::Write, .stag = 0}, {}, crc));
            cuts = stream.size();
            device.post_receive(id, msn, 2000, 64);
            peer.send(std::span{stream}.first(cut));
            device.work_until_read(peer);
            peer.send(std::span{stream}.subspan(cut));
            device.expect_completion(msn);
            assert_same_bytes(peer.receive_fpdu().payload, written);
            assert_same_bytes({device.at(2000), sent.size()}, sent);
        }
        device.close(id);
        device.forget_completions();
    }
    assert_int_equal(test::logged().warnings, 0);
}

// Answers come in the order of the questions, each as a whole, whatever their lengths are.
void rfc5040_5_2_2_read_responses_must_come_in_order(Ends &ends) {
    auto &[device, peer, other] = ends;
    device.fill(3);
    (void)device.establish(peer, from_a_soft_device);
    peer.send(joined(read_request(device, 100, 200'000, 1, 11, 0x1000),
                     read_request(device, 5, 0, 2, 12, 0x2000),
                     fpdu({.opcode = Opcode::FlushRequest, .msn = 3},
                          encode(FlushRequest{.stag = device.mr->rkey,
                                              .offset = device.address(),
                                              .length = 8,
                                              .level = FlushLevel::Visibility})),
                     read_request(device, 7, 1, 4, 13, 0x3000)));
    expect_read_response(ends, 100, 200'000, 11, 0x1000);
    expect_read_response(ends, 5, 0, 12, 0x2000);
    const Fpdu flushed = peer.receive_fpdu();
    assert_true(flushed.segment.opcode == Opcode::FlushResponse);
    assert_int_equal(flushed.segment.msn, 1);
    assert_int_equal(flushed.payload.size(), 0);
    expect_read_response(ends, 7, 1, 13, 0x3000);
}

// A read after a write on the same stream sees the written bytes.
void rfc5040_5_5_a_read_must_follow_what_was_sent_before(Ends &ends) {
    auto &[device, peer, other] = ends;
    (void)device.establish(peer, plain);
    for (std::uint32_t msn = 1; msn <= 50; ++msn) {
        const std::size_t size = msn * 977;
        const Segment write{.opcode = Opcode::Write, .stag = device.mr->rkey, .offset = device.address(64)};
        const Bytes payload = pattern(size, msn);
        peer.send(joined(fpdu(write, payload),
                         read_request(device, 64, static_cast<std::uint32_t>(size), msn, 1, 0)));
        Bytes seen;
        while (seen.size() < size) {
            seen = joined(std::move(seen), peer.receive_fpdu().payload);
        }
        assert_same_bytes(seen, payload);
    }
}

// An empty write and an empty read access no memory, so the device checks no key.
void rfc5041_5_2_an_empty_tagged_message_must_not_be_checked(Ends &ends) {
    auto &[device, peer, other] = ends;
    for (const bool crc : {false, true}) {
        rdma_cm_id *const id = device.establish(peer, with_crc(plain, crc));
        peer.send(fpdu({.opcode = Opcode::Write, .stag = 0xdeadbeef, .offset = UINT64_MAX}, {}, crc));
        const ReadRequest nothing{
            .sink_stag = 3, .sink_offset = 4, .size = 0, .source_stag = 0, .source_offset = 0};
        peer.send(fpdu({.opcode = Opcode::ReadRequest, .msn = 1}, encode(nothing), crc));
        const Fpdu answer = peer.receive_fpdu();
        assert_true(answer.segment.opcode == Opcode::ReadResponse);
        assert_true(answer.segment.last);
        assert_int_equal(answer.segment.stag, 3);
        assert_int_equal(answer.segment.offset, 4);
        assert_int_equal(answer.payload.size(), 0);
        assert_int_equal(answer.checksum_is_right, crc);
        device.close(id);
    }
}

std::size_t longest_segment_of_tcp(const test::Peer &peer, int announced) {
    tcp_info info{};
    socklen_t length = sizeof(info);
    assert_int_equal(getsockopt(peer.socket(), IPPROTO_TCP, TCP_INFO, &info, &length), 0);
    constexpr int time_stamp_bytes = 12;
    return static_cast<std::size_t>(announced -
                                    ((info.tcpi_options & TCPI_OPT_TIMESTAMPS) != 0 ? time_stamp_bytes : 0));
}

// RFC 5044 section 4.5: an FPDU is not longer than a TCP segment. It is not much shorter either.
void rfc5041_5_2_a_segment_must_fit_the_mulpdu(Ends &ends) {
    auto &[device, peer, other] = ends;
    for (const int announced : {536, 1460, 8960}) {
        peer.connect(device.port(), announced);
        peer.send_frame(plain);
        rdma_cm_id *const id = device.take_request();
        device.accept(id);
        (void)peer.receive_frame(MpaRole::Reply);
        peer.send(test::ready_to_receive());
        const std::size_t most = longest_segment_of_tcp(peer, announced);
        device.post(id, IBV_WR_RDMA_WRITE, 1, 0, 100'000, 0x7000, 0x99);
        device.post(id, IBV_WR_SEND, 2, 100'000, 100'000);
        peer.send(read_request(device, 0, 100'000, 1));
        std::size_t longest = 0;
        for (int messages = 0; messages < 3;) {
            const Fpdu part = peer.receive_fpdu();
            longest = std::max(longest, fpdu_bytes(part.segment));
            messages += part.segment.last ? 1 : 0;
            // The next segment begins at a multiple of four, which CRC and siw's receiver prefer.
            assert_true(part.segment.last || part.segment.payload_bytes % 4 == 0);
        }
        assert_true(longest <= most);
        assert_true(longest >= most * 3 / 4);
        device.expect_completion(1);
        device.expect_completion(2);
        device.close(id);
    }
}

// However small the segments of TCP are, every FPDU of a message except the last carries some of its bytes.
void fpdus_of_the_smallest_segments_carry_something(Ends &ends) {
    auto &[device, peer, other] = ends;
    constexpr int smallest_that_linux_takes = 88;
    peer.connect(device.port(), smallest_that_linux_takes);
    peer.send_frame(plain);
    rdma_cm_id *const id = device.take_request();
    device.accept(id);
    (void)peer.receive_frame(MpaRole::Reply);
    peer.send(test::ready_to_receive());
    device.post(id, IBV_WR_RDMA_WRITE, 1, 0, 300, 0x7000, 0x99);
    Bytes written;
    for (bool last = false; !last;) {
        const Fpdu part = peer.receive_fpdu();
        assert_true(part.segment.opcode == Opcode::Write);
        assert_int_equal(part.segment.offset, 0x7000 + written.size());
        assert_true(part.segment.payload_bytes != 0);
        written = joined(std::move(written), part.payload);
        last = part.segment.last;
    }
    assert_same_bytes(written, {device.at(0), 300});
    device.expect_completion(1);
}

// Between two soft devices FPDUs are as long as the length field allows.
void fpdus_of_a_soft_peer_are_long(Ends &ends) {
    auto &[device, peer, other] = ends;
    rdma_cm_id *const id = device.establish(peer, from_a_soft_device);
    device.post(id, IBV_WR_RDMA_WRITE, 1, 0, 100'000, 0x7000, 0x99);
    const Fpdu first = peer.receive_fpdu();
    assert_false(first.segment.last);
    assert_true(first.payload.size() > 60'000);
    const Fpdu second = peer.receive_fpdu();
    assert_true(second.segment.last);
    assert_int_equal(first.segment.offset, 0x7000);
    assert_int_equal(second.segment.offset, 0x7000 + first.payload.size());
    assert_same_bytes(joined(first.payload, second.payload), {device.at(0), 100'000});
}

// Immediate data after a write is a message of its own, with the next number. Immediate data of a send, which
// no RFC has, is the last segment of it.
void rfc7306_6_3_immediate_data_must_be_numbered_as_sends(Ends &ends) {
    auto &[device, peer, other] = ends;
    rdma_cm_id *const id = device.establish(peer, from_a_soft_device);
    const auto expect_immediate = [&](Opcode opcode, std::uint32_t msn, std::uint32_t offset) {
        const Fpdu last = peer.receive_fpdu();
        assert_true(last.segment.opcode == opcode);
        assert_true(last.segment.last);
        assert_int_equal(last.segment.msn, msn);
        assert_int_equal(last.segment.offset, offset);
        assert_same_bytes(last.payload, bytes({0xa1, 0xa2, 0xa3, 0xa4, 0, 0, 0, 0}));
    };
    ibv_sge place = device.sge(0, 100);
    ibv_send_wr request{};
    request.sg_list = &place;
    request.num_sge = 1;
    request.imm_data = htonl(0xa1a2a3a4);
    request.wr.rdma.remote_addr = 0x7000;
    request.wr.rdma.rkey = 0x99;
    ibv_send_wr *refused = nullptr;
    std::uint32_t msn = 0;
    for (const bool solicited : {false, true}) {
        const Opcode opcode = solicited ? Opcode::ImmediateSolicited : Opcode::Immediate;
        request.send_flags = solicited ? unsigned{IBV_SEND_SOLICITED} : 0U;
        for (const std::uint32_t length : {100U, 0U}) {
            place.length = length;
            request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
            assert_int_equal(ibv_post_send(id->qp, &request, &refused), 0);
            const Fpdu write = peer.receive_fpdu();
            assert_true(write.segment.opcode == Opcode::Write);
            assert_true(write.segment.last);
            assert_int_equal(write.payload.size(), length);
            expect_immediate(opcode, ++msn, 0);
            request.opcode = IBV_WR_SEND_WITH_IMM;
            assert_int_equal(ibv_post_send(id->qp, &request, &refused), 0);
            const Fpdu send = peer.receive_fpdu();
            assert_true(send.segment.opcode == (solicited ? Opcode::SendSolicited : Opcode::Send));
            assert_false(send.segment.last);
            assert_int_equal(send.segment.msn, ++msn);
            assert_int_equal(send.payload.size(), length);
            expect_immediate(opcode, msn, length);
        }
    }
    device.post(id, IBV_WR_SEND, 1, 0, 8);
    const Fpdu without = peer.receive_fpdu();
    assert_true(without.segment.last);
    assert_int_equal(without.segment.msn, msn + 1);
}

// Immediate data comes without a write, and after several writes. In that case the
// completion has the length of the last write.
void rfc7306_6_3_immediate_data_must_consume_a_receive(Ends &ends) {
    auto &[device, peer, other] = ends;
    rdma_cm_id *const id = device.establish(peer, from_a_soft_device);
    const auto immediate = [](std::uint32_t msn) {
        return fpdu({.opcode = Opcode::Immediate, .msn = msn}, bytes({1, 2, 3, 4, 9, 9, 9, 9}));
    };
    const auto write = [&](bool last, std::size_t size) {
        return fpdu(
            {.opcode = Opcode::Write, .last = last, .stag = device.mr->rkey, .offset = device.address()},
            Bytes(size));
    };
    const struct {
        Bytes before;
        std::uint32_t length;
    } cases[] = {
        {{}, 0},
        {write(true, 5), 5},
        {{}, 0},  // the immediate data before used up the write
        {joined(write(true, 7), write(true, 0)), 0},
        {joined(write(false, 7), write(true, 4)), 11},
    };
    std::uint32_t msn = 0;
    for (const auto &one : cases) {
        device.post_receive(id, ++msn, 0, 8);
        peer.send(joined(one.before, immediate(msn)));
        const ibv_wc completion = device.next_completion();
        assert_int_equal(completion.status, IBV_WC_SUCCESS);
        assert_int_equal(completion.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
        assert_int_equal(completion.byte_len, one.length);
        assert_int_equal(completion.imm_data, htonl(0x01020304));
    }
}

// Sends come before their receives. The device keeps them, and still serves the messages after them.
void rfc5041_5_3_messages_must_be_delivered_in_order(Ends &ends) {
    auto &[device, peer, other] = ends;
    rdma_cm_id *const id = device.establish(peer, plain);
    for (std::uint32_t msn = 1; msn <= 20; ++msn) {
        peer.send(fpdu({.opcode = Opcode::Send, .msn = msn}, pattern(msn, msn)));
    }
    peer.send(read_request(device, 0, 8, 1));
    assert_same_bytes(peer.receive_fpdu().payload, {device.at(0), 8});
    // The last send is not whole yet when its receive comes.
    const Bytes large = pattern(9000, 21);
    peer.send(fpdu({.opcode = Opcode::Send, .last = false, .msn = 21}, std::span{large}.first(5000)));
    device.work_until_read(peer);
    for (std::uint32_t msn = 1; msn <= 21; ++msn) {
        device.post_receive(id, msn, 10'000 * msn, 10'000);
    }
    for (std::uint32_t msn = 1; msn <= 20; ++msn) {
        const ibv_wc completion = device.next_completion();
        assert_int_equal(completion.wr_id, msn);
        assert_int_equal(completion.byte_len, msn);
        assert_same_bytes({device.at(10'000 * msn), msn}, pattern(msn, msn));
    }
    peer.send(fpdu({.opcode = Opcode::Send, .offset = 5000, .msn = 21}, std::span{large}.subspan(5000)));
    const ibv_wc completion = device.next_completion();
    assert_int_equal(completion.wr_id, 21);
    assert_int_equal(completion.byte_len, large.size());
    assert_same_bytes({device.at(210'000), large.size()}, large);
}

// The stream stalls past the bound, and no message is lost. There are `count` messages of `size` bytes.
void stalled_stream(Ends &ends, std::size_t size, std::uint32_t count) {
    auto &[device, peer, other] = ends;
    rdma_cm_id *const id = device.establish(peer, plain);
    for (std::uint32_t msn = 1; msn <= count; ++msn) {
        peer.send(fpdu({.opcode = Opcode::Send, .msn = msn}, pattern(size, msn)));
    }
    peer.send(read_request(device, 0, 8, 1));
    device.work();
    assert_true(peer.silent());
    for (std::uint32_t msn = 1; msn <= count; ++msn) {
        device.post_receive(id, msn, 1000, size);
        const ibv_wc completion = device.next_completion();
        assert_int_equal(completion.status, IBV_WC_SUCCESS);
        assert_int_equal(completion.wr_id, msn);
        assert_int_equal(completion.byte_len, size);
        assert_same_bytes({device.at(1000), size}, pattern(size, msn));
    }
    assert_same_bytes(peer.receive_fpdu().payload, {device.at(0), 8});
    device.close(id);
}

void too_many_bytes_stall(Ends &ends) {
    stalled_stream(ends, 10'000, 20);
}
void too_many_messages_stall(Ends &ends) {
    stalled_stream(ends, 1, soft::limits::max_unexpected_messages + 20);
}
void one_message_that_is_too_long_stalls(Ends &ends) {
    auto &[device, peer, other] = ends;
    rdma_cm_id *const id = device.establish(peer, plain);
    const Bytes all = pattern(200'000, 8);
    for (std::size_t at = 0; at < all.size(); at += 50'000) {
        peer.send(fpdu({.opcode = Opcode::Send, .last = at + 50'000 == all.size(), .offset = at, .msn = 1},
                       std::span{all}.subspan(at, 50'000)));
    }
    device.work();
    device.post_receive(id, 1, 0, all.size());
    device.expect_completion(1);
    assert_same_bytes({device.at(0), all.size()}, all);
}

// The program posts no receive, and the stream is stalled. The device
// notices nevertheless that the peer is gone.
void the_end_of_a_stalled_peer(Ends &ends) {
    auto &[device, peer, other] = ends;
    for (const bool reset : {false, true}) {
        rdma_cm_id *const id = device.establish(peer, plain);
        for (std::uint32_t msn = 1; msn <= soft::limits::max_unexpected_messages + 1; ++msn) {
            peer.send(fpdu({.opcode = Opcode::Send, .msn = msn}, pattern(8, msn)));
        }
        device.work();
        assert_false(device.has_event());
        if (reset) {
            const linger at_once{.l_onoff = 1, .l_linger = 0};
            assert_int_equal(setsockopt(peer.socket(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)), 0);
            peer.close();
        } else {
            peer.finish();
        }
        (void)device.wait_for(RDMA_CM_EVENT_DISCONNECTED, id);
        assert_true(reset || peer.receive_rest().empty());
        device.close(id);
    }
}

// A tagged message may come between two segments of an untagged one.
void a_write_inside_a_send(Ends &ends) {
    auto &[device, peer, other] = ends;
    rdma_cm_id *const id = device.establish(peer, plain);
    const Bytes message = pattern(3000, 1);
    const Bytes written = pattern(30'000, 2);
    for (const bool posted : {true, false}) {
        const std::uint32_t msn = posted ? 1 : 2;
        if (posted) {
            device.post_receive(id, msn, 0, message.size());
        }
        peer.send(fpdu({.opcode = Opcode::Send, .last = false, .msn = msn}, std::span{message}.first(1000)));
        device.work_until_read(peer);
        peer.send(fpdu({.opcode = Opcode::Write, .stag = device.mr->rkey, .offset = device.address(50'000)},
                       written));
        device.work_until_read(peer);
        peer.send(
            fpdu({.opcode = Opcode::Send, .offset = 1000, .msn = msn}, std::span{message}.subspan(1000)));
        if (!posted) {
            device.work_until_read(peer);
            device.post_receive(id, msn, 0, message.size());
        }
        device.expect_completion(msn);
        assert_same_bytes({device.at(0), message.size()}, message);
        assert_same_bytes({device.at(50'000), written.size()}, written);
        device.fill(7);
    }
}

// Solicited and unsolicited sends are both received. A peer that ends in order causes no warning.
void an_orderly_end(Ends &ends) {
    auto &[device, peer, other] = ends;
    rdma_cm_id *const id = device.establish(peer, plain);
    device.post_receive(id, 1, 0, 8);
    device.post_receive(id, 2, 8, 8);
    peer.send(fpdu({.opcode = Opcode::SendSolicited, .msn = 1}, pattern(4, 1)));
    peer.finish();
    device.expect_completion(1);
    device.expect_completion(2, IBV_WC_WR_FLUSH_ERR);
    (void)device.wait_for(RDMA_CM_EVENT_DISCONNECTED, id);
    assert_int_equal(peer.receive_rest().size(), 0);
    assert_int_equal(test::logged().warnings, 0);
}

// After a disconnect the peer can read all completed messages. There is no
// reset, even when the peer keeps sending.
void a_disconnect_drains(Ends &ends) {
    auto &[device, peer, other] = ends;
    rdma_cm_id *const id = device.establish(peer, plain);
    device.post(id, IBV_WR_SEND, 1, 0, 100'000);
    device.expect_completion(1);
    peer.send(
        fpdu({.opcode = Opcode::Write, .stag = device.mr->rkey, .offset = device.address()}, Bytes(5000)));
    assert_int_equal(softrdma_rdma_disconnect(id), 0);
    peer.send(
        fpdu({.opcode = Opcode::Write, .stag = device.mr->rkey, .offset = device.address()}, Bytes(5000)));
    std::size_t received = 0;
    for (bool last = false; !last;) {
        const Fpdu part = peer.receive_fpdu();
        received += part.payload.size();
        last = part.segment.last;
    }
    assert_int_equal(received, 100'000);
    assert_int_equal(peer.receive_rest().size(), 0);
    peer.finish();
    (void)device.wait_for(RDMA_CM_EVENT_DISCONNECTED, id);
}

// Returns a connection whose disconnect waits after sends for which the peer's TCP has no room.
rdma_cm_id *begin_to_leave(Ends &ends, std::uint64_t count) {
    auto &[device, peer, other] = ends;
    constexpr int room_bytes = 4096;
    peer.connect(device.port(), 0, 1, room_bytes);
    peer.send_frame(plain);
    rdma_cm_id *const id = device.take_request();
    device.accept(id);
    (void)peer.receive_frame(MpaRole::Reply);
    peer.send(test::ready_to_receive());
    (void)device.wait_for(RDMA_CM_EVENT_ESTABLISHED, id);
    for (std::uint64_t wr_id = 1; wr_id <= count; ++wr_id) {
        device.post(id, IBV_WR_SEND, wr_id, 0, Device::memory_bytes);
    }
    return id;
}

// A peer may write where the program, which is leaving, has just deregistered its memory. That loses none of
// the bytes that the program sent before. No byte after such a write is placed.
void a_write_that_is_refused_does_not_cut_what_is_sent_before_the_end(Ends &ends) {
    constexpr std::uint64_t count = 32;  // more than both TCPs take
    auto &[device, peer, other] = ends;
    device.fill(5);
    rdma_cm_id *const id = begin_to_leave(ends, count);
    assert_int_equal(softrdma_disconnect_when_sent(id), 0);
    constexpr std::uint32_t no_key = 0x1234;
    const auto write_to = [&](std::uint32_t key, std::size_t size) {
        peer.send(fpdu({.opcode = Opcode::Write, .stag = key, .offset = device.address()}, Bytes(size)));
        device.work();
    };
    write_to(no_key, 5000);
    write_to(device.mr->rkey, 5000);
    for (std::uint64_t msn = 1; msn <= count; ++msn) {
        Bytes message;
        for (bool last = false; !last;) {
            const Fpdu part = peer.receive_fpdu();
            assert_true(part.segment.opcode == Opcode::Send);
            assert_int_equal(part.segment.msn, msn);
            message.insert(message.end(), part.payload.begin(), part.payload.end());
            last = part.segment.last;
        }
        assert_same_bytes(message, pattern(Device::memory_bytes, 5));
        device.expect_completion(msn);
    }
    assert_int_equal(peer.receive_rest().size(), 0);
    peer.finish();
    (void)device.wait_for(RDMA_CM_EVENT_DISCONNECTED, id);
}

// A read that waits for an answer of that peer ends with an error.
void a_write_that_is_refused_ends_a_read(Ends &ends) {
    auto &[device, peer, other] = ends;
    rdma_cm_id *const id = begin_to_leave(ends, 1);
    device.post(id, IBV_WR_RDMA_READ, 2, 0, 8, 0x1000, 0x77);
    assert_int_equal(softrdma_disconnect_when_sent(id), 0);
    peer.send(fpdu({.opcode = Opcode::Write, .stag = 0x1234, .offset = device.address()}, Bytes(8)));
    (void)device.wait_for(RDMA_CM_EVENT_DISCONNECTED, id);
    while (device.next_completion().wr_id != 2) {
    }
}

// The program waits only a limited time for a slow peer, but bytes whose completion it has are not lost.
void a_peer_slower_than_the_wait_has_everything(Ends &ends) {
    auto &[device, peer, other] = ends;
    constexpr std::size_t bytes = 100'000;
    constexpr std::uint64_t count = 4;  // more than a peer's TCP takes when nobody reads
    const Bytes talk =
        fpdu({.opcode = Opcode::Write, .stag = device.mr->rkey, .offset = device.address()}, Bytes(5000));
    rdma_cm_id *const id = device.establish(peer, plain);
    for (std::uint64_t wr_id = 1; wr_id <= count; ++wr_id) {
        device.post(id, IBV_WR_SEND, wr_id, 0, bytes);
        device.expect_completion(wr_id);
    }
    assert_int_equal(softrdma_rdma_disconnect(id), 0);
    peer.send(talk);
    (void)device.wait_for(RDMA_CM_EVENT_DISCONNECTED, id);
    peer.send(talk);
    std::size_t received = 0;
    while (received < count * bytes) {
        received += peer.receive_fpdu().payload.size();
    }
    assert_int_equal(peer.receive_rest().size(), 0);
}

// Ends the connection with a reset, when the device's TCP has all that was sent.
void reset(test::Peer &peer) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds{40};
    int unacknowledged = 0;
    do {
        assert_true(std::chrono::steady_clock::now() < end);
        assert_int_equal(ioctl(peer.socket(), SIOCOUTQ, &unacknowledged), 0);
    } while (unacknowledged != 0);
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    assert_int_equal(setsockopt(peer.socket(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)), 0);
    peer.close();
}

// The peer has gone, and the sender here notices it first. The bytes that
// the peer had sent are placed in any case.
void what_came_before_the_link_broke_is_placed(Ends &ends) {
    auto &[device, peer, other] = ends;
    rdma_cm_id *const id = device.establish(peer, plain);
    const Bytes all = pattern(std::size_t{32} * 1024, 7);
    peer.send(test::ready_to_receive());
    device.post(id, IBV_WR_SEND, 1, all.size(), 1);
    (void)peer.receive_fpdu();
    device.expect_completion(1);
    {
        const auto found = soft::AnyQueuePair::find(id->qp->qp_num);
        const auto group = static_cast<soft::QueuePair *>(found.get())->group();
        const base::Lock nobody_receives{group->mutex()};
        constexpr std::size_t part = std::size_t{8} * 1024;
        for (std::size_t at = 0; at < all.size(); at += part) {
            peer.send(fpdu({.opcode = Opcode::Write,
                            .last = true,
                            .stag = device.mr->rkey,
                            .offset = device.address(at)},
                           std::span{all}.subspan(at, part)));
        }
        reset(peer);
        device.post(id, IBV_WR_SEND, 2, all.size(), 1);
    }
    (void)device.wait_for(RDMA_CM_EVENT_DISCONNECTED, id);
    assert_same_bytes({device.at(0), all.size()}, all);
    device.expect_completion(2, IBV_WC_RETRY_EXC_ERR);
}

}  // namespace

int main() {
    // The limit is set before the device has a thread that reads it.
    test::limits().drain_timeout = std::chrono::milliseconds{100};
    const CMUnitTest tests[] = {
        fixture_test(a_stream_cut_anywhere),
        fixture_test(rfc5040_5_2_2_read_responses_must_come_in_order),
        fixture_test(rfc5040_5_5_a_read_must_follow_what_was_sent_before),
        fixture_test(rfc5041_5_2_an_empty_tagged_message_must_not_be_checked),
        fixture_test(rfc5041_5_2_a_segment_must_fit_the_mulpdu),
        fixture_test(fpdus_of_the_smallest_segments_carry_something),
        fixture_test(fpdus_of_a_soft_peer_are_long),
        fixture_test(rfc7306_6_3_immediate_data_must_be_numbered_as_sends),
        fixture_test(rfc7306_6_3_immediate_data_must_consume_a_receive),
        fixture_test(rfc5041_5_3_messages_must_be_delivered_in_order),
        fixture_test(too_many_bytes_stall),
        fixture_test(too_many_messages_stall),
        fixture_test(one_message_that_is_too_long_stalls),
        fixture_test(the_end_of_a_stalled_peer),
        fixture_test(a_write_inside_a_send),
        fixture_test(an_orderly_end),
        fixture_test(a_disconnect_drains),
        fixture_test(a_write_that_is_refused_does_not_cut_what_is_sent_before_the_end),
        fixture_test(a_write_that_is_refused_ends_a_read),
        fixture_test(a_peer_slower_than_the_wait_has_everything),
        fixture_test(what_came_before_the_link_broke_is_placed)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
