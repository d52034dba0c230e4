// SPDX-License-Identifier: BSD-3-Clause
// cli/pool_format: the bytes of a pool file, without I/O.
//
//   file offset
//   0          superblock: magic, version, capacity. Written once, never registered for remote access
//   4096       commit word
//   8192       header of slot 0
//   12288      header of slot 1
//   16384      content of slot 0: capacity bytes, rounded up to pages
//   ...        content of slot 1
//
// A push writes the content of the slot that the commit word does not name. The server makes that content and
// its header durable, and then names the slot in the word, which has 8 bytes. So after a crash of either side
// at any moment the word names the old content or the new one. Clients can access contents only. Each part
// that is committed alone has a page of its own, so that making one part durable never writes back another.
// All numbers are little-endian.
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

    // Offsets in the file. The bytes before the contents are its control bytes.
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
// Returns the layout, or the reason why the bytes are not those of a pool.
[[nodiscard]] Outcome<Layout> decode_superblock(std::span<const std::byte> bytes);

//    0           8         16               20        24
//    | sequence  | length  | content CRC32C | CRC32C  |             the last CRC is of the 20 bytes before it
using SlotHeader = std::array<std::byte, 24>;

// Bit 0 is the slot, the rest is the sequence; the value 0 says that nothing was committed yet.
using CommitWord = std::array<std::byte, 8>;

// A committed content.
struct Content {
    std::uint64_t sequence;  // counts the commits, from 1
    unsigned slot;           // 0 or 1; only the server uses it
    std::uint64_t length;    // bytes
    std::uint32_t checksum;  // CRC32C of them

    [[nodiscard]] SlotHeader header() const;
    [[nodiscard]] CommitWord word() const;
};

// Returns the content that the next push writes when this one is committed; its length and checksum are 0.
[[nodiscard]] Content next_content(const std::optional<Content> &committed);

// Returns the content that a slot's header names, or the reason why it names none.
[[nodiscard]] Outcome<Content> slot_content(std::span<const std::byte> control, unsigned slot,
                                            const Layout &layout);

// Returns the committed content, none when nothing was pushed yet, or the fault. `control` is the file's
// first Layout::control_size bytes.
[[nodiscard]] Outcome<std::optional<Content>> committed_content(std::span<const std::byte> control,
                                                                const Layout &layout);

}  // namespace cli
