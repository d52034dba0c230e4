// SPDX-License-Identifier: BSD-3-Clause
// cli/protocol/note: encodes, and decodes with checks.
#include "cli/protocol/note.hpp"

#include <charconv>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/checksum.hpp"

namespace cli {

namespace {

using nlohmann::json;

constexpr std::string_view checksum_begin = "crc32c:";

// Returns whether the object has the member, and it is text.
bool take(const json &object, const char *name, std::string &text) {
    const auto found = object.find(name);
    if (found == object.end() || !found->is_string()) {
        return false;
    }
    text = found->get<std::string>();
    return true;
}

bool parse_checksum(std::string_view text, std::uint32_t &value) {
    if (!text.starts_with(checksum_begin)) {
        return false;
    }
    text.remove_prefix(checksum_begin.size());
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
    return error == std::errc{} && end == text.data() + text.size();
}

nlohmann::ordered_json object_of(const Note &note) {
    nlohmann::ordered_json object;
    object["bytes"] = note.length;
    object["checksum"] = checksum_text(note.checksum);
    object["time"] = note.time;
    object["host"] = note.host;
    object["identity"] = note.identity;
    object["label"] = note.label;
    if (note.tag) {
        object["tag"] = tag_text(note.tag);
    }
    return object;
}

// Returns the note that the object has.
Outcome<Note> note_in(const json &object) {
    Note note;
    std::string checksum;
    const auto bytes = object.find("bytes");
    if (bytes == object.end() || !bytes->is_number_unsigned() || !take(object, "checksum", checksum) ||
        !parse_checksum(checksum, note.checksum) || !take(object, "time", note.time) ||
        !take(object, "host", note.host) || !take(object, "identity", note.identity) ||
        !take(object, "label", note.label)) {
        return failed("has a damaged note");
    }
    note.length = bytes->get<std::uint64_t>();
    if (std::string tag; object.contains("tag")) {
        const auto parsed = take(object, "tag", tag) ? parse_tag(tag) : failed("");
        if (!parsed) {
            return failed("has a damaged note");
        }
        note.tag = *parsed;
    }
    return note;
}

std::string json_text(const nlohmann::ordered_json &value) {
    return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace

std::string encode_note(const Note &note) {
    return json_text(object_of(note));
}

Outcome<Note> decode_note(std::string_view text) {
    const json object = text.size() <= longest_note ? json::parse(text, nullptr, false) : json{};
    return object.is_object() ? note_in(object) : failed("has a damaged note");
}

std::string encode_list(const std::vector<Listed> &contents) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const Listed &content : contents) {
        nlohmann::ordered_json object;
        object["name"] = content.name;
        object["sequence"] = content.sequence;
        object.update(object_of(content.note));
        object["fault"] = content.fault;
        list.push_back(std::move(object));
    }
    return json_text(list);
}

Outcome<std::vector<Listed>> decode_list(std::string_view text) {
    const json list = json::parse(text, nullptr, false);
    std::vector<Listed> contents;
    for (const json &object : list.is_array() ? list : json::array({json{}})) {
        Listed content;
        if (!object.is_object() || !take(object, "name", content.name) || !object.contains("sequence") ||
            !object["sequence"].is_number_unsigned() || !take(object, "fault", content.fault)) {
            return failed("sent a list that this rpma does not know");
        }
        content.sequence = object["sequence"].get<std::uint64_t>();
        content.note = TRY(note_in(object));
        contents.push_back(std::move(content));
    }
    return contents;
}

std::uint64_t sequence_of(std::string_view file_name) {
    std::uint64_t sequence = 0;
    const auto [end, error] =
        std::from_chars(file_name.data(), file_name.data() + file_name.size(), sequence);
    const bool is_number = error == std::errc{} && end == file_name.data() + file_name.size();
    return is_number && !file_name.starts_with('0') ? sequence : 0;
}

}  // namespace cli
