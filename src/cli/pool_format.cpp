// SPDX-License-Identifier: BSD-3-Clause
// cli/pool_format: encodes, and decodes with checks. Any byte may come from a foreign file or peer.
#include "cli/pool_format.hpp"

#include <cstring>
#include <string_view>

#include "base/cursor.hpp"
#include "cli/checksum.hpp"

namespace cli {

namespace {

constexpr std::string_view pool_magic = "RPMAPOOL";
constexpr std::uint32_t format_version = 1;

}  // namespace

Superblock encode_superblock(const Layout &layout) {
    Superblock bytes{};
    base::Writer writer{bytes};
    writer.bytes(std::as_bytes(std::span{pool_magic}));
    writer.little(format_version);
    writer.little(static_cast<std::uint32_t>(page_size));
    writer.little(layout.capacity);
    writer.little(std::uint32_t{0});
    writer.little(crc32c(std::span{bytes}.first(writer.used())));
    return bytes;
}

Outcome<Layout> decode_superblock(std::span<const std::byte> bytes) {
    base::Reader reader{bytes};
    const auto found_magic = reader.bytes(pool_magic.size());
    const auto version = reader.little<std::uint32_t>();
    const auto page = reader.little<std::uint32_t>();
    const Layout layout{reader.little<std::uint64_t>()};
    [[maybe_unused]] const auto reserved = reader.little<std::uint32_t>();
    const auto checksum = reader.little<std::uint32_t>();
    if (!reader.ok() || std::memcmp(found_magic.data(), pool_magic.data(), pool_magic.size()) != 0) {
        return failed("is not an rpma pool (expected it to begin with {})", pool_magic);
    }
    if (version != format_version) {
        return failed("is a pool of format version {} (expected {})", version, format_version);
    }
    if (checksum != crc32c(bytes.first(sizeof(Superblock) - sizeof(checksum))) || page != page_size ||
        layout.capacity == 0 || layout.capacity > largest_capacity) {
        return failed("is a pool with a damaged superblock (its checksum or its numbers are wrong)");
    }
    return layout;
}

SlotHeader Content::header() const {
    SlotHeader bytes{};
    base::Writer writer{bytes};
    writer.little(sequence);
    writer.little(length);
    writer.little(checksum);
    writer.little(crc32c(std::span{bytes}.first(writer.used())));
    return bytes;
}

CommitWord Content::word() const {
    CommitWord bytes{};
    base::Writer{bytes}.little(sequence << 1 | slot);
    return bytes;
}

Content next_content(const std::optional<Content> &committed) {
    return committed ? Content{committed->sequence + 1, 1 - committed->slot, 0, 0} : Content{1, 0, 0, 0};
}

Outcome<Content> slot_content(std::span<const std::byte> control, unsigned slot, const Layout &layout) {
    const auto header = control.subspan(Layout::header(slot), sizeof(SlotHeader));
    base::Reader reader{header};
    const auto sequence = reader.little<std::uint64_t>();
    const auto length = reader.little<std::uint64_t>();
    const auto checksum = reader.little<std::uint32_t>();
    const auto header_checksum = reader.little<std::uint32_t>();
    if (header_checksum != crc32c(header.first(sizeof(SlotHeader) - sizeof(header_checksum))) ||
        sequence == 0 || length > layout.capacity) {
        return failed("the header of slot {} is damaged", slot);
    }
    return Content{sequence, slot, length, checksum};
}

Outcome<std::optional<Content>> committed_content(std::span<const std::byte> control, const Layout &layout) {
    const auto word = base::Reader{control.subspan(Layout::commit_word)}.little<std::uint64_t>();
    if (word == 0) {
        return std::nullopt;
    }
    const struct {
        std::uint64_t sequence;
        unsigned slot;
    } committed{word >> 1, static_cast<unsigned>(word & 1)};
    if (committed.sequence == 0) {
        return failed("the commit word is damaged ({:#x})", word);
    }
    const auto content = slot_content(control, committed.slot, layout);
    if (!content || content->sequence != committed.sequence) {
        return failed("the header of slot {} is damaged (expected that of content {})", committed.slot,
                      committed.sequence);
    }
    return *content;
}

}  // namespace cli
