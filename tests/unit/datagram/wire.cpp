// SPDX-License-Identifier: BSD-3-Clause
// datagram/wire: tests the bytes that stand in front of a message, one by one, and
// bytes that cannot stand there.
#include "datagram/wire.hpp"

#include <vector>

#include "../base/check.hpp"

namespace {

using namespace datagram;
using Bytes = std::vector<std::byte>;

Bytes bytes(std::initializer_list<int> values) {
    Bytes all;
    for (const int value : values) {
        all.push_back(static_cast<std::byte>(value));
    }
    return all;
}

const Ip ip4 = Ip::of_v4({.s_addr = htonl(0xc0000201)});
const Ip ip6{{0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9}};
const Bytes envelope4 = bytes({0x55, 0x55, 0x55, 0x55, 4, 0, 16, 0, 0, 0x12, 0x34, 0x56, 0xc0, 0, 2, 1});
const Bytes envelope6 = bytes({0x55, 0x55, 0x55, 0x55, 6, 7, 28, 0, 0, 0x12, 0x34, 0x56, 0x20, 0x01,
                               0x0d, 0xb8, 0,    0,    0, 0, 0,  0, 0, 0,    0,    0,    0,    9});
const Bytes label4 = bytes({4, 8, 0x1c, 0x24, 0xc0, 0, 2, 1});
const Bytes label6 =
    bytes({6, 24, 0x1c, 0x24, 0, 0, 0, 0, 0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9});

template <typename T>
Bytes encoded(const T &header, std::size_t size) {
    Bytes out(size);
    encode(header, out);
    return out;
}

void envelopes(void **) {
    const Envelope message{.op = Op::Message, .qp_num = 0x123456, .ip = ip4};
    const Envelope answer{.op = Op::Answer, .qp_num = 0x123456, .ip = ip6};
    assert_true(encoded(message, envelope_bytes(ip4)) == envelope4);
    assert_true(encoded(answer, envelope_bytes(ip6)) == envelope6);
    assert_true(decode_envelope(envelope4) == message);
    assert_true(decode_envelope(envelope6) == answer);
    Bytes with_content = envelope4;
    with_content.resize(2000);
    assert_true(decode_envelope(with_content) == message);
}

// Nobody uses the upper eight bits of a queue pair's number.
void a_number_has_24_bits(void **) {
    Bytes large = envelope4;
    large[8] = std::byte{0xff};
    assert_true(decode_envelope(large) == decode_envelope(envelope4));
    assert_true(encoded(Envelope{.qp_num = 0xff123456, .ip = ip4}, 16) == envelope4);
}

void labels(void **) {
    const Address from4{.ip = ip4, .port = 7204};
    const Address from6{.ip = ip6, .port = 7204};
    assert_true(encoded(from4, label_bytes(ip4)) == label4);
    assert_true(encoded(from6, label_bytes(ip6)) == label6);
    assert_true(decode_label(label4) == from4);
    assert_true(decode_label(label6) == from6);
}

// The test changes every byte that has one meaning to every other value, and tries
// every length that is too short.
void what_is_none(void **) {
    const auto each_wrong = [](const Bytes &good, std::span<const std::size_t> fixed, auto decode) {
        for (const std::size_t at : fixed) {
            for (int value = 0; value < 256; ++value) {
                Bytes wrong = good;
                wrong[at] = static_cast<std::byte>(value);
                assert_int_equal(decode(wrong).has_value(), wrong == good);
            }
        }
        for (std::size_t size = 0; size < good.size(); ++size) {
            assert_false(decode(std::span{good}.first(size)).has_value());
        }
    };
    constexpr std::array<std::size_t, 6> fixed_in_envelope{0, 1, 2, 3, 4, 6};
    constexpr std::array<std::size_t, 2> fixed_in_label{0, 1};
    each_wrong(envelope4, fixed_in_envelope, decode_envelope);
    each_wrong(envelope6, fixed_in_envelope, decode_envelope);
    each_wrong(label4, fixed_in_label, decode_label);
    each_wrong(label6, fixed_in_label, decode_label);
    for (int what = 0; what < 256; ++what) {
        Bytes other = envelope4;
        other[5] = static_cast<std::byte>(what);
        assert_int_equal(decode_envelope(other).has_value(), what == 0 || what == 7);
    }
    Bytes no_port = label4;
    no_port[2] = no_port[3] = std::byte{0};
    assert_false(decode_label(no_port).has_value());
    // The IPv4 address has the form of an IPv6 one.
    assert_false(decode_envelope(encoded(Envelope{.ip = ip6}, 28)) == std::nullopt);
    Bytes mapped = envelope6;
    std::ranges::copy(std::as_bytes(std::span{ip4.bytes}), mapped.begin() + 12);
    assert_false(decode_envelope(mapped).has_value());
}

void whose_address_it_is(void **) {
    Ip shifted;
    std::copy_n(ip6.bytes.begin(), 12, shifted.bytes.begin() + 4);
    Ip other = ip6;
    other.bytes[3] = 0;
    assert_true(names({.ip = ip4}, ip4));
    assert_false(names({.ip = ip4}, Ip::of_v4({.s_addr = htonl(0xc0000202)})));
    assert_true(names({.ip = ip6}, ip6));
    assert_true(names({.ip = shifted}, ip6));  // as librdmacm has it
    assert_false(names({.ip = other}, ip6));
    assert_false(names({.ip = shifted}, other));
}

void sizes(void **) {
    assert_int_equal(most_message_bytes(ip4), 2032);
    assert_int_equal(most_message_bytes(ip6), 2020);
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(envelopes),    cmocka_unit_test(a_number_has_24_bits), cmocka_unit_test(labels),
        cmocka_unit_test(what_is_none), cmocka_unit_test(whose_address_it_is),  cmocka_unit_test(sizes)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
