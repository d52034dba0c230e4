// SPDX-License-Identifier: BSD-3-Clause
// soft/wire/rdmap: tests the bodies of read, flush and atomic requests, immediate data and TERMINATE, byte by
// byte.
#include "soft/wire/rdmap.hpp"

#include "bytes.hpp"
#include "soft/wire/ddp.hpp"

namespace {

using namespace soft::wire;
using test::assert_refused;
using test::assert_same_bytes;
using test::Bytes;
using test::bytes;
using test::joined;

constexpr ReadRequest read_request{.sink_stag = 0x01020304,
                                   .sink_offset = 0x1112131415161718,
                                   .size = 0x21222324,
                                   .source_stag = 0x31323334,
                                   .source_offset = 0x4142434445464748};
constexpr FlushRequest flush_request{
    .stag = 0x01020304, .offset = 0x1112131415161718, .length = 0x21222324, .level = FlushLevel::Persistent};

void a_read_request(void **) {
    const Bytes expected =
        bytes({0x01, 0x02, 0x03, 0x04, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x21, 0x22,
               0x23, 0x24, 0x31, 0x32, 0x33, 0x34, 0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48});
    assert_same_bytes(encode(read_request), expected);
    assert_true(decode_read_request(expected).value() == read_request);
    for (std::size_t size = 0; size < expected.size(); ++size) {
        assert_refused(decode_read_request(std::span{expected}.first(size)), terminate::untagged_too_long);
    }
    assert_refused(decode_read_request(joined(expected, bytes({0}))), terminate::untagged_too_long);
}

void a_flush_request(void **) {
    const Bytes expected = bytes({0x01, 0x02, 0x03, 0x04, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16,
                                  0x17, 0x18, 0x21, 0x22, 0x23, 0x24, 0,    0,    0,    2});
    assert_same_bytes(encode(flush_request), expected);
    assert_true(decode_flush_request(expected).value() == flush_request);
    for (std::size_t size = 0; size < expected.size(); ++size) {
        assert_refused(decode_flush_request(std::span{expected}.first(size)), terminate::untagged_too_long);
    }
    assert_refused(decode_flush_request(joined(expected, bytes({0}))), terminate::untagged_too_long);
}

void an_acknowledgement(void **) {
    constexpr Acknowledgement placed{.writes = 0x01020304, .messages = 0x11121314};
    const Bytes expected = bytes({0x01, 0x02, 0x03, 0x04, 0x11, 0x12, 0x13, 0x14});
    assert_same_bytes(encode(placed), expected);
    assert_true(decode_acknowledgement(expected).value() == placed);
    for (std::size_t size = 0; size < expected.size(); ++size) {
        assert_refused(decode_acknowledgement(std::span{expected}.first(size)), terminate::untagged_too_long);
    }
    assert_refused(decode_acknowledgement(joined(expected, bytes({0}))), terminate::untagged_too_long);
}

void an_atomic_request(void **) {
    const Bytes expected =
        bytes({0,    0,    0,    2,    0x01, 0x02, 0x03, 0x04, 0x11, 0x12, 0x13, 0x14, 0x21,
               0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28, 0x31, 0x32, 0x33, 0x34, 0x35, 0x36,
               0x37, 0x38, 0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48, 0x51, 0x52, 0x53,
               0x54, 0x55, 0x56, 0x57, 0x58, 0x61, 0x62, 0x63, 0x64, 0x65, 0x66, 0x67, 0x68});
    constexpr AtomicRequest request{.operation = AtomicOperation::CompareSwap,
                                    .identifier = 0x01020304,
                                    .stag = 0x11121314,
                                    .offset = 0x2122232425262728,
                                    .add_swap = 0x3132333435363738,
                                    .add_swap_mask = 0x4142434445464748,
                                    .compare = 0x5152535455565758,
                                    .compare_mask = 0x6162636465666768};
    assert_same_bytes(encode(request), expected);
    assert_true(decode_atomic_request(expected).value() == request);
    for (std::size_t size = 0; size < expected.size(); ++size) {
        assert_refused(decode_atomic_request(std::span{expected}.first(size)), terminate::untagged_too_long);
    }
    assert_refused(decode_atomic_request(joined(expected, bytes({0}))), terminate::untagged_too_long);
    // 28 bits before the operation are reserved; it is FetchAdd or CmpSwap.
    for (unsigned operation = 0; operation < 16; ++operation) {
        Bytes body = expected;
        body[0] = body[1] = body[2] = std::byte{0xff};
        body[3] = static_cast<std::byte>(0xf0 | operation);
        if (operation == 0 || operation == 2) {
            assert_int_equal(decode_atomic_request(body).value().operation, operation);
        } else {
            assert_refused(decode_atomic_request(body), terminate::operation_unspecified);
        }
    }
}

void an_atomic_response(void **) {
    const Bytes expected = bytes({0x01, 0x02, 0x03, 0x04, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18});
    constexpr AtomicResponse response{.identifier = 0x01020304, .original = 0x1112131415161718};
    assert_same_bytes(encode(response), expected);
    assert_true(decode_atomic_response(expected).value() == response);
    for (std::size_t size = 0; size < expected.size(); ++size) {
        assert_refused(decode_atomic_response(std::span{expected}.first(size)), terminate::untagged_too_long);
    }
    assert_refused(decode_atomic_response(joined(expected, bytes({0}))), terminate::untagged_too_long);
}

void rfc7306_5_1_only_what_the_masks_say_must_change(void **) {
    const auto added = [](std::uint64_t original, std::uint64_t add, std::uint64_t mask) {
        return result_of({.operation = AtomicOperation::FetchAdd, .add_swap = add, .add_swap_mask = mask},
                         original);
    };
    assert_int_equal(added(5, 7, 0), 12);
    assert_int_equal(added(UINT64_MAX, 2, 0), 1);
    assert_int_equal(added(UINT64_MAX, 2, 1ULL << 63), 1);
    // Two fields of 32 bits, and fields of one bit: no carry from one to the other.
    assert_int_equal(added(0x00000001'ffffffff, 0x00000001'00000001, 0x80000000'80000000),
                     0x00000002'00000000);
    assert_int_equal(added(0b1100, 0b1010, UINT64_MAX), 0b0110);
    const auto swapped = [](std::uint64_t original, std::uint64_t compare, std::uint64_t compare_mask,
                            std::uint64_t swap, std::uint64_t swap_mask) {
        return result_of({.operation = AtomicOperation::CompareSwap,
                          .add_swap = swap,
                          .add_swap_mask = swap_mask,
                          .compare = compare,
                          .compare_mask = compare_mask},
                         original);
    };
    assert_int_equal(swapped(5, 5, UINT64_MAX, 9, UINT64_MAX), 9);
    assert_int_equal(swapped(5, 4, UINT64_MAX, 9, UINT64_MAX), 5);
    assert_int_equal(swapped(0x1234, 0x9934, 0xff, 0xabcd, 0xf0f0), 0xa2c4);
    assert_int_equal(swapped(0x1234, 0x9935, 0xff, 0xabcd, 0xf0f0), 0x1234);
}

void immediate_data(void **) {
    const Bytes expected = bytes({0x01, 0x02, 0x03, 0x04, 0, 0, 0, 0});
    const ImmediateValue value{std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}};
    assert_same_bytes(encode(value), expected);
    assert_true(decode_immediate(expected).value() == value);
    // The second half is reserved.
    assert_true(decode_immediate(bytes({0x01, 0x02, 0x03, 0x04, 9, 9, 9, 9})).value() == value);
    for (std::size_t size = 0; size < expected.size(); ++size) {
        assert_refused(decode_immediate(std::span{expected}.first(size)), terminate::untagged_too_long);
    }
    assert_refused(decode_immediate(joined(expected, bytes({0}))), terminate::untagged_too_long);
}

void there_are_two_levels(void **) {
    FlushRequest request = flush_request;
    for (const FlushLevel level : {FlushLevel::Visibility, FlushLevel::Persistent}) {
        request.level = level;
        assert_true(decode_flush_request(encode(request)).value() == request);
    }
    for (const std::uint32_t level : {0U, 3U, 0x01000000U, 0xffffffffU}) {
        request.level = FlushLevel{level};
        assert_refused(decode_flush_request(encode(request)), terminate::operation_unspecified);
    }
}

// RFC 5040 section 4.8: layer 4 bits, error type 4 bits, error code 8 bits, M D R 3 bits, 13 reserved; none
// of the optional headers follows.
void terminate_as_the_rfc_draws_it(void **) {
    assert_same_bytes(encode(TerminateCode{0x1, 0x2, 0x34}), bytes({0x12, 0x34, 0, 0}));
    assert_same_bytes(encode(terminate::invalid_stag), bytes({0x01, 0x00, 0, 0}));
    assert_same_bytes(encode(terminate::access), bytes({0x01, 0x02, 0, 0}));
    assert_same_bytes(encode(terminate::unexpected_opcode), bytes({0x02, 0x06, 0, 0}));
    assert_same_bytes(encode(terminate::operation_unspecified), bytes({0x02, 0xff, 0, 0}));
    assert_same_bytes(encode(terminate::tagged_bounds), bytes({0x11, 0x01, 0, 0}));
    assert_same_bytes(encode(terminate::untagged_msn), bytes({0x12, 0x03, 0, 0}));
    assert_same_bytes(encode(terminate::untagged_too_long), bytes({0x12, 0x05, 0, 0}));
    assert_same_bytes(encode(terminate::mpa_crc), bytes({0x20, 0x02, 0, 0}));
}

void terminate_survives(void **) {
    for (unsigned bits = 0; bits < 0x10000; ++bits) {
        const TerminateCode code{static_cast<std::uint8_t>(bits >> 12),
                                 static_cast<std::uint8_t>(bits >> 8 & 0xf), static_cast<std::uint8_t>(bits)};
        assert_true(decode_terminate(encode(code)).value() == code);
    }
}

// The decoder ignores the headers that a peer quotes and the bits that announce them, and refuses a short
// body.
void terminate_with_what_it_quotes(void **) {
    Bytes body = bytes({0x11, 0x01, 0xe0, 0x00});
    assert_true(decode_terminate(body).value() == terminate::tagged_bounds);
    body.resize(4 + 2 + 18 + 28, std::byte{0xee});
    assert_true(decode_terminate(body).value() == terminate::tagged_bounds);
    for (std::size_t size = 0; size < terminate_bytes; ++size) {
        assert_refused(decode_terminate(std::span{body}.first(size)), terminate::untagged_too_long);
    }
}

// A reader of a log does not know the numbers. The text covers a code that no RFC has, too.
void a_terminate_is_told_by_its_meaning(void **) {
    assert_string_equal(meaning_of(terminate::invalid_stag), "the peer knows no region with this key");
    assert_string_equal(meaning_of(terminate::tagged_invalid_stag), "the peer knows no region with this key");
    assert_string_equal(meaning_of(terminate::no_matching_rtr), "the peer wants another first message");
    assert_string_equal(meaning_of({15, 15, 255}), "for a reason that it alone knows");
}

// The whole message has 24 bytes of header and body on queue 2, with MSN 1 and MO 0.
void a_whole_terminate(void **) {
    const auto body = encode(terminate::untagged_offset);
    std::array<std::byte, untagged_bytes> header;
    const Segment segment{.opcode = Opcode::Terminate, .msn = 1, .payload_bytes = body.size()};
    assert_int_equal(encode_header(segment, header), untagged_bytes);
    assert_same_bytes(
        joined(Bytes(header.begin(), header.end()), body),
        bytes({0, 22, 0x41, 0x47, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0x12, 4, 0, 0}));
    assert_int_equal(fpdu_bytes(segment), 28);
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {cmocka_unit_test(a_read_request),
                                cmocka_unit_test(a_flush_request),
                                cmocka_unit_test(an_acknowledgement),
                                cmocka_unit_test(an_atomic_request),
                                cmocka_unit_test(an_atomic_response),
                                cmocka_unit_test(rfc7306_5_1_only_what_the_masks_say_must_change),
                                cmocka_unit_test(immediate_data),
                                cmocka_unit_test(there_are_two_levels),
                                cmocka_unit_test(terminate_as_the_rfc_draws_it),
                                cmocka_unit_test(terminate_survives),
                                cmocka_unit_test(terminate_with_what_it_quotes),
                                cmocka_unit_test(a_terminate_is_told_by_its_meaning),
                                cmocka_unit_test(a_whole_terminate)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
