// SPDX-License-Identifier: BSD-3-Clause
// stream/wire: tests the protocol's bytes, as librdmacm 44 sends them, and bytes that no peer may send.
#include "stream/wire.hpp"

#include <cerrno>
#include <vector>

#include "../base/check.hpp"

namespace {

using namespace stream;

template <typename... Values>
constexpr std::array<std::byte, sizeof...(Values)> bytes(Values... values) {
    return {static_cast<std::byte>(values)...};
}

// This request of librdmacm 44's rstream, with a receive buffer of 1 MiB, was captured on the wire.
constexpr auto measured =
    bytes(0x01, 0x02, 0x01, 0x80, 0, 0, 0, 0, 0, 0, 0x55, 0xd6, 0x5e, 0x6a, 0xa0, 0, 0, 0, 0x11, 0x22, 0, 0,
          0, 2, 0, 0, 0x7f, 0x24, 0xa3, 0x9e, 0xd0, 0, 0, 0, 0x11, 0x22, 0, 0x08, 0, 0);
static_assert(measured.size() == hello_bytes);

Hello seen_hello() {
    return {.big_endian = false,
            .counts_slots = false,
            .credits = 384,
            .slots = 0,
            .list = {.address = 0x55d65e6aa000, .key = 0x1122, .length = 2},
            .data = {.address = 0x7f24a39ed000, .key = 0x1122, .length = 524288}};
}

void a_hello_as_librdmacm_sends_it(void **) {
    const auto hello = decode_hello(measured);
    assert_true(hello.has_value());
    assert_true(*hello == seen_hello());
    assert_true(encode(seen_hello()) == measured);
}

void a_hello_that_librdmacm_takes_for_its_own(void **) {
    auto hello = seen_hello();
    hello.counts_slots = true;
    auto changed = measured;
    changed[1] = std::byte{6};
    assert_true(encode(hello) == changed);
    assert_true(decode_hello(changed) == hello);
}

void a_hello_may_be_followed_by_zeros(void **) {
    std::vector<std::byte> padded{measured.begin(), measured.end()};
    padded.resize(196);
    assert_true(decode_hello(padded) == seen_hello());
}

void assert_refused(std::size_t at, std::initializer_list<unsigned> values, int number) {
    auto changed = measured;
    for (const unsigned value : values) {
        changed[at++] = static_cast<std::byte>(value);
    }
    const auto hello = decode_hello(changed);
    assert_false(hello.has_value());
    assert_int_equal(hello.error().number, number);
}

void a_hello_that_nobody_can_keep(void **) {
    for (std::size_t size = 0; size < measured.size(); ++size) {
        const auto cut = decode_hello(std::span{measured}.first(size));
        assert_int_equal(cut.error().number, EPROTO);
    }
    assert_refused(0, {0}, ENOTSUP);
    assert_refused(0, {2}, ENOTSUP);
    assert_refused(2, {0, 0}, EPROTO);                                          // no credit
    assert_refused(20, {0, 0, 0, 1}, EPROTO);                                   // one window
    assert_refused(36, {0, 0, 0, 0}, EPROTO);                                   // no buffer
    assert_refused(8, {255, 255, 255, 255, 255, 255, 255, 255}, EPROTO);        // a list beyond memory
    assert_refused(24, {255, 255, 255, 255, 255, 255, 255, 0}, EPROTO);         // a buffer beyond memory
    assert_refused(7, {255, 255, 255, 255, 255, 255, 255, 255, 0xf0}, EPROTO);  // slots beyond memory
    assert_refused(8, {255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 1, 255, 255, 255, 255},
                   EPROTO);  // windows beyond memory
}

void slots_mean_nothing_without_their_flag(void **) {
    auto changed = measured;
    changed[1] = std::byte{1};
    changed[7] = std::byte{9};
    const auto hello = decode_hello(changed);
    assert_true(hello.has_value() && hello->big_endian);
    assert_int_equal(hello->slots, 0);
}

void numbers_of_slots(void **) {
    for (std::uint32_t value = 0; value <= 128; ++value) {
        assert_int_equal(from_scale(to_scale(value)), value);
    }
    assert_int_equal(from_scale(to_scale(256)), 256);
    assert_int_equal(from_scale(to_scale(511)), 256);
    assert_int_equal(from_scale(to_scale(32512)), 32512);
    assert_int_equal(from_scale(to_scale(65536)), 32512);
    assert_int_equal(to_scale(UINT32_MAX), 0xff);
}

void words(void **) {
    assert_int_equal(encode(Op::Data, 5), 5);
    assert_int_equal(encode(Op::Window, 0x180), 0x80000180);
    assert_int_equal(encode(Op::Slot, 3), 0xc0000003);
    assert_int_equal(encode(Op::Control, 2), 0xe0000002);
    const Word largest = decode_word(UINT32_MAX);
    assert_int_equal(largest.op, 7);
    assert_int_equal(largest.value, max_value);
}

void windows_and_slots_in_the_readers_order(void **) {
    const KeyedMemory memory{.address = 0x0102030405060708, .key = 0x090a0b0c, .length = 0x0d0e0f10};
    assert_true(encode_window(memory, std::endian::big) ==
                bytes(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16));
    assert_true(encode_window(memory, std::endian::little) ==
                bytes(8, 7, 6, 5, 4, 3, 2, 1, 12, 11, 10, 9, 16, 15, 14, 13));
    const Slot slot{.offset = 0x1112131415161718, .memory = memory};
    assert_true(encode_slot(slot, std::endian::big) ==
                bytes(17, 18, 19, 20, 21, 22, 23, 24, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16));
    assert_true(encode_slot(slot, std::endian::little) ==
                bytes(24, 23, 22, 21, 20, 19, 18, 17, 8, 7, 6, 5, 4, 3, 2, 1, 12, 11, 10, 9, 16, 15, 14, 13));
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(a_hello_as_librdmacm_sends_it),
        cmocka_unit_test(a_hello_that_librdmacm_takes_for_its_own),
        cmocka_unit_test(a_hello_may_be_followed_by_zeros),
        cmocka_unit_test(a_hello_that_nobody_can_keep),
        cmocka_unit_test(slots_mean_nothing_without_their_flag),
        cmocka_unit_test(numbers_of_slots),
        cmocka_unit_test(words),
        cmocka_unit_test(windows_and_slots_in_the_readers_order),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
