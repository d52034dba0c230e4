// SPDX-License-Identifier: BSD-3-Clause
// soft/wire/ddp: tests DDP headers, byte by byte, and every header that is refused.
#include "soft/wire/ddp.hpp"

#include <array>

#include "bytes.hpp"

namespace {

using namespace soft::wire;
using test::assert_refused;
using test::assert_same_bytes;
using test::Bytes;
using test::bytes;

constexpr Opcode opcodes[] = {Opcode::Write,
                              Opcode::ReadRequest,
                              Opcode::ReadResponse,
                              Opcode::Send,
                              Opcode::SendInvalidate,
                              Opcode::SendSolicited,
                              Opcode::SendSolicitedInvalidate,
                              Opcode::Terminate,
                              Opcode::Immediate,
                              Opcode::ImmediateSolicited,
                              Opcode::AtomicRequest,
                              Opcode::AtomicResponse,
                              Opcode::FlushRequest,
                              Opcode::FlushResponse,
                              Opcode::AtomicWrite,
                              Opcode::Acknowledgement};

Bytes encoded(const Segment &segment) {
    std::array<std::byte, untagged_bytes> room;
    const std::size_t size = encode_header(segment, room);
    return {room.begin(), room.begin() + static_cast<std::ptrdiff_t>(size)};
}

Segment decoded(const Bytes &header) {
    const auto segment = decode_header(header);
    assert_true(segment.has_value());
    assert_true(segment->has_value());
    return **segment;
}

// Returns an untagged header of 8 bytes of payload with this control word.
Bytes untagged(unsigned control, unsigned queue) {
    return bytes({0, 26, control >> 8, control & 0xff, 0, 0, 0, 0, 0, 0, 0, queue, 0, 0, 0, 1, 0, 0, 0, 0});
}
Bytes tagged(unsigned control) {
    return bytes({0, 22, control >> 8, control & 0xff, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0});
}

// These are the first bytes that siw and hardware send (lengths: header without the length field, and 8
// bytes).
void golden_control_words(void **) {
    const struct {
        Opcode opcode;
        unsigned first;
        unsigned second;
    } golden[] = {
        {Opcode::Write, 0xc1, 0x40},          {Opcode::ReadRequest, 0x41, 0x41},
        {Opcode::ReadResponse, 0xc1, 0x42},   {Opcode::Send, 0x41, 0x43},
        {Opcode::SendInvalidate, 0x41, 0x44}, {Opcode::SendSolicited, 0x41, 0x45},
        {Opcode::Terminate, 0x41, 0x47},      {Opcode::SendSolicitedInvalidate, 0x41, 0x46},
    };
    for (const auto &line : golden) {
        const unsigned length = is_tagged(line.opcode) ? 22 : 26;
        for (const bool last : {true, false}) {
            const unsigned first = last ? line.first : line.first - 0x40;
            const Bytes header = encoded({.opcode = line.opcode, .last = last, .payload_bytes = 8});
            assert_same_bytes(std::span{header}.first(4), bytes({0, length, first, line.second}));
            const Segment segment = decoded(header);
            assert_true(segment.opcode == line.opcode);
            assert_int_equal(segment.last, last);
            assert_int_equal(segment.payload_bytes, 8);
        }
    }
}

void a_tagged_header(void **) {
    const Segment write{
        .opcode = Opcode::Write, .stag = 0x12345678, .offset = 0x1122334455667788, .payload_bytes = 0x0102};
    const Bytes expected =
        bytes({1, 16, 0xc1, 0x40, 0x12, 0x34, 0x56, 0x78, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88});
    assert_same_bytes(encoded(write), expected);
    const Segment segment = decoded(expected);
    assert_int_equal(segment.stag, write.stag);
    assert_int_equal(segment.offset, write.offset);
    assert_int_equal(segment.payload_bytes, write.payload_bytes);
}

void an_untagged_header(void **) {
    const Segment send{.opcode = Opcode::SendInvalidate,
                       .last = false,
                       .stag = 0xa1a2a3a4,
                       .offset = 0xb1b2b3b4,
                       .msn = 0xc1c2c3c4,
                       .payload_bytes = 0};
    const Bytes expected = bytes({0, 18, 0x01, 0x44, 0xa1, 0xa2, 0xa3, 0xa4, 0,    0,
                                  0, 0,  0xc1, 0xc2, 0xc3, 0xc4, 0xb1, 0xb2, 0xb3, 0xb4});
    assert_same_bytes(encoded(send), expected);
    const Segment segment = decoded(expected);
    assert_false(segment.last);
    assert_int_equal(segment.stag, send.stag);
    assert_int_equal(segment.msn, send.msn);
    assert_int_equal(segment.offset, send.offset);
    assert_true(segment.queue == Queue::Send);
}

Queue queue_in(Opcode opcode) {
    return Queue{std::to_integer<std::uint32_t>(encoded({.opcode = opcode})[11])};
}

void rfc5040_5_each_message_must_have_its_queue(void **) {
    assert_true(queue_in(Opcode::Send) == Queue::Send);
    assert_true(queue_in(Opcode::SendSolicitedInvalidate) == Queue::Send);
    assert_true(queue_in(Opcode::Immediate) == Queue::Send);
    assert_true(queue_in(Opcode::ReadRequest) == Queue::Request);
    assert_true(queue_in(Opcode::AtomicRequest) == Queue::Request);
    assert_true(queue_in(Opcode::FlushRequest) == Queue::Request);
    assert_true(queue_in(Opcode::Terminate) == Queue::Terminate);
    assert_true(queue_in(Opcode::AtomicResponse) == Queue::Response);
    assert_true(queue_in(Opcode::FlushResponse) == Queue::Response);
    assert_true(queue_in(Opcode::Acknowledgement) == Queue::Response);
}

void every_opcode_survives(void **) {
    for (const Opcode opcode : opcodes) {
        Segment segment{.opcode = opcode, .stag = 7, .offset = 9, .payload_bytes = 11};
        if (!is_tagged(opcode)) {
            segment.msn = 3;
        }
        const Bytes header = encoded(segment);
        assert_int_equal(header.size(), header_bytes(opcode));
        const Segment again = decoded(header);
        assert_true(again.opcode == opcode);
        assert_int_equal(again.stag, segment.stag);
        assert_int_equal(again.offset, segment.offset);
        assert_int_equal(again.msn, segment.msn);
        assert_int_equal(again.payload_bytes, segment.payload_bytes);
    }
}

// The bytes behind the header do not matter. A header that is not whole is neither good nor bad.
void waits_for_the_whole_header(void **) {
    for (const Opcode opcode : opcodes) {
        Bytes header = encoded({.opcode = opcode, .payload_bytes = 8});
        for (std::size_t size = 0; size < header.size(); ++size) {
            const auto part = decode_header(std::span{header}.first(size));
            assert_true(part.has_value());
            assert_false(part->has_value());
        }
        header.resize(header.size() + 100, std::byte{0xff});
        assert_int_equal(decoded(header).payload_bytes, 8);
    }
}

void the_longest_and_the_shortest(void **) {
    for (const Opcode opcode : opcodes) {
        const std::size_t fixed = header_bytes(opcode) - fpdu_length_bytes;
        Bytes header = encoded({.opcode = opcode});
        assert_int_equal(decoded(header).payload_bytes, 0);
        header[0] = header[1] = std::byte{0xff};
        assert_int_equal(decoded(header).payload_bytes, max_segment_bytes - fixed);
        for (std::size_t length = 0; length < fixed; ++length) {
            header[0] = std::byte{0};
            header[1] = static_cast<std::byte>(length);
            assert_refused(decode_header(header), terminate::mpa_frame);
        }
    }
}

void other_versions_are_refused(void **) {
    for (const unsigned version : {0U, 2U, 3U}) {
        assert_refused(decode_header(tagged(0xc040 | version << 8)), terminate::tagged_version);
        assert_refused(decode_header(untagged(0x4043 | version << 8, 0)), terminate::untagged_version);
        assert_refused(decode_header(tagged(0xc100 | version << 6)), terminate::rdmap_version);
        assert_refused(decode_header(untagged(0x4103 | version << 6, 0)), terminate::rdmap_version);
    }
}

void the_tagged_bit_must_fit_the_opcode(void **) {
    for (const Opcode opcode : opcodes) {
        const auto number = static_cast<unsigned>(opcode);
        if (is_tagged(opcode)) {
            assert_true(decode_header(tagged(0xc140 | number)).has_value());
            assert_refused(decode_header(untagged(0x4140 | number, 0)), terminate::unexpected_opcode);
        } else {
            assert_refused(decode_header(tagged(0xc140 | number)), terminate::unexpected_opcode);
        }
    }
    assert_refused(decode_header(tagged(0xc14f)), terminate::unexpected_opcode);
    assert_refused(decode_header(untagged(0x414e, 0)), terminate::unexpected_opcode);
}

void another_queue_is_refused(void **) {
    for (const Opcode opcode : opcodes) {
        if (is_tagged(opcode)) {
            continue;
        }
        const auto own = static_cast<unsigned>(queue_in(opcode));
        for (unsigned queue = 0; queue < 5; ++queue) {
            const auto segment = decode_header(untagged(0x4140 | static_cast<unsigned>(opcode), queue));
            if (queue == own) {
                assert_true(segment.has_value());
            } else {
                assert_refused(segment, terminate::untagged_queue);
            }
        }
        // All 32 bits of it count.
        Bytes header = encoded({.opcode = opcode});
        header[8] = std::byte{1};
        if (is_of_message(opcode)) {
            assert_true(decoded(header).queue == Queue{1U << 24});
        } else {
            assert_refused(decode_header(header), terminate::untagged_queue);
        }
    }
}

// Messages name shared queues from the first number on.
void messages_name_shared_queues(void **) {
    for (const Opcode opcode : opcodes) {
        if (!is_of_message(opcode)) {
            continue;
        }
        for (const unsigned number : {0x100U, 0x101U, 0xffff'ffffU}) {
            const Bytes header = encoded({.opcode = opcode, .queue = Queue{number}});
            assert_true(header[10] == std::byte(number >> 8 & 0xff));
            assert_true(decoded(header).queue == Queue{number});
        }
        assert_refused(decode_header(untagged(0x4140 | static_cast<unsigned>(opcode), 0xff)),
                       terminate::untagged_queue);
    }
}

// RFC 5041 section 4.2: the sender sets these bits to zero, and the receiver does not check them.
void rfc5041_4_1_reserved_bits_must_be_zero_and_not_checked(void **) {
    for (const unsigned reserved : {0x2000U, 0x1000U, 0x0800U, 0x0400U, 0x0020U, 0x0010U}) {
        assert_true(decoded(tagged(0xc140 | reserved)).opcode == Opcode::Write);
        assert_true(decoded(untagged(0x4143 | reserved, 0)).opcode == Opcode::Send);
    }
    for (const Opcode opcode : opcodes) {
        const Bytes header = encoded({.opcode = opcode});
        assert_true((header[2] & std::byte{0x3c}) == std::byte{0});
        assert_true((header[3] & std::byte{0x30}) == std::byte{0});
    }
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {cmocka_unit_test(golden_control_words),
                                cmocka_unit_test(a_tagged_header),
                                cmocka_unit_test(an_untagged_header),
                                cmocka_unit_test(rfc5040_5_each_message_must_have_its_queue),
                                cmocka_unit_test(every_opcode_survives),
                                cmocka_unit_test(waits_for_the_whole_header),
                                cmocka_unit_test(the_longest_and_the_shortest),
                                cmocka_unit_test(other_versions_are_refused),
                                cmocka_unit_test(the_tagged_bit_must_fit_the_opcode),
                                cmocka_unit_test(another_queue_is_refused),
                                cmocka_unit_test(messages_name_shared_queues),
                                cmocka_unit_test(rfc5041_4_1_reserved_bits_must_be_zero_and_not_checked)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
