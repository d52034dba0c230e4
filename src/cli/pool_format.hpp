// SPDX-License-Identifier: BSD-3-Clause
// cli/pool_format: the bytes of a pool file. Pure: no I/O.
//
//   file offset
//   0          superblock: magic, version, capacity. Written once, never registered for remote access
//   4096       commit word
//   8192       header of slot 0
//   12288      header of slot 1
//   16384      content of slot 0: capacity bytes, rounded up to pages
//   ...        content of slot 1
//
// A push writes the content of the slot that the commit word does not name. The server makes that and its
// header durable, and then names the slot in the word, 8 bytes: whoever dies when, the word names the old
// content or the new. Clients reach contents only. Each thing that is committed alone has a page of its own,
// so that making one thing durable never writes back another. All numbers are little-endian.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "cli/failure.hpp"

namespace cli {

inline constexpr std::uint64_t page_size = 4096;
inline constexpr std::uint64_t largest_capacity = std::uint64_t{1} << 46;

struct Layout {
    std::uint64_t capacity;  // bytes of one content

    [[nodiscard]] constexpr std::uint64_t content_pages() const {
        return (capacity + page_size - 1) / page_size * page_size;
    }
    [[nodiscard]] constexpr std::uint64_t file_size() const { return content(2); }

    // Offsets in the file. All before the contents are its control bytes.
    static constexpr std::uint64_t commit_word = page_size;
    static constexpr std::uint64_t control_size = 4 * page_size;
    [[nodiscard]] static constexpr std::uint64_t header(unsigned slot) { return (2 + slot) * page_size; }
    [[nodiscard]] constexpr std::uint64_t content(unsigned slot) const {
        return control_size + slot * content_pages();
    }
};

//    0        8         12          16         24         28        32
//    | magic  | version | page size | capacity | reserved | CRC32C  |   the CRC is of the 28 bytes before it
using Superblock = std::array<std::byte, 32>;

[[nodiscard]] Superblock encode_superblock(const Layout &layout);
// Why the bytes are not those of a pool, or its layout.
[[nodiscard]] Outcome<Layout> decode_superblock(std::span<const std::byte> bytes);

//    0           8         16               20        24
//    | sequence  | length  | content CRC32C | CRC32C  |             the last CRC is of the 20 bytes before it
using SlotHeader = std::array<std::byte, 24>;

// Bit 0 is the slot, the rest is the sequence; 0 as a whole says that nothing was committed yet.
using CommitWord = std::array<std::byte, 8>;

// A committed content.
struct Content {
    std::uint64_t sequence;  // counts the commits, from 1
    unsigned slot;           // 0 or 1; only the server's
    std::uint64_t length;    // bytes
    std::uint32_t checksum;  // CRC32C of them

    [[nodiscard]] SlotHeader header() const;
    [[nodiscard]] CommitWord word() const;
};

// The content that the next push writes when this one is committed; its length and checksum are 0.
[[nodiscard]] Content next_content(const std::optional<Content> &committed);

// The content that a slot's header names, or the reason why it names none.
[[nodiscard]] Outcome<Content> slot_content(std::span<const std::byte> control, unsigned slot,
                                            const Layout &layout);

// The committed content, none when nothing was pushed yet, or what is wrong. `control` is the file's first
// Layout::control_size bytes.
[[nodiscard]] Outcome<std::optional<Content>> committed_content(std::span<const std::byte> control,
                                                                const Layout &layout);

}  // namespace cli
