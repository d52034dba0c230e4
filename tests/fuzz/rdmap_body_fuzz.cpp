// SPDX-License-Identifier: BSD-3-Clause
// This target decodes the bodies of read requests, flush requests, TERMINATE and immediate data. The first
// byte chooses the kind. An accepted body encodes to the same bytes.
#include <algorithm>

#include "choices.hpp"
#include "soft/wire/rdmap.hpp"

namespace {

using namespace soft::wire;
using fuzz::require;

template <typename Body>
void check(std::span<const std::byte> input, const Decoded<Body> &body, std::size_t size) {
    if (!body) {
        require(body.error().text != nullptr, "a refusal says why");
        return;
    }
    require(input.size() == size, "an accepted body has its length");
    require(std::ranges::equal(encode(*body), input), "accepted bytes encode to themselves");
}

void check_terminate(std::span<const std::byte> input) {
    const auto code = decode_terminate(input);
    require(code.has_value() == (input.size() >= terminate_bytes),
            "TERMINATE is refused for its length only");
    if (code) {
        require(code->layer < 16 && code->type < 16, "layer and type have four bits");
        const auto again = encode(*code);
        require(std::ranges::equal(std::span{again}.first(2), input.first(2)),
                "accepted codes encode to themselves");
    }
}

void check_immediate(std::span<const std::byte> input) {
    const auto immediate = decode_immediate(input);
    require(immediate.has_value() == (input.size() == immediate_bytes),
            "immediate data is refused for its length only");
    if (immediate) {
        const auto again = encode(*immediate);
        require(std::ranges::equal(std::span{again}.first(immediate->size()), input.first(immediate->size())),
                "accepted immediate data encodes to itself");
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    const auto input = std::as_bytes(std::span{data, size});
    if (input.empty()) {
        return 0;
    }
    const auto body = input.subspan(1);
    switch (data[0] % 4) {
        case 0:
            check(body, decode_read_request(body), read_request_bytes);
            break;
        case 1:
            check(body, decode_flush_request(body), flush_request_bytes);
            break;
        case 2:
            check_terminate(body);
            break;
        default:
            check_immediate(body);
            break;
    }
    return 0;
}
