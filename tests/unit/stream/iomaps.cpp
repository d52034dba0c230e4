// SPDX-License-Identifier: BSD-3-Clause
// stream/iomaps: tests the mappings of a peer, also of one that lies,
// and what a peer gets to know about ours.
#include "stream/iomaps.hpp"

#include <array>

#include "../base/check.hpp"

namespace {

using namespace stream;

constexpr Slot slot(std::uint64_t offset, std::uint64_t address, std::uint32_t bytes) {
    return {.offset = offset, .memory = {.address = address, .key = 7, .length = bytes}};
}

void assert_found(const PeerMaps &maps, std::uint64_t offset, std::uint64_t address, std::uint32_t bytes) {
    assert_true(maps.find(offset) == (KeyedMemory{.address = address, .key = 7, .length = bytes}));
}

void bytes_are_where_the_peer_says(void **) {
    PeerMaps maps{2};
    assert_false(maps.find(0).has_value());
    assert_true(maps.set(1, slot(100, 0x1000, 50)));
    assert_false(maps.find(99).has_value());
    assert_found(maps, 100, 0x1000, 50);
    assert_found(maps, 149, 0x1031, 1);
    assert_false(maps.find(150).has_value());
    assert_true(maps.set(1, slot(0, 0x2000, 10)));
    assert_found(maps, 9, 0x2009, 1);
    assert_false(maps.find(100).has_value());
    assert_true(maps.set(1, {}));
    assert_false(maps.find(0).has_value());
}

void the_youngest_of_several_counts(void **) {
    PeerMaps maps{4};
    assert_true(maps.set(3, slot(0, 0x1000, 100)));
    assert_true(maps.set(0, slot(40, 0x2000, 20)));
    assert_found(maps, 0, 0x1000, 40);
    assert_found(maps, 40, 0x2000, 20);
    assert_found(maps, 60, 0x103c, 40);
    assert_true(maps.set(2, slot(30, 0x3000, 20)));
    assert_found(maps, 0, 0x1000, 30);
    assert_found(maps, 30, 0x3000, 20);
    assert_found(maps, 50, 0x200a, 10);
    assert_true(maps.set(3, slot(0, 0x4000, 100)));
    assert_found(maps, 0, 0x4000, 100);
    assert_true(maps.set(3, {}));
    assert_false(maps.find(0).has_value());
    assert_found(maps, 49, 0x3013, 1);
}

void slots_that_cannot_be(void **) {
    PeerMaps none{0};
    assert_false(none.set(0, slot(0, 0x1000, 1)));
    assert_false(none.set(0, {}));
    PeerMaps maps{2};
    assert_false(maps.set(2, slot(0, 0x1000, 1)));
    assert_false(maps.set(UINT32_MAX, slot(0, 0x1000, 1)));
    assert_false(maps.set(max_value, {}));
    assert_false(maps.set(0, slot(0, 0, 1)));
    assert_false(maps.set(0, slot(0, UINT64_MAX, 2)));
    assert_false(maps.set(0, slot(UINT64_MAX, 0x1000, 2)));
    assert_false(maps.find(UINT64_MAX).has_value());
    // These are the last bytes of the address space.
    assert_true(maps.set(0, slot(UINT64_MAX - UINT32_MAX, UINT64_MAX - UINT32_MAX, UINT32_MAX)));
    assert_found(maps, UINT64_MAX - 1, UINT64_MAX - 1, 1);
    assert_false(maps.find(UINT64_MAX).has_value());
    // One slot that is written again and again is one mapping.
    for (std::uint64_t time = 1; time <= 1000; ++time) {
        assert_true(maps.set(1, slot(time * 10, 0x1000, 10)));
        assert_false(maps.find((time - 1) * 10).has_value());
    }
}

std::array<char, 3> memory;

char *byte(std::size_t index) {
    return memory.data() + index;
}

void assert_news(OwnMaps &maps, std::uint32_t index, const Slot &expected) {
    assert_true(maps.has_news());
    const auto news = maps.take_news();
    assert_int_equal(news.index, index);
    assert_true(news.slot == expected);
}

void the_peer_is_told_once(void **) {
    OwnMaps maps{2};
    maps.add(byte(0), 1, {}, slot(1, 0x1000, 1));
    assert_true(maps.has_slot());
    maps.add(byte(1), 1, {}, slot(2, 0x1001, 1));
    assert_false(maps.has_slot());
    maps.add(byte(2), 1, {}, std::nullopt);
    assert_news(maps, 0, slot(1, 0x1000, 1));
    assert_news(maps, 1, slot(2, 0x1001, 1));
    assert_false(maps.has_news());
    assert_true(maps.remove(byte(0), 1).has_value());
    assert_true(maps.has_slot());
    assert_news(maps, 0, slot(1, 0x1000, 0));
    assert_true(maps.remove(byte(2), 1).has_value());
    assert_false(maps.has_news());
    assert_false(maps.remove(byte(2), 1).has_value());
    assert_false(maps.remove(byte(1), 2).has_value());
    assert_false(maps.remove(byte(0), 1).has_value());
}

// The news of a slot stay one item while the stream cannot send them.
void news_do_not_pile_up(void **) {
    OwnMaps maps{2};
    maps.add(byte(1), 1, {}, slot(7, 0x1001, 1));
    for (std::uint64_t time = 0; time < 1000; ++time) {
        maps.add(byte(0), 1, {}, slot(time, 0x1000, 1));
        assert_true(maps.remove(byte(0), 1).has_value());
    }
    maps.add(byte(0), 1, {}, slot(9, 0x1000, 1));
    assert_news(maps, 0, slot(7, 0x1001, 1));
    assert_news(maps, 1, slot(9, 0x1000, 1));
    assert_false(maps.has_news());
    maps.add(byte(2), 1, {}, std::nullopt);
    assert_true(maps.remove(byte(0), 1).has_value());
    assert_true(maps.clear().has_value());
    assert_false(maps.has_news());
    assert_false(maps.remove(byte(1), 1).has_value());
}

// A peer that reads in the middle of the second write gets nothing, or a part of the mapped bytes.
void a_slot_is_emptied_before_it_is_used_again(void **) {
    OwnMaps maps{1};
    maps.add(byte(0), 1, {}, slot(1, 0x1000, 5));
    assert_news(maps, 0, slot(1, 0x1000, 5));
    for (std::uint64_t time = 2; time < 5; ++time) {
        assert_true(maps.remove(byte(0), 1).has_value());
        maps.add(byte(0), 1, {}, slot(time, 0x1000 * time, 5));
    }
    assert_news(maps, 0, slot(1, 0x1000, 0));
    assert_news(maps, 0, slot(4, 0x4000, 5));
    assert_false(maps.has_news());
}

void no_slot_for_a_peer_without_any(void **) {
    const OwnMaps maps{0};
    assert_false(maps.has_slot());
    assert_false(maps.has_news());
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_where_the_peer_says),
        cmocka_unit_test(the_youngest_of_several_counts),
        cmocka_unit_test(slots_that_cannot_be),
        cmocka_unit_test(the_peer_is_told_once),
        cmocka_unit_test(a_slot_is_emptied_before_it_is_used_again),
        cmocka_unit_test(news_do_not_pile_up),
        cmocka_unit_test(no_slot_for_a_peer_without_any),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
