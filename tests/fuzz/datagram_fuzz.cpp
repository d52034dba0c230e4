// SPDX-License-Identifier: BSD-3-Clause
// This target decodes any bytes as each kind of datagram of the soft device. At most one kind accepts them,
// and an accepted datagram encodes to the same bytes.
#include <algorithm>
#include <vector>

#include "choices.hpp"
#include "soft/wire/datagram.hpp"

namespace {

using namespace soft::wire;
using fuzz::require;

void require_inside(std::span<const std::byte> part, std::span<const std::byte> input) {
    require(part.empty() ||
                (part.data() >= input.data() && part.data() + part.size() <= input.data() + input.size()),
            "private data is inside the datagram");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    const auto input = std::as_bytes(std::span{data, size});
    int kinds = 0;
    if (const auto message = decode_message(input)) {
        ++kinds;
        require(input.size() >= message_header_bytes, "a message has its whole header");
        require(std::ranges::equal(encode(*message), input.first(message_header_bytes)),
                "an accepted message encodes to itself");
    }
    if (const auto request = decode_lookup_request(input)) {
        ++kinds;
        require_inside(request->private_data, input);
        require(std::ranges::equal(encode(*request), input), "an accepted request encodes to itself");
    }
    if (const auto reply = decode_lookup_reply(input)) {
        ++kinds;
        require_inside(reply->private_data, input);
        LookupReplyBytes room;
        const std::size_t length = encode(*reply, room);
        require(std::ranges::equal(std::span{room}.first(length), input),
                "an accepted reply encodes to itself");
    }
    require(kinds <= 1, "a datagram is of one kind");
    return 0;
}
