// SPDX-License-Identifier: BSD-3-Clause
// cli/pool_format: every byte of a pool's control structures is what the comment says, and any wrong bit is
// noticed.
#include "cli/pool_format.hpp"

#include <algorithm>
#include <array>

#include "bytes.hpp"
#include "cli/checksum.hpp"

namespace {

constexpr cli::Layout layout{.capacity = 10'000};

using Control = std::array<std::byte, cli::Layout::control_size>;

Control control_with(const cli::Content &content) {
    Control control{};
    std::ranges::copy(content.word(), control.begin() + cli::Layout::commit_word);
    std::ranges::copy(content.header(), control.begin() + cli::Layout::header(content.slot));
    return control;
}

void checksum_is_crc32c(void **) {
    constexpr std::string_view check = "123456789";
    const auto bytes = std::as_bytes(std::span{check});
    assert_int_equal(cli::crc32c(bytes), 0xe3069283);
    assert_int_equal(cli::crc32c({}), 0);
    cli::Crc32c in_pieces;
    in_pieces.update(bytes.first(4));
    in_pieces.update(bytes.subspan(4));
    assert_int_equal(in_pieces.value(), 0xe3069283);
}

void layout_is_page_aligned_and_disjoint(void **) {
    for (const std::uint64_t capacity : {std::uint64_t{1}, std::uint64_t{4095}, std::uint64_t{4096},
                                         std::uint64_t{4097}, cli::largest_capacity}) {
        const cli::Layout any{capacity};
        assert_int_equal(any.content(0), 4 * 4096);
        assert_int_equal(any.content(1) % 4096, 0);
        assert_true(any.content(0) + capacity <= any.content(1));
        assert_true(any.content(1) + capacity <= any.file_size());
        assert_true(any.file_size() - any.content(1) - capacity < 4096);
    }
    assert_int_equal(cli::Layout::commit_word, 4096);
    assert_int_equal(cli::Layout::header(0), 8192);
    assert_int_equal(cli::Layout::header(1), 12288);
}

void superblock_is_checked(void **) {
    const cli::Superblock good = cli::encode_superblock(layout);
    assert_memory_equal(good.data(), "RPMAPOOL\1\0\0\0\0\x10\0\0\x10\x27\0\0\0\0\0\0\0\0\0\0", 28);
    assert_int_equal(cli::decode_superblock(good).value().capacity, layout.capacity);
    for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
        cli::Superblock bad = good;
        flip(bad, bit);
        assert_fails(cli::decode_superblock(bad), bit < 64 ? "not an rpma pool" : "is a pool");
    }
    for (std::size_t size = 0; size < good.size(); ++size) {
        assert_fails(cli::decode_superblock(std::span{good}.first(size)), "not an rpma pool");
    }
    cli::Superblock newer = good;
    newer[8] = std::byte{2};
    assert_fails(cli::decode_superblock(newer), "version 2 (expected 1)");
    for (const std::uint64_t capacity : {std::uint64_t{0}, cli::largest_capacity + 1}) {
        assert_fails(cli::decode_superblock(cli::encode_superblock({capacity})), "damaged");
    }
}

void empty_pool_has_no_content(void **) {
    const Control control{};
    assert_false(cli::committed_content(control, layout).value().has_value());
    const auto next = cli::next_content(std::nullopt);
    assert_int_equal(next.sequence, 1);
    assert_int_equal(next.slot, 0);
}

void pushes_alternate_between_slots(void **) {
    Control control{};
    for (std::uint64_t sequence = 1; sequence < 10; ++sequence) {
        cli::Content next = cli::next_content(cli::committed_content(control, layout).value());
        assert_int_equal(next.sequence, sequence);
        assert_int_equal(next.slot, (sequence - 1) % 2);
        next.length = sequence * 1000;
        next.checksum = 0x12345678;
        std::ranges::copy(next.header(), control.begin() + cli::Layout::header(next.slot));
        std::ranges::copy(next.word(), control.begin() + cli::Layout::commit_word);
        const auto found = cli::committed_content(control, layout).value();
        assert_true(found.has_value());
        assert_int_equal(found->sequence, sequence);
        assert_int_equal(found->slot, next.slot);
        assert_int_equal(found->length, sequence * 1000);
        assert_int_equal(found->checksum, 0x12345678);
    }
}

void damage_is_noticed(void **) {
    const cli::Content content{.sequence = 7, .slot = 1, .length = 10'000, .checksum = 1};
    const Control good = control_with(content);
    assert_true(cli::committed_content(good, layout).value().has_value());
    for (std::size_t bit = 0; bit < 8 * sizeof(cli::SlotHeader); ++bit) {
        Control bad = good;
        flip(bad, 8 * cli::Layout::header(1) + bit);
        assert_fails(cli::committed_content(bad, layout), "slot 1");
    }
    for (std::size_t bit = 0; bit < 64; ++bit) {  // names another slot or sequence
        Control bad = good;
        flip(bad, 8 * cli::Layout::commit_word + bit);
        assert_fails(cli::committed_content(bad, layout), "damaged");
    }
    // The content is whole, but longer than the pool takes.
    assert_fails(cli::committed_content(control_with({7, 1, 10'001, 1}), layout), "slot 1");
    // Sequence 0 in slot 1 is no state a pool is ever in.
    Control bad{};
    bad[cli::Layout::commit_word] = std::byte{1};
    assert_fails(cli::committed_content(bad, layout), "commit word");
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(checksum_is_crc32c),
        cmocka_unit_test(layout_is_page_aligned_and_disjoint),
        cmocka_unit_test(superblock_is_checked),
        cmocka_unit_test(empty_pool_has_no_content),
        cmocka_unit_test(pushes_alternate_between_slots),
        cmocka_unit_test(damage_is_noticed),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
