// SPDX-License-Identifier: BSD-3-Clause
// The tests of room cli share this header: it has cmocka for C++, and helpers for bytes.
#pragma once

#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

extern "C" {
#include <cmocka.h>
}
// cmocka's macro would break each header of standard streams that is included behind it.
#undef fail

template <typename Container>
void flip(Container &bytes, std::size_t bit) {
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
}

// Asserts that the call failed, and that the text of its failure contains this part.
template <typename Outcome>
void assert_fails(const Outcome &outcome, std::string_view part) {
    assert_false(outcome.has_value());
    if (!outcome.error().text.contains(part)) {
        print_error("\"%s\" does not say \"%.*s\"\n", outcome.error().text.c_str(),
                    static_cast<int>(part.size()), part.data());
        _fail(__FILE__, __LINE__);
    }
}
