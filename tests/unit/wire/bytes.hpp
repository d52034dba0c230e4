// SPDX-License-Identifier: BSD-3-Clause
// The tests of the codecs write bytes as a specification prints them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "soft/wire/violation.hpp"

// Last, as it wants.
#include "../base/check.hpp"

namespace test {

using Bytes = std::vector<std::byte>;

inline Bytes bytes(std::initializer_list<unsigned> values) {
    Bytes all;
    for (const unsigned value : values) {
        all.push_back(static_cast<std::byte>(value));
    }
    return all;
}

inline Bytes bytes(std::string_view text) {
    const auto raw = std::as_bytes(std::span{text});
    return {raw.begin(), raw.end()};
}

template <typename... More>
Bytes joined(Bytes first, const More &...more) {
    (first.insert(first.end(), more.begin(), more.end()), ...);
    return first;
}

inline void assert_same_bytes(std::span<const std::byte> seen, std::span<const std::byte> expected) {
    assert_int_equal(seen.size(), expected.size());
    assert_memory_equal(seen.data(), expected.data(), expected.size());
}

// Asserts that the codec refused the bytes with this code.
template <typename T>
void assert_refused(const soft::wire::Decoded<T> &decoded, const soft::wire::TerminateCode &code) {
    assert_false(decoded.has_value());
    assert_true(decoded.error().text != nullptr && decoded.error().text[0] != '\0');
    assert_int_equal(decoded.error().code.layer, code.layer);
    assert_int_equal(decoded.error().code.type, code.type);
    assert_int_equal(decoded.error().code.code, code.code);
}

}  // namespace test
