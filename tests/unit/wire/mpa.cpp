// SPDX-License-Identifier: BSD-3-Clause
// soft/wire/mpa: tests start-up frames, byte by byte, in both roles.
#include "soft/wire/mpa.hpp"

#include <array>
#include <string>

#include "bytes.hpp"

namespace {

using namespace soft::wire;
using test::assert_refused;
using test::assert_same_bytes;
using test::Bytes;
using test::bytes;
using test::joined;

Bytes encoded(const MpaFrame &frame) {
    std::array<std::byte, mpa_max_frame_bytes> room;
    const std::size_t size = encode_mpa_frame(frame, room);
    return {room.begin(), room.begin() + static_cast<std::ptrdiff_t>(size)};
}

Bytes key(MpaRole role) {
    return bytes(std::string_view{role == MpaRole::Request ? "MPA ID Req Frame" : "MPA ID Rep Frame"});
}

// Returns a frame with this flag word, and IRD and ORD words of 4 and 5, as siw sends it.
Bytes raw(MpaRole role, unsigned flags) {
    return joined(key(role), bytes({flags >> 8, flags & 0xff, 0, 4, 0, 4, 0, 5}));
}

void assert_same(const MpaFrame &seen, const MpaFrame &expected) {
    assert_true(seen.role == expected.role);
    assert_int_equal(seen.revision, expected.revision);
    assert_int_equal(seen.markers, expected.markers);
    assert_int_equal(seen.crc, expected.crc);
    assert_int_equal(seen.reject, expected.reject);
    assert_int_equal(seen.soft_operations, expected.soft_operations);
    assert_int_equal(seen.enhanced, expected.enhanced);
    assert_int_equal(seen.peer_to_peer, expected.peer_to_peer);
    assert_int_equal(seen.rtr_send, expected.rtr_send);
    assert_int_equal(seen.rtr_write, expected.rtr_write);
    assert_int_equal(seen.rtr_read, expected.rtr_read);
    assert_int_equal(seen.ird, expected.ird);
    assert_int_equal(seen.ord, expected.ord);
    assert_same_bytes(seen.private_data, expected.private_data);
}

void the_bytes_of_a_request(void **) {
    const Bytes data = bytes(std::string_view{"hi"});
    const MpaFrame request{.soft_operations = true,
                           .peer_to_peer = true,
                           .rtr_write = true,
                           .ird = 16,
                           .ord = 0x123,
                           .private_data = data};
    assert_same_bytes(encoded(request), joined(bytes(std::string_view{"MPA ID Req Frame"}),
                                               bytes({0x14, 2, 0, 6, 0x80, 16, 0x81, 0x23, 'h', 'i'})));
}

void the_bytes_of_a_reply(void **) {
    const MpaFrame reply{
        .role = MpaRole::Reply, .crc = true, .soft_operations = true, .rtr_read = true, .ird = 1, .ord = 2};
    assert_same_bytes(encoded(reply), joined(bytes(std::string_view{"MPA ID Rep Frame"}),
                                             bytes({0x52, 2, 0, 4, 0, 1, 0x40, 2})));
    assert_same_bytes(encoded({.role = MpaRole::Reply, .revision = 1, .reject = true, .enhanced = false}),
                      joined(bytes(std::string_view{"MPA ID Rep Frame"}), bytes({0x20, 1, 0, 0})));
}

struct Flag {
    bool MpaFrame::*member;
    unsigned word;  // 0: flags; 1: IRD; 2: ORD
    unsigned bit;
};

// Each flag alone is in its place and in no other.
void each_flag_alone(void **) {
    for (const MpaRole role : {MpaRole::Request, MpaRole::Reply}) {
        const unsigned soft_bit = role == MpaRole::Request ? 0x0400 : 0x0200;
        const Flag flags[] = {{&MpaFrame::markers, 0, 0x8000},      {&MpaFrame::crc, 0, 0x4000},
                              {&MpaFrame::reject, 0, 0x2000},       {&MpaFrame::soft_operations, 0, soft_bit},
                              {&MpaFrame::peer_to_peer, 1, 0x8000}, {&MpaFrame::rtr_send, 1, 0x4000},
                              {&MpaFrame::rtr_write, 2, 0x8000},    {&MpaFrame::rtr_read, 2, 0x4000}};
        for (const Flag &flag : flags) {
            MpaFrame frame{.role = role, .ird = 4, .ord = 5};
            frame.*flag.member = true;
            std::array<unsigned, 3> words{0x1002, 4, 5};
            words[flag.word] |= flag.bit;
            const Bytes expected =
                joined(key(role), bytes({words[0] >> 8, words[0] & 0xff, 0, 4, words[1] >> 8, words[1] & 0xff,
                                         words[2] >> 8, words[2] & 0xff}));
            assert_same_bytes(encoded(frame), expected);
            assert_same(decode_mpa_frame(expected, role).value(), frame);
        }
    }
}

void every_combination_survives(void **) {
    for (unsigned bits = 0; bits < 1024; ++bits) {
        const auto has = [bits](unsigned place) { return (bits >> place & 1) != 0; };
        MpaFrame frame{.role = has(0) ? MpaRole::Request : MpaRole::Reply,
                       .revision = static_cast<std::uint8_t>(has(1) ? 2 : 1),
                       .markers = has(2),
                       .crc = has(3),
                       .reject = has(4),
                       .soft_operations = has(5),
                       .enhanced = has(1)};
        if (frame.enhanced) {
            frame.peer_to_peer = has(6);
            frame.rtr_send = has(7);
            frame.rtr_write = has(8);
            frame.rtr_read = has(9);
            frame.ird = mpa_max_depth;
            frame.ord = static_cast<std::uint16_t>(bits);
        }
        const Bytes all = encoded(frame);
        assert_same(decode_mpa_frame(all, frame.role).value(), frame);
    }
}

void a_depth_that_is_too_deep_is_the_deepest(void **) {
    const Bytes all = encoded({.peer_to_peer = false, .ird = 0x4000, .ord = 0xffff});
    const auto frame = decode_mpa_frame(all, MpaRole::Request).value();
    assert_false(frame.peer_to_peer || frame.rtr_send || frame.rtr_write || frame.rtr_read);
    assert_int_equal(frame.ird, mpa_max_depth);
    assert_int_equal(frame.ord, mpa_max_depth);
}

// siw answers with the request's own flag word, as measured. An echo of the flags that our request can have,
// or of the reserved bits that were tried, must not count as an acceptance.
void an_echo_is_no_acceptance(void **) {
    for (const unsigned flags : {0x1002U, 0x1402U, 0x1102U, 0x5002U}) {
        assert_false(decode_mpa_frame(raw(MpaRole::Reply, flags), MpaRole::Reply).value().soft_operations);
    }
    for (const bool crc : {false, true}) {
        Bytes request =
            encoded({.crc = crc, .soft_operations = true, .peer_to_peer = true, .rtr_write = true});
        request[9] = std::byte{'p'};  // "Rep": as siw sends it back
        const auto echo = decode_mpa_frame(request, MpaRole::Reply);
        assert_true(echo.has_value());
        assert_false(echo->soft_operations);
        assert_int_equal(echo->crc, crc);
    }
    // This is the one word that is an acceptance. No request of ours has its bit, so no echo can have it.
    assert_true(decode_mpa_frame(raw(MpaRole::Reply, 0x1202), MpaRole::Reply).value().soft_operations);
    const Bytes everything = encoded({.markers = true, .crc = true, .reject = true, .soft_operations = true});
    assert_true((everything[16] & std::byte{0x02}) == std::byte{0});
}

// Only 0x0400 is an offer of ours; the other bits are none.
void an_offer_is_one_bit(void **) {
    for (const unsigned flags : {0x1002U, 0x1202U, 0x1102U, 0x5002U, 0x1802U}) {
        assert_false(
            decode_mpa_frame(raw(MpaRole::Request, flags), MpaRole::Request).value().soft_operations);
    }
    assert_true(decode_mpa_frame(raw(MpaRole::Request, 0x1402), MpaRole::Request).value().soft_operations);
}

// S has a meaning from revision 2 on; before, IRD and ORD are private data.
void revision_1_is_never_enhanced(void **) {
    for (const unsigned flags : {0x0001U, 0x1001U}) {
        const Bytes all = raw(MpaRole::Request, flags);
        const auto frame = decode_mpa_frame(all, MpaRole::Request).value();
        assert_int_equal(frame.revision, 1);
        assert_false(frame.enhanced);
        assert_same_bytes(frame.private_data, bytes({0, 4, 0, 5}));
    }
    const auto plain = decode_mpa_frame(raw(MpaRole::Request, 0x0002), MpaRole::Request);
    assert_false(plain.value().enhanced);
}

void private_data_of_every_length(void **) {
    for (const bool enhanced : {false, true}) {
        const std::size_t most = mpa_max_private_bytes - (enhanced ? mpa_enhanced_bytes : 0);
        for (std::size_t size = 0; size <= most; ++size) {
            Bytes data(size);
            for (std::size_t i = 0; i < size; ++i) {
                data[i] = static_cast<std::byte>(i + size);
            }
            const MpaFrame frame{.role = MpaRole::Reply,
                                 .revision = static_cast<std::uint8_t>(enhanced ? 2 : 1),
                                 .enhanced = enhanced,
                                 .private_data = data};
            const Bytes all = encoded(frame);
            assert_int_equal(mpa_tail_bytes(std::span{all}.first<mpa_header_bytes>(), MpaRole::Reply).value(),
                             all.size() - mpa_header_bytes);
            assert_same(decode_mpa_frame(all, MpaRole::Reply).value(), frame);
        }
    }
}

void rfc5044_7_1_1_private_data_must_not_exceed_512_bytes(void **) {
    for (const std::size_t size : {513UL, 514UL, 0x8000UL, 0xffffUL}) {
        Bytes all = key(MpaRole::Request);
        all =
            joined(all, bytes({0, 1, static_cast<unsigned>(size >> 8), static_cast<unsigned>(size & 0xff)}));
        assert_refused(mpa_tail_bytes(std::span{all}.first<mpa_header_bytes>(), MpaRole::Request),
                       terminate::mpa_frame);
        all.resize(mpa_header_bytes + size);
        assert_refused(decode_mpa_frame(all, MpaRole::Request), terminate::mpa_frame);
    }
}

void a_wrong_key_is_refused(void **) {
    for (const MpaRole role : {MpaRole::Request, MpaRole::Reply}) {
        const MpaRole other = role == MpaRole::Request ? MpaRole::Reply : MpaRole::Request;
        const Bytes good = raw(role, 0x1002);
        assert_true(decode_mpa_frame(good, role).has_value());
        assert_refused(decode_mpa_frame(good, other), terminate::mpa_frame);
        for (std::size_t i = 0; i < 16; ++i) {
            Bytes bad = good;
            bad[i] ^= std::byte{0x20};
            assert_refused(mpa_tail_bytes(std::span{bad}.first<mpa_header_bytes>(), role),
                           terminate::mpa_frame);
            assert_refused(decode_mpa_frame(bad, role), terminate::mpa_frame);
        }
    }
}

void a_beginning_is_known_by_its_first_wrong_byte(void **) {
    for (const MpaRole role : {MpaRole::Request, MpaRole::Reply}) {
        const Bytes good = raw(role, 0x1002);
        for (std::size_t size = 0; size <= good.size(); ++size) {
            assert_true(may_begin_mpa_frame(std::span{good}.first(size), role));
        }
        for (std::size_t i = 0; i < 16; ++i) {
            Bytes bad = good;
            bad[i] ^= std::byte{0x20};
            assert_true(may_begin_mpa_frame(std::span{bad}.first(i), role));
            assert_false(may_begin_mpa_frame(std::span{bad}.first(i + 1), role));
        }
    }
}

void another_length_than_it_says_is_refused(void **) {
    const Bytes data(5);
    const Bytes good = encoded({.private_data = data});
    for (std::size_t size = 0; size < good.size(); ++size) {
        assert_refused(decode_mpa_frame(std::span{good}.first(size), MpaRole::Request), terminate::mpa_frame);
    }
    assert_refused(decode_mpa_frame(joined(good, bytes({0})), MpaRole::Request), terminate::mpa_frame);
}

void rfc6581_6_private_data_must_begin_with_the_depths(void **) {
    for (unsigned size = 0; size < mpa_enhanced_bytes; ++size) {
        Bytes all = joined(key(MpaRole::Request), bytes({0x10, 2, 0, size}));
        all.resize(mpa_header_bytes + size);
        assert_refused(decode_mpa_frame(all, MpaRole::Request), terminate::mpa_frame);
    }
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {cmocka_unit_test(the_bytes_of_a_request),
                                cmocka_unit_test(the_bytes_of_a_reply),
                                cmocka_unit_test(each_flag_alone),
                                cmocka_unit_test(every_combination_survives),
                                cmocka_unit_test(a_depth_that_is_too_deep_is_the_deepest),
                                cmocka_unit_test(an_echo_is_no_acceptance),
                                cmocka_unit_test(an_offer_is_one_bit),
                                cmocka_unit_test(revision_1_is_never_enhanced),
                                cmocka_unit_test(private_data_of_every_length),
                                cmocka_unit_test(rfc5044_7_1_1_private_data_must_not_exceed_512_bytes),
                                cmocka_unit_test(a_wrong_key_is_refused),
                                cmocka_unit_test(a_beginning_is_known_by_its_first_wrong_byte),
                                cmocka_unit_test(another_length_than_it_says_is_refused),
                                cmocka_unit_test(rfc6581_6_private_data_must_begin_with_the_depths)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
