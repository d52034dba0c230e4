// SPDX-License-Identifier: BSD-3-Clause
// cli/protocol/blocks: the checksums of a content's blocks, by which a push finds out which of them it has to
// send. A store keeps them in a file beside the content, and gives them to clients in the same form. There is
// no I/O here.
#pragma once

#include <openssl/evp.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/checksum.hpp"
#include "cli/failure.hpp"

namespace cli {

inline constexpr std::size_t smallest_block = std::size_t{64} << 10;
inline constexpr std::size_t largest_block = std::size_t{1} << 20;
inline constexpr std::uint64_t most_blocks = std::uint64_t{1} << 18;
inline constexpr std::uint64_t longest_blocks = (most_blocks + 1) * 36;  // bytes of their checksums

// Returns the size of the blocks of a content of this length, a power of two; 0 for a content that has too
// many.
[[nodiscard]] std::size_t block_size_for(std::uint64_t length);

struct BlockSum {
    std::array<std::byte, 32> strong{};  // SHA-256 of the block's bytes
    std::uint32_t checksum = 0;          // CRC32C of them, of which that of the content is made

    [[nodiscard]] bool operator==(const BlockSum &) const = default;
};

[[nodiscard]] BlockSum sum_of(std::span<const std::byte> block);

struct Blocks {
    std::size_t block_size = smallest_block;
    std::uint64_t length = 0;  // of the content, in bytes
    std::vector<BlockSum> sums;

    // Returns how many bytes a block has.
    [[nodiscard]] std::size_t size_of(std::size_t block) const;
    // Returns whether a block is the same in both; each has blocks of one size.
    [[nodiscard]] bool has_same(std::size_t block, const Blocks &other) const;
    // Returns the CRC32C of the content.
    [[nodiscard]] std::uint32_t checksum() const;
};

// Returns how many blocks of a size a content has.
[[nodiscard]] constexpr std::uint64_t blocks_in(std::uint64_t length, std::size_t block_size) {
    return length / block_size + (length % block_size != 0 ? 1 : 0);
}

[[nodiscard]] std::string encode_blocks(const Blocks &blocks);
// Returns the checksums, or the reason why the text has none. Any byte may come from a peer or a foreign
// file.
[[nodiscard]] Outcome<Blocks> decode_blocks(std::string_view text);

// Makes the checksums of a content whose bytes come one after the other.
class BlockSummer {
public:
    explicit BlockSummer(std::size_t block_size);

    void update(std::span<const std::byte> bytes);
    // Adds the sum of a block whose bytes do not come. The bytes before it are whole blocks.
    void add(const BlockSum &sum, std::size_t size);
    [[nodiscard]] std::size_t block_size() const { return blocks_.block_size; }
    // Returns the checksums of the blocks that have ended.
    [[nodiscard]] Blocks ended() const;
    // Returns the checksums of all bytes; no more may come.
    [[nodiscard]] const Blocks &finish();

private:
    void end_block();

    Blocks blocks_;
    std::size_t in_block_ = 0;  // bytes of the block that is not whole
    Crc32c checksum_;           // of them
    std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX *)> strong_;
};

}  // namespace cli
