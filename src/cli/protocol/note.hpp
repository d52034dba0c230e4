// SPDX-License-Identifier: BSD-3-Clause
// cli/protocol/note: what a store keeps beside the bytes of a content: a line of JSON in an extended
// attribute of its file, which is written before the file gets its name. There is no I/O here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cli/failure.hpp"
#include "cli/protocol/tag.hpp"

namespace cli {

struct Note {
    std::uint64_t length = 0;
    std::uint32_t checksum = 0;  // CRC32C
    std::string time;            // of the commit, as time_text() gives it
    std::string host;
    std::string identity;  // empty without TLS
    std::string label;
    Tag tag{};  // NOLINT(readability-redundant-member-init): g++ wants one where a note is made without
};

// The largest note. Some file systems have room for 4096 bytes of all attributes of a file.
inline constexpr std::size_t longest_note = 2048;

[[nodiscard]] std::string encode_note(const Note &note);
// Returns the note, or the reason why the text is none. Any byte may come from a foreign file.
[[nodiscard]] Outcome<Note> decode_note(std::string_view text);

// Returns whether both notes are of one push.
[[nodiscard]] bool are_same(const Note &left, const Note &right);

// A content in the list that a server makes for a client.
struct Listed {
    std::string name;
    std::uint64_t sequence = 0;
    Note note;
    std::string fault;  // empty while its file seems to be good
};

[[nodiscard]] std::string encode_list(const std::vector<Listed> &contents);
// Returns the list, or the reason why the text is none. Any byte may come from a peer.
[[nodiscard]] Outcome<std::vector<Listed>> decode_list(std::string_view text);

// The numbers of JSON are exact up to here.
inline constexpr std::uint64_t largest_sequence = (std::uint64_t{1} << 53) - 1;

// Returns the sequence that is the name of a content's file; 0 when the name is that of no content.
[[nodiscard]] std::uint64_t sequence_of(std::string_view file_name);

}  // namespace cli
