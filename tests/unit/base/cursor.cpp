// SPDX-License-Identifier: BSD-3-Clause
// base/cursor: tests both byte orders, and that no byte beyond the bounds is touched, whatever is asked for.
#include "base/cursor.hpp"

#include <array>
#include <limits>

#include "check.hpp"

namespace {

using base::Reader;
using base::Writer;

constexpr std::array<std::byte, 8> counted{std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4},
                                           std::byte{5}, std::byte{6}, std::byte{7}, std::byte{8}};
constexpr std::byte untouched{0xee};

void reads_both_orders(void **) {
    assert_int_equal(Reader{counted}.big<std::uint8_t>(), 1);
    assert_int_equal(Reader{counted}.big<std::uint16_t>(), 0x0102);
    assert_int_equal(Reader{counted}.big<std::uint32_t>(), 0x01020304);
    assert_int_equal(Reader{counted}.big<std::uint64_t>(), 0x0102030405060708);
    assert_int_equal(Reader{counted}.little<std::uint16_t>(), 0x0201);
    assert_int_equal(Reader{counted}.little<std::uint32_t>(), 0x04030201);
    assert_int_equal(Reader{counted}.little<std::uint64_t>(), 0x0807060504030201);
}

void reads_in_sequence(void **) {
    Reader reader{counted};
    assert_int_equal(reader.big<std::uint8_t>(), 1);
    assert_int_equal(reader.big<std::uint32_t>(), 0x02030405);
    assert_int_equal(reader.left(), 3);
    const auto rest = reader.bytes(3);
    assert_ptr_equal(rest.data(), counted.data() + 5);
    assert_int_equal(rest.size(), 3);
    assert_int_equal(reader.left(), 0);
    assert_true(reader.ok());
    assert_int_equal(reader.bytes(0).size(), 0);
    assert_true(reader.ok());
}

void a_short_read_gives_nothing(void **) {
    for (std::size_t size = 0; size < sizeof(std::uint64_t); ++size) {
        Reader reader{std::span{counted}.first(size)};
        assert_int_equal(reader.big<std::uint64_t>(), 0);
        assert_false(reader.ok());
        assert_int_equal(reader.left(), size);
    }
    Reader reader{counted};
    assert_int_equal(reader.bytes(counted.size() + 1).size(), 0);
    assert_false(reader.ok());
    assert_int_equal(Reader{counted}.bytes(std::numeric_limits<std::size_t>::max()).size(), 0);
}

// One check at the end is enough, because later reads do not make a short read good again.
void a_short_read_is_remembered(void **) {
    Reader reader{std::span{counted}.first(3)};
    assert_int_equal(reader.big<std::uint32_t>(), 0);
    assert_int_equal(reader.big<std::uint16_t>(), 0x0102);
    assert_false(reader.ok());
}

void writes_both_orders(void **) {
    std::array<std::byte, 15> bytes;
    Writer writer{bytes};
    writer.big(std::uint8_t{0xa1});
    writer.big(std::uint16_t{0x0102});
    writer.big(std::uint32_t{0x03040506});
    writer.little(std::uint64_t{0x1122334455667788});
    assert_true(writer.ok());
    assert_int_equal(writer.used(), bytes.size());
    static constexpr unsigned char expected[] = {0xa1, 1,    2,    3,    4,    5,    6,   0x88,
                                                 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11};
    assert_memory_equal(bytes.data(), expected, sizeof(expected));
}

void a_write_that_does_not_fit_writes_nothing(void **) {
    std::array<std::byte, 16> bytes;
    bytes.fill(untouched);
    Writer writer{std::span{bytes}.first(5)};
    writer.big(std::uint32_t{0});
    writer.big(std::uint16_t{0});
    assert_false(writer.ok());
    assert_int_equal(writer.used(), 4);
    assert_true(bytes[4] == untouched);
    writer.bytes(counted);
    assert_int_equal(writer.used(), 4);
    writer.big(std::uint8_t{0});
    assert_int_equal(writer.used(), 5);
    assert_false(writer.ok());
    assert_true(bytes[5] == untouched);
}

void writes_what_was_read(void **) {
    std::array<std::byte, counted.size()> copy{};
    Reader reader{counted};
    Writer writer{copy};
    writer.big(reader.big<std::uint16_t>());
    writer.little(reader.little<std::uint32_t>());
    writer.bytes(reader.bytes(2));
    assert_true(reader.ok() && writer.ok());
    assert_memory_equal(copy.data(), counted.data(), counted.size());
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {cmocka_unit_test(reads_both_orders),
                                cmocka_unit_test(reads_in_sequence),
                                cmocka_unit_test(a_short_read_gives_nothing),
                                cmocka_unit_test(a_short_read_is_remembered),
                                cmocka_unit_test(writes_both_orders),
                                cmocka_unit_test(a_write_that_does_not_fit_writes_nothing),
                                cmocka_unit_test(writes_what_was_read)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
