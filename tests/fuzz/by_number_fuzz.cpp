// SPDX-License-Identifier: BSD-3-Clause
// This target decodes the names that a queue pair by number has in its start-up frame. Accepted names fit
// into 24 bits and encode to the same bytes; no part of them, and nothing longer, is accepted.
#include "soft/wire/by_number.hpp"

#include <algorithm>
#include <vector>

#include "choices.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    using namespace soft::wire;
    using fuzz::require;
    const auto input = std::as_bytes(std::span{data, size});
    const auto names = decode_names(input);
    if (!names) {
        return 0;
    }
    require(names->destination < 1U << 24 && names->source < 1U << 24, "a number has 24 bits");
    require(std::ranges::equal(encode(*names), input), "accepted bytes encode to themselves");
    for (std::size_t shorter = 0; shorter < size; ++shorter) {
        require(!decode_names(input.first(shorter)), "a part of the names is refused");
    }
    std::vector<std::byte> longer(input.begin(), input.end());
    longer.push_back(std::byte{0});
    require(!decode_names(longer), "what is longer is refused");
    return 0;
}
