// SPDX-License-Identifier: BSD-3-Clause
// stream/window_list: tests windows that have arrived, windows that are
// on their way, and entries that are none.
#include "stream/window_list.hpp"

#include "../base/check.hpp"

namespace {

using namespace stream;
using Taken = WindowList::Taken;

constexpr std::uint32_t length = 0x012345;
constexpr KeyedMemory first{.address = 0x7f0000001000, .key = 7, .length = length};
constexpr KeyedMemory second{.address = 0x7f0000013345, .key = 7, .length = length};

struct Memory {
    alignas(8) std::array<std::byte, windows * window_bytes> bytes{};
    // Places the first bytes of a window.
    void place(std::size_t entry, const KeyedMemory &window, std::size_t count = window_bytes) {
        const auto written = encode_window(window, std::endian::native);
        std::copy_n(written.begin(), count,
                    bytes.begin() + static_cast<std::ptrdiff_t>(entry * window_bytes));
    }
};

void windows_come_in_turn(void **) {
    Memory memory;
    WindowList list{length};
    KeyedMemory window;
    assert_true(list.take(memory.bytes.data(), window) == Taken::None);
    memory.place(0, first);
    assert_true(list.take(memory.bytes.data(), window) == Taken::None);
    memory.place(1, second);
    assert_true(list.take(memory.bytes.data(), window) == Taken::Window && window == second);
    assert_true(list.take(memory.bytes.data(), window) == Taken::Window && window == first);
    assert_true(list.take(memory.bytes.data(), window) == Taken::None);
}

void a_part_of_a_window_is_none_yet(void **) {
    Memory memory;
    WindowList list{length};
    KeyedMemory window;
    for (std::size_t count = 0; count < window_bytes; ++count) {
        memory.place(1, second, count);
        const bool whole = count == window_bytes - 1;  // the length's last byte is 0
        assert_true(list.take(memory.bytes.data(), window) == (whole ? Taken::Window : Taken::None));
    }
    assert_true(window == second);
}

void another_length_is_nonsense(void **) {
    for (const std::uint32_t other : {1U, length + 1, length << 8, 0x450000U, UINT32_MAX}) {
        Memory memory;
        WindowList list{length};
        KeyedMemory window;
        memory.place(1, {.address = 1, .key = 7, .length = other});
        assert_true(list.take(memory.bytes.data(), window) == Taken::Nonsense);
    }
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(windows_come_in_turn),
        cmocka_unit_test(a_part_of_a_window_is_none_yet),
        cmocka_unit_test(another_length_is_nonsense),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
