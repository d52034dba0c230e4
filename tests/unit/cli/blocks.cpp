// SPDX-License-Identifier: BSD-3-Clause
// cli/protocol/blocks: the checksums of blocks make that of the content, and damaged ones are told.
#include "cli/protocol/blocks.hpp"

#include <algorithm>
#include <string>

#include "bytes.hpp"

namespace {

std::string content_of(std::size_t length) {
    std::string content(length, '\0');
    std::ranges::generate(content, [state = std::uint32_t{1}]() mutable {
        state = state * 1664525 + 1013904223;
        return static_cast<char>(state >> 24);
    });
    return content;
}

std::span<const std::byte> bytes_of(std::string_view text) {
    return std::as_bytes(std::span{text});
}

// Sums a content that comes in pieces of this size.
cli::Blocks blocks_of(std::string_view content, std::size_t piece) {
    cli::BlockSummer summer{cli::smallest_block};
    for (std::size_t done = 0; done < content.size(); done += piece) {
        summer.update(bytes_of(content.substr(done, piece)));
    }
    return summer.finish();
}

void a_checksum_is_made_of_those_of_parts(void **) {
    const std::string content = content_of(200'000);
    for (const std::size_t cut :
         {std::size_t{0}, std::size_t{1}, std::size_t{65'536}, std::size_t{199'999}, content.size()}) {
        cli::Crc32c crc;
        crc.update(bytes_of(content).first(cut));
        const auto rest = bytes_of(content).subspan(cut);
        crc.append(cli::crc32c(rest), cli::Crc32c::Behind{rest.size()});
        assert_int_equal(crc.value(), cli::crc32c(bytes_of(content)));
    }
}

void pieces_of_any_size_give_the_same_blocks(void **) {
    constexpr std::size_t lengths[] = {0, 1, 65'535, 65'536, 65'537, 300'000};
    constexpr std::size_t pieces[] = {1'000, 65'536, 1'000'000};
    for (const std::size_t length : lengths) {
        const std::string content = content_of(length);
        for (const std::size_t piece : pieces) {
            const cli::Blocks blocks = blocks_of(content, piece);
            assert_int_equal(blocks.length, length);
            assert_int_equal(blocks.sums.size(), cli::blocks_in(length, cli::smallest_block));
            assert_int_equal(blocks.checksum(), cli::crc32c(bytes_of(content)));
            for (std::size_t block = 0; block < blocks.sums.size(); ++block) {
                assert_true(blocks.sums[block] == cli::sum_of(bytes_of(content).subspan(
                                                      block * cli::smallest_block, blocks.size_of(block))));
            }
        }
    }
}

void a_block_may_be_added_by_its_sum(void **) {
    const std::string content = content_of(200'000);
    const cli::Blocks whole = blocks_of(content, content.size());
    cli::BlockSummer summer{cli::smallest_block};
    summer.update(bytes_of(content).first(cli::smallest_block));
    summer.add(whole.sums[1], cli::smallest_block);
    summer.update(bytes_of(content).subspan(2 * cli::smallest_block));
    const cli::Blocks ended = summer.ended();
    assert_int_equal(ended.length, 3 * cli::smallest_block);
    assert_true(std::ranges::equal(ended.sums, std::span{whole.sums}.first(3)));
    const cli::Blocks &made = summer.finish();
    assert_int_equal(made.length, content.size());
    assert_true(made.sums == whole.sums);
}

void text_is_decoded_or_refused(void **) {
    const cli::Blocks blocks = blocks_of(content_of(200'000), 4096);
    const std::string text = cli::encode_blocks(blocks);
    const auto decoded = cli::decode_blocks(text);
    assert_true(decoded.has_value());
    assert_true(decoded->sums == blocks.sums);
    assert_int_equal(decoded->length, blocks.length);
    for (std::size_t length = 0; length < text.size(); ++length) {
        assert_false(cli::decode_blocks(text.substr(0, length)).has_value());
    }
    assert_false(cli::decode_blocks(text + '\0').has_value());
    for (std::size_t place = 0; place < text.size(); ++place) {
        std::string damaged = text;
        damaged[place] = static_cast<char>(damaged[place] ^ 0x10);
        assert_false(cli::decode_blocks(damaged).has_value());
    }
}

void a_large_content_has_large_blocks(void **) {
    assert_int_equal(cli::block_size_for(0), cli::smallest_block);
    assert_int_equal(cli::block_size_for(std::uint64_t{4} << 30), cli::smallest_block);
    assert_int_equal(cli::block_size_for((std::uint64_t{4} << 30) + 1), 2 * cli::smallest_block);
    assert_int_equal(cli::block_size_for(std::uint64_t{256} << 30), cli::largest_block);
    assert_int_equal(cli::block_size_for((std::uint64_t{256} << 30) + 1), 0);
    assert_int_equal(cli::block_size_for(UINT64_MAX), 0);
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {cmocka_unit_test(a_checksum_is_made_of_those_of_parts),
                                cmocka_unit_test(pieces_of_any_size_give_the_same_blocks),
                                cmocka_unit_test(a_block_may_be_added_by_its_sum),
                                cmocka_unit_test(text_is_decoded_or_refused),
                                cmocka_unit_test(a_large_content_has_large_blocks)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
