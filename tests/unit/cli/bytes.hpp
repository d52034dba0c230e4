// SPDX-License-Identifier: BSD-3-Clause
// What the tests of room cli share: cmocka for C++, and bytes.
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
// The macro would break every standard stream header behind it.
#undef fail

template <typename Container>
void flip(Container &bytes, std::size_t bit) {
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
}

// A failure whose text has this part: that it names the thing, or what was expected.
template <typename Outcome>
void assert_fails(const Outcome &outcome, std::string_view part) {
    assert_false(outcome.has_value());
    if (!outcome.error().text.contains(part)) {
        print_error("\"%s\" does not say \"%.*s\"\n", outcome.error().text.c_str(),
                    static_cast<int>(part.size()), part.data());
        _fail(__FILE__, __LINE__);
    }
}
