// SPDX-License-Identifier: BSD-3-Clause
// cli/protocol/blocks: encodes, and decodes with checks.
//    0       8            12       16
//    | magic | block size | length | a sum for each block: 32 bytes of SHA-256, CRC32C | CRC32C of all before
//    |
#include "cli/protocol/blocks.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/cursor.hpp"

namespace cli {

namespace {

constexpr std::uint64_t magic = 0x316b636f6c62'6d72;  // "rmblock1"
constexpr std::size_t head_size = 20;
constexpr std::size_t sum_size = 36;
constexpr std::size_t tail_size = 4;
static_assert(longest_blocks >= head_size + most_blocks * sum_size + tail_size);

const EVP_MD *sha256() {
    static const EVP_MD *const method = EVP_sha256();
    return method;
}

}  // namespace

std::size_t block_size_for(std::uint64_t length) {
    constexpr std::uint64_t wanted = most_blocks / 4;
    std::size_t size = smallest_block;
    while (size < largest_block && blocks_in(length, size) > wanted) {
        size *= 2;
    }
    return blocks_in(length, size) <= most_blocks ? size : 0;
}

BlockSum sum_of(std::span<const std::byte> block) {
    BlockSum sum;
    (void)EVP_Digest(block.data(), block.size(), reinterpret_cast<unsigned char *>(sum.strong.data()),
                     nullptr, sha256(), nullptr);
    sum.checksum = crc32c(block);
    return sum;
}

std::size_t Blocks::size_of(std::size_t block) const {
    return std::min<std::uint64_t>(block_size, length - block * block_size);
}

bool Blocks::has_same(std::size_t block, const Blocks &other) const {
    return block < sums.size() && block < other.sums.size() && size_of(block) == other.size_of(block) &&
           sums[block] == other.sums[block];
}

std::uint32_t Blocks::checksum() const {
    Crc32c whole;
    const Crc32c::Behind behind_block{block_size};
    for (std::size_t block = 0; block < sums.size(); ++block) {
        const std::size_t size = size_of(block);
        whole.append(sums[block].checksum, size == block_size ? behind_block : Crc32c::Behind{size});
    }
    return whole.value();
}

std::string encode_blocks(const Blocks &blocks) {
    std::string text(head_size + blocks.sums.size() * sum_size + tail_size, '\0');
    const auto bytes = std::as_writable_bytes(std::span{text});
    base::Writer writer{bytes};
    writer.little(magic);
    writer.little(static_cast<std::uint32_t>(blocks.block_size));
    writer.little(blocks.length);
    for (const BlockSum &sum : blocks.sums) {
        writer.bytes(sum.strong);
        writer.little(sum.checksum);
    }
    writer.little(crc32c(bytes.first(bytes.size() - tail_size)));
    return text;
}

Outcome<Blocks> decode_blocks(std::string_view text) {
    const auto bytes = std::as_bytes(std::span{text});
    const auto wrong = [](const char *what) { return failed("checksums of blocks have {}", what); };
    if (bytes.size() < head_size + tail_size) {
        return wrong("too few bytes");
    }
    base::Reader reader{bytes};
    const auto found_magic = reader.little<std::uint64_t>();
    const std::size_t block_size = reader.little<std::uint32_t>();
    const auto length = reader.little<std::uint64_t>();
    Blocks blocks{block_size, length, {}};
    if (found_magic != magic || !std::has_single_bit(block_size) || block_size < smallest_block ||
        block_size > largest_block || length > most_blocks * block_size) {
        return wrong("a wrong beginning");
    }
    const std::uint64_t count = blocks_in(length, block_size);
    if (bytes.size() != head_size + count * sum_size + tail_size) {
        return wrong("a wrong number of bytes");
    }
    blocks.sums.resize(count);
    for (BlockSum &sum : blocks.sums) {
        std::ranges::copy(reader.bytes(sum.strong.size()), sum.strong.begin());
        sum.checksum = reader.little<std::uint32_t>();
    }
    if (reader.little<std::uint32_t>() != crc32c(bytes.first(bytes.size() - tail_size))) {
        return wrong("another checksum");
    }
    return blocks;
}

BlockSummer::BlockSummer(std::size_t block_size)
    : blocks_{block_size, 0, {}}, strong_{EVP_MD_CTX_new(), EVP_MD_CTX_free} {
    (void)EVP_DigestInit_ex(strong_.get(), sha256(), nullptr);
}

void BlockSummer::end_block() {
    BlockSum sum;
    (void)EVP_DigestFinal_ex(strong_.get(), reinterpret_cast<unsigned char *>(sum.strong.data()), nullptr);
    (void)EVP_DigestInit_ex(strong_.get(), sha256(), nullptr);
    sum.checksum = std::exchange(checksum_, {}).value();
    blocks_.sums.push_back(sum);
    in_block_ = 0;
}

void BlockSummer::update(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const auto piece = bytes.first(std::min(bytes.size(), blocks_.block_size - in_block_));
        (void)EVP_DigestUpdate(strong_.get(), piece.data(), piece.size());
        checksum_.update(piece);
        in_block_ += piece.size();
        blocks_.length += piece.size();
        bytes = bytes.subspan(piece.size());
        if (in_block_ == blocks_.block_size) {
            end_block();
        }
    }
}

void BlockSummer::add(const BlockSum &sum, std::size_t size) {
    blocks_.sums.push_back(sum);
    blocks_.length += size;
}

Blocks BlockSummer::ended() const {
    Blocks ended = blocks_;
    ended.length -= in_block_;
    return ended;
}

const Blocks &BlockSummer::finish() {
    if (in_block_ != 0) {
        end_block();
    }
    return blocks_;
}

}  // namespace cli
