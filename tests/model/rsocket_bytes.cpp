// SPDX-License-Identifier: BSD-3-Clause
#include "rsocket_bytes.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

namespace model {

namespace {

// A prime, so that no power of two of bytes looks like none.
constexpr std::size_t pattern_bytes = 65'521;

const std::array<std::byte, pattern_bytes> &pattern() {
    static const auto made = [] {
        std::array<std::byte, pattern_bytes> bytes{};
        std::mt19937 random{7};
        std::ranges::generate(bytes, [&] { return static_cast<std::byte>(random()); });
        return bytes;
    }();
    return made;
}

}  // namespace

std::size_t Dice::size() {
    switch (below(8)) {
        case 0:
            return below(3);
        case 1:
        case 2:
        case 3:
            return 1 + below(64);
        case 4:
        case 5:
            return below(3000);
        case 6:
            return below(20'000);
        default:
            return one_in(8) ? below(most_bytes) : below(5000);
    }
}

void Bytes::begin(std::uint64_t salt) {
    *this = {};
    salt_ = salt % pattern_bytes;
}

void Bytes::fill(std::uint64_t from, std::span<std::byte> bytes) const {
    std::size_t at = static_cast<std::size_t>((salt_ + from) % pattern_bytes);
    while (!bytes.empty()) {
        const std::size_t size = std::min(bytes.size(), pattern_bytes - at);
        std::memcpy(bytes.data(), pattern().data() + at, size);
        bytes = bytes.subspan(size);
        at = 0;
    }
}

bool Bytes::are_next(std::span<const std::byte> bytes) const {
    thread_local std::vector<std::byte> expected;
    expected.resize(bytes.size());
    fill(received_, expected);
    return bytes.size() <= on_their_way() && std::ranges::equal(bytes, expected);
}

}  // namespace model
