// SPDX-License-Identifier: BSD-3-Clause
// soft/wire/mpa: tests FPDU framing: pad, trailer, CRC32C (RFC 5044 section 4, the vectors of RFC 3720
// appendix B.4).
#include "bytes.hpp"
#include "soft/wire/ddp.hpp"
#include "soft/wire/mpa.hpp"

namespace {

using namespace soft::wire;
using test::assert_same_bytes;
using test::Bytes;
using test::bytes;

void pads_to_four_bytes(void **) {
    assert_int_equal(fpdu_pad_bytes(2), 0);
    assert_int_equal(fpdu_pad_bytes(3), 3);
    assert_int_equal(fpdu_pad_bytes(4), 2);
    assert_int_equal(fpdu_pad_bytes(5), 1);
    assert_int_equal(fpdu_pad_bytes(6), 0);
    for (std::size_t size = 0; size <= max_segment_bytes; ++size) {
        assert_true(fpdu_pad_bytes(size) <= 3);
        assert_int_equal((fpdu_length_bytes + size + fpdu_pad_bytes(size)) % 4, 0);
        assert_int_equal(fpdu_trailer_bytes(size), fpdu_pad_bytes(size) + fpdu_crc_bytes);
        assert_true(fpdu_trailer_bytes(size) <= fpdu_max_trailer_bytes);
    }
}

void an_fpdu_is_all_of_it(void **) {
    // Length field and header, payload, pad, CRC.
    assert_int_equal(fpdu_bytes({.opcode = Opcode::Write}), 16 + 0 + 0 + 4);
    assert_int_equal(fpdu_bytes({.opcode = Opcode::Write, .payload_bytes = 8}), 16 + 8 + 0 + 4);
    assert_int_equal(fpdu_bytes({.opcode = Opcode::Write, .payload_bytes = 9}), 16 + 9 + 3 + 4);
    assert_int_equal(fpdu_bytes({.opcode = Opcode::Send, .payload_bytes = 3}), 20 + 3 + 1 + 4);
    assert_int_equal(fpdu_bytes({.opcode = Opcode::ReadRequest, .payload_bytes = 28}), 48 + 4);
    assert_int_equal(segment_bytes({.opcode = Opcode::Terminate, .payload_bytes = 4}), 22);
}

Bytes counting(unsigned from, int step) {
    Bytes all;
    for (int i = 0; i < 32; ++i) {
        all.push_back(static_cast<std::byte>(static_cast<int>(from) + i * step));
    }
    return all;
}

struct Vector {
    Bytes data;
    Bytes digest;
};

std::vector<Vector> vectors() {
    return {
        {{}, bytes({0, 0, 0, 0})},
        {bytes(std::string_view{"123456789"}), bytes({0x83, 0x92, 0x06, 0xe3})},
        {Bytes(32, std::byte{0}), bytes({0xaa, 0x36, 0x91, 0x8a})},
        {Bytes(32, std::byte{0xff}), bytes({0x43, 0xab, 0xa8, 0x62})},
        {counting(0, 1), bytes({0x4e, 0x79, 0xdd, 0x46})},
        {counting(31, -1), bytes({0x5c, 0xdb, 0x3f, 0x11})},
        // An iSCSI READ (10) command.
        {bytes({0x01, 0xc0, 0, 0,    0, 0, 0, 0,    0,    0, 0, 0, 0, 0, 0, 0, 0x14, 0, 0, 0, 0, 0, 0x04, 0,
                0,    0,    0, 0x14, 0, 0, 0, 0x18, 0x28, 0, 0, 0, 0, 0, 0, 0, 0x02, 0, 0, 0, 0, 0, 0,    0}),
         bytes({0x56, 0x3a, 0x96, 0xd9})},
    };
}

void known_checksums(void **) {
    for (const Vector &vector : vectors()) {
        Crc crc;
        crc.feed(vector.data);
        assert_same_bytes(crc.digest(), vector.digest);
    }
}

void pieces_add_up(void **) {
    for (const Vector &vector : vectors()) {
        for (std::size_t cut = 0; cut <= vector.data.size(); ++cut) {
            Crc crc;
            crc.feed(std::span{vector.data}.first(cut));
            (void)crc.digest();  // a look does not change it
            crc.feed({});
            crc.feed(std::span{vector.data}.subspan(cut));
            assert_same_bytes(crc.digest(), vector.digest);
        }
    }
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {cmocka_unit_test(pads_to_four_bytes), cmocka_unit_test(an_fpdu_is_all_of_it),
                                cmocka_unit_test(known_checksums), cmocka_unit_test(pieces_add_up)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
