// SPDX-License-Identifier: BSD-3-Clause
// soft/wire/by_number: tests the private data of a request by number, byte by byte, and bytes that are none.
#include "soft/wire/by_number.hpp"

#include <string_view>
#include <utility>

#include "bytes.hpp"

namespace {

using namespace soft::wire;
using test::assert_same_bytes;
using test::Bytes;
using test::bytes;
using test::joined;

Bytes frame(unsigned type, unsigned padding) {
    return joined(bytes(std::string_view{"sNum"}),
                  bytes({type, 0x12, 0x84, 0x87, padding, 0x7e, 0xff, 0xff}));
}

void the_bytes_of_names(void **) {
    for (const auto type : {QueuePairType::Reliable, QueuePairType::Unreliable, QueuePairType::XrcSend,
                            QueuePairType::XrcReceive}) {
        const QueuePairNames names{.type = type, .destination = 0x128487, .source = 0x7effff};
        assert_same_bytes(encode(names), frame(std::to_underlying(type), 0));
        const auto decoded = decode_names(encode(names));
        assert_true(decoded == names);
    }
}

void what_names_no_queue_pairs(void **) {
    const Bytes right = frame(1, 0);
    for (std::size_t size = 0; size < right.size(); ++size) {
        assert_false(decode_names(std::span{right}.first(size)).has_value());
    }
    assert_false(decode_names(joined(right, bytes({0}))).has_value());
    assert_false(decode_names(frame(0, 0)).has_value());
    assert_false(decode_names(frame(5, 0)).has_value());
    assert_false(decode_names(frame(1, 1)).has_value());
    const QueuePairNames of_datagrams{.destination = soft::wire::first_datagram_number, .source = 1};
    assert_false(decode_names(encode(of_datagrams)).has_value());
    Bytes other = right;
    other[0] = std::byte{'S'};
    assert_false(decode_names(other).has_value());
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(the_bytes_of_names),
        cmocka_unit_test(what_names_no_queue_pairs),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
