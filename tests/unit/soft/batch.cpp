// SPDX-License-Identifier: BSD-3-Clause
// soft/batch: a batch sends what was added, FPDU after FPDU, however little TCP takes at a time.
#include "soft/transport/batch.hpp"

#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include "persist/guard.hpp"
#include "soft/link/tcp_link.hpp"

// These come last, because they assert.
#include "fpdu.hpp"

#include "../base/fixture.hpp"

namespace {

using soft::Batch;
using test::assert_same_bytes;
using test::Bytes;
using test::fpdu;
using test::pattern;
namespace wire = soft::wire;

// This is a stream with its other end, and the batch under test.
struct Stream {
    Stream() {
        int ends[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
        sender = std::make_unique<soft::TcpLink>(base::Fd{ends[0]});
        receiver = ends[1];
    }
    ~Stream() { close(receiver); }
    Stream(const Stream &) = delete;
    Stream &operator=(const Stream &) = delete;

    Batch batch;
    std::unique_ptr<soft::TcpLink> sender;
    int receiver = -1;
    Bytes expected;
    Bytes arrived;
};

void receive_some(Stream &stream) {
    std::array<std::byte, 4096> bytes;
    const ssize_t count = recv(stream.receiver, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (count > 0) {
        stream.arrived.insert(stream.arrived.end(), bytes.begin(), bytes.begin() + count);
    }
}

// Sends all of the batch, and returns how often the socket was full.
unsigned send_all(Stream &stream) {
    unsigned full = 0;
    while (true) {
        assert_true(stream.batch.send(*stream.sender).has_value());
        if (stream.batch.empty()) {
            break;
        }
        ++full;
        receive_some(stream);
    }
    stream.batch.clear();
    while (stream.arrived.size() < stream.expected.size()) {
        const std::size_t before = stream.arrived.size();
        receive_some(stream);
        assert_true(stream.arrived.size() > before);
    }
    assert_same_bytes(stream.arrived, stream.expected);
    return full;
}

void expect(Stream &stream, const Bytes &bytes) {
    stream.expected.insert(stream.expected.end(), bytes.begin(), bytes.end());
}

iovec piece_of(const Bytes &bytes) {
    return {.iov_base = const_cast<std::byte *>(bytes.data()), .iov_len = bytes.size()};
}

void an_empty_batch_sends_nothing(Stream &stream) {
    assert_true(stream.batch.empty());
    assert_true(stream.batch.has_room());
    assert_true(stream.batch.send(*stream.sender).has_value());
    receive_some(stream);
    assert_int_equal(stream.arrived.size(), 0);
}

// The test checks header, pad and trailer for every length of payload, copied and in place.
void one_fpdu_of_each_length(Stream &stream) {
    for (const bool crc : {false, true}) {
        if (crc) {
            stream.batch.use_crc();
        }
        for (std::size_t size = 0; size <= Batch::max_copied_bytes; ++size) {
            const Bytes payload = pattern(size, static_cast<unsigned>(size));
            const wire::Segment segment{.opcode = size % 2 == 0 ? wire::Opcode::Write : wire::Opcode::Send,
                                        .stag = 9,
                                        .offset = size,
                                        .payload_bytes = static_cast<std::uint16_t>(size)};
            stream.expected = fpdu(segment, payload, crc);
            stream.arrived.clear();
            stream.batch.add_copied(segment, payload);
            assert_false(stream.batch.empty());
            send_all(stream);
            stream.arrived.clear();
            const iovec piece = piece_of(payload);
            const std::span all{&piece, size == 0 ? 0UL : 1UL};  // nothing to send is no piece
            assert_true(stream.batch.add(segment, all).has_value());
            send_all(stream);
        }
    }
}

// FPDUs that are added together leave together, in their order.
void many_fpdus_in_one_batch(Stream &stream) {
    const Bytes payload = pattern(700, 3);
    for (int round = 0; round < 3; ++round) {
        unsigned segments = 0;
        unsigned in_place = 0;
        for (; stream.batch.has_room(); ++segments) {
            const bool copied = segments % 3 == 0;
            in_place += copied ? 0 : 1;
            const std::span<const std::byte> bytes =
                std::span{payload}.first(copied ? segments + 1 : payload.size());
            const wire::Segment segment{.opcode = copied ? wire::Opcode::Send : wire::Opcode::Write,
                                        .last = segments % 2 == 0,
                                        .msn = segments,
                                        .payload_bytes = static_cast<std::uint16_t>(bytes.size())};
            expect(stream, fpdu(segment, bytes, false));
            if (copied) {
                stream.batch.add_copied(segment, bytes);
            } else {
                const iovec piece{.iov_base = const_cast<std::byte *>(bytes.data()), .iov_len = bytes.size()};
                assert_true(stream.batch.add(segment, {&piece, 1}).has_value());
            }
        }
        assert_true(in_place > 8 && in_place <= Batch::max_segments);
        send_all(stream);
    }
}

void gathers_pieces(Stream &stream) {
    const Bytes payload = pattern(1000, 4);
    std::array<iovec, Batch::max_payload_pieces> pieces;
    std::size_t at = 0;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
        const std::size_t size = i + 1 == pieces.size() ? payload.size() - at : i * 50;  // one is empty
        pieces[i] = {.iov_base = const_cast<std::byte *>(payload.data()) + at, .iov_len = size};
        at += size;
    }
    const wire::Segment segment{.stag = 1, .payload_bytes = static_cast<std::uint16_t>(payload.size())};
    while (stream.batch.has_room()) {
        assert_true(stream.batch.add(segment, pieces).has_value());
        expect(stream, fpdu(segment, payload, false));
    }
    send_all(stream);
}

void sent_in_parts(Stream &stream, bool crc) {
    const int smallest = 1;  // the kernel sets the least that it allows
    assert_int_equal(
        setsockopt(stream.sender->descriptor(), SOL_SOCKET, SO_SNDBUF, &smallest, sizeof(smallest)), 0);
    if (crc) {
        stream.batch.use_crc();
    }
    unsigned full = 0;
    for (unsigned round = 0; round < 4; ++round) {
        for (unsigned segments = 0; stream.batch.has_room(); ++segments) {
            const Bytes inline_payload = pattern(segments % 64, segments);
            static const Bytes payload = pattern(20'001, 5);
            const wire::Segment small{.opcode = wire::Opcode::Send,
                                      .payload_bytes = static_cast<std::uint16_t>(inline_payload.size())};
            const wire::Segment large{.stag = segments,
                                      .payload_bytes = static_cast<std::uint16_t>(payload.size())};
            if (segments % 2 == 0) {
                expect(stream, fpdu(large, payload, crc));
                const iovec piece = piece_of(payload);
                assert_true(stream.batch.add(large, {&piece, 1}).has_value());
            } else {
                expect(stream, fpdu(small, inline_payload, crc));
                stream.batch.add_copied(small, inline_payload);
            }
        }
        full += send_all(stream);
    }
    assert_true(full > 4);  // or the test shows nothing
}

void a_full_socket(Stream &stream) {
    sent_in_parts(stream, false);
}
void a_full_socket_with_crc(Stream &stream) {
    sent_in_parts(stream, true);
}

// Lent payload belongs to the program again after keep(), however much of it the socket has taken.
void what_was_lent_is_kept(Stream &stream) {
    const int smallest = 1;
    assert_int_equal(
        setsockopt(stream.sender->descriptor(), SOL_SOCKET, SO_SNDBUF, &smallest, sizeof(smallest)), 0);
    assert_true(stream.batch.make_room_to_keep());
    Bytes lent = pattern(30'000, 5);
    const Bytes still_there = pattern(600, 6);
    const iovec in_place = piece_of(still_there);
    const wire::Segment large{.payload_bytes = 30'000};
    const wire::Segment small{.payload_bytes = 600};
    for (unsigned segments = 0; stream.batch.has_room_to_lend(lent.size()); ++segments) {
        assert_true(segments < 2);
        expect(stream, fpdu(large, lent, false));
        // The halves are adjacent in memory, and still two pieces.
        const std::array<iovec, 2> halves{
            {{.iov_base = lent.data(), .iov_len = 15'000}, {.iov_base = &lent[15'000], .iov_len = 15'000}}};
        stream.batch.add_lent(large, halves);
        expect(stream, fpdu(small, still_there, false));
        assert_true(stream.batch.add(small, {&in_place, 1}).has_value());
    }
    assert_true(stream.batch.send(*stream.sender).has_value());
    assert_false(stream.batch.empty());
    stream.batch.keep();
    std::ranges::fill(lent, std::byte{0});
    (void)send_all(stream);
}

// With CRC32C the batch sends the bytes that it has summed, even when
// the program changes its memory meanwhile.
void the_sum_fits_what_is_sent(Stream &stream) {
    stream.batch.use_crc();
    Bytes payload = pattern(100, 6);
    const wire::Segment segment{.payload_bytes = static_cast<std::uint16_t>(payload.size())};
    expect(stream, fpdu(segment, payload, true));
    const iovec piece = piece_of(payload);
    assert_true(stream.batch.add(segment, {&piece, 1}).has_value());
    payload.assign(payload.size(), std::byte{0});
    send_all(stream);
}

void the_longest_segment_with_crc(Stream &stream) {
    stream.batch.use_crc();
    const std::size_t most = wire::max_segment_bytes - wire::tagged_bytes + wire::fpdu_length_bytes;
    const Bytes payload = pattern(most, 7);
    const wire::Segment segment{.payload_bytes = static_cast<std::uint16_t>(most)};
    expect(stream, fpdu(segment, payload, true));
    const iovec piece = piece_of(payload);
    assert_true(stream.batch.add(segment, {&piece, 1}).has_value());
    send_all(stream);
}

void memory_that_vanished(Stream &stream) {
    constexpr std::size_t page = 4096;
    persist::install_guard();
    void *const gone = mmap(nullptr, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(gone, MAP_FAILED);
    stream.batch.use_crc();
    const iovec piece{.iov_base = gone, .iov_len = page};
    const auto added = stream.batch.add({.payload_bytes = page}, {&piece, 1});
    munmap(gone, page);
    assert_false(added.has_value());
    assert_int_equal(added.error().number, EFAULT);
}

void a_peer_that_is_gone(Stream &stream) {
    assert_int_equal(shutdown(stream.receiver, SHUT_RDWR), 0);
    stream.batch.add_copied({}, {});
    const auto sent = stream.batch.send(*stream.sender);
    assert_false(sent.has_value());
    assert_int_equal(sent.error().number, EPIPE);  // and no signal
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {fixture_test(an_empty_batch_sends_nothing),
                                fixture_test(one_fpdu_of_each_length),
                                fixture_test(many_fpdus_in_one_batch),
                                fixture_test(gathers_pieces),
                                fixture_test(a_full_socket),
                                fixture_test(a_full_socket_with_crc),
                                fixture_test(what_was_lent_is_kept),
                                fixture_test(the_sum_fits_what_is_sent),
                                fixture_test(the_longest_segment_with_crc),
                                fixture_test(memory_that_vanished),
                                fixture_test(a_peer_that_is_gone)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
