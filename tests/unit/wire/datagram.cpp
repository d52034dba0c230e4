// SPDX-License-Identifier: BSD-3-Clause
// soft/wire/datagram: tests the three datagrams, byte by byte, and bytes that are none of them.
#include "soft/wire/datagram.hpp"

#include <string>

#include "bytes.hpp"

namespace {

using namespace soft::wire;
using test::assert_same_bytes;
using test::Bytes;
using test::bytes;
using test::joined;

Bytes prefix(unsigned kind, unsigned extra) {
    return joined(bytes(std::string_view{"sRUD"}), bytes({1, kind, extra >> 8, extra & 0xff}));
}

const Bytes numbers =
    bytes({0, 0x9a, 0x80, 0x01, 0, 0x8b, 0x12, 0x34, 1, 0x23, 0x45, 0x67, 0xde, 0xad, 0xbe, 0xef});
const Bytes token = bytes({1, 2, 3, 4, 5, 6, 7, 8});
constexpr std::uint64_t token_value = 0x0102030405060708;

Bytes padded(Bytes request) {
    request.resize(lookup_request_bytes);
    return request;
}

void the_bytes_of_a_message(void **) {
    const MessageHeader header{.solicited = true,
                               .has_immediate = true,
                               .destination = 0x9a8001,
                               .source = 0x8b1234,
                               .qkey = 0x01234567,
                               .immediate = 0xdeadbeef};
    const Bytes expected = joined(prefix(1, 3), numbers);
    assert_same_bytes(encode(header), expected);
    const auto decoded = decode_message(joined(expected, bytes(std::string_view{"payload"})));
    assert_true(decoded.has_value());
    assert_true(decoded->solicited && decoded->has_immediate);
    assert_int_equal(decoded->destination, header.destination);
    assert_int_equal(decoded->source, header.source);
    assert_int_equal(decoded->qkey, header.qkey);
    assert_int_equal(decoded->immediate, header.immediate);
}

void the_bytes_of_a_request(void **) {
    const Bytes data = bytes(std::string_view{"who"});
    const Bytes expected = padded(joined(prefix(2, 3), token, data));
    assert_same_bytes(encode(LookupRequest{.token = token_value, .private_data = data}), expected);
    const auto decoded = decode_lookup_request(expected);
    assert_true(decoded.has_value());
    assert_true(decoded->token == token_value);
    assert_same_bytes(decoded->private_data, data);
}

void the_bytes_of_a_reply(void **) {
    const Bytes data = bytes(std::string_view{"me"});
    const Bytes expected =
        joined(prefix(3, 2), token, bytes({0, 0, 0, 2, 0, 0x9a, 0x80, 1, 1, 0x23, 0x45, 0x67}), data);
    LookupReplyBytes room;
    const std::size_t size = encode(LookupReply{.token = token_value,
                                                .status = LookupStatus::Rejected,
                                                .qp_num = 0x9a8001,
                                                .qkey = 0x01234567,
                                                .private_data = data},
                                    room);
    assert_same_bytes(std::span{room}.first(size), expected);
    const auto decoded = decode_lookup_reply(expected);
    assert_true(decoded.has_value());
    assert_true(decoded->token == token_value && decoded->status == LookupStatus::Rejected);
    assert_int_equal(decoded->qp_num, 0x9a8001);
    assert_int_equal(decoded->qkey, 0x01234567);
    assert_same_bytes(decoded->private_data, data);
}

// Returns a sound datagram with one byte changed, at `offset`.
Bytes with(Bytes datagram, std::size_t offset, unsigned value) {
    datagram[offset] = static_cast<std::byte>(value);
    return datagram;
}

void what_is_not_a_message(void **) {
    const Bytes message = joined(prefix(1, 3), numbers);
    assert_true(decode_message(message).has_value());
    assert_false(decode_message(Bytes(message.begin(), message.end() - 1)).has_value());
    assert_false(decode_message(with(message, 0, 'S')).has_value());
    assert_false(decode_message(with(message, 4, 2)).has_value());  // version
    assert_false(decode_message(with(message, 5, 2)).has_value());  // kind
    assert_false(decode_message(with(message, 7, 7)).has_value());  // an unknown flag
    assert_false(decode_message(with(message, 7, 1)).has_value());  // an immediate that is not announced
    assert_false(decode_message(with(message, 8, 1)).has_value());  // 25 bits of queue pair
    assert_false(decode_message(with(message, 12, 0x80)).has_value());
}

void what_is_not_a_request(void **) {
    const Bytes request = padded(joined(prefix(2, 3), token, bytes({1, 2, 3})));
    assert_true(decode_lookup_request(request).has_value());
    assert_false(decode_lookup_request(joined(request, bytes({0}))).has_value());
    assert_false(decode_lookup_request(Bytes(request.begin(), request.end() - 1)).has_value());
    assert_false(decode_lookup_request(with(request, 7, lookup_max_private_bytes + 1)).has_value());
    assert_false(decode_lookup_request(with(request, 195, 1)).has_value());  // behind the private data
    assert_false(decode_lookup_request(with(request, 5, 3)).has_value());
}

void what_is_not_a_reply(void **) {
    const Bytes reply = joined(prefix(3, 0), token, bytes({0, 0, 0, 0, 0, 0x9a, 0x80, 1, 0, 0, 0, 0}));
    assert_true(decode_lookup_reply(reply).has_value());
    assert_false(decode_lookup_reply(joined(reply, bytes({0}))).has_value());
    assert_false(decode_lookup_reply(Bytes(reply.begin(), reply.end() - 1)).has_value());
    assert_false(decode_lookup_reply(with(reply, 7, 1)).has_value());   // says more than it has
    assert_false(decode_lookup_reply(with(reply, 19, 1)).has_value());  // an unknown status
    assert_false(decode_lookup_reply(with(reply, 20, 1)).has_value());  // 25 bits of queue pair
    Bytes longer = prefix(3, reply_max_private_bytes + 1);
    longer.resize(reply_header_bytes + reply_max_private_bytes + 1);
    assert_false(decode_lookup_reply(longer).has_value());
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(the_bytes_of_a_message), cmocka_unit_test(the_bytes_of_a_request),
        cmocka_unit_test(the_bytes_of_a_reply),   cmocka_unit_test(what_is_not_a_message),
        cmocka_unit_test(what_is_not_a_request),  cmocka_unit_test(what_is_not_a_reply),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
