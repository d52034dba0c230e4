// SPDX-License-Identifier: BSD-3-Clause
// cli/protocol/note: encodes, and decodes with checks.
#include "cli/protocol/note.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/number.hpp"
#include "cli/checksum.hpp"
#include "cli/protocol/protocol.hpp"

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
    return base::read_number(text, value, 16);
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
    if (bytes == object.end() || !bytes->is_number_unsigned() ||
        bytes->get<std::uint64_t>() > largest_capacity || !take(object, "checksum", checksum) ||
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

// Takes the contents out of a list while it is parsed, so that a list needs no more memory than they do: what
// no content has is dropped, and the first element that is no content ends it.
class ListReader final : public nlohmann::json_sax<json> {
public:
    [[nodiscard]] const std::string &why() const { return why_; }
    [[nodiscard]] std::vector<Listed> take_contents() { return std::move(contents_); }

    bool null() override { return take_value(nullptr); }
    bool boolean(bool value) override { return take_value(value); }
    bool number_integer(number_integer_t value) override { return take_value(value); }
    bool number_unsigned(number_unsigned_t value) override { return take_value(value); }
    bool number_float(number_float_t value, const string_t & /*text*/) override { return take_value(value); }
    bool string(string_t &value) override { return take_value(std::move(value)); }
    bool binary(binary_t & /*value*/) override { return false; }
    bool start_array(std::size_t /*size*/) override { return depth_++ != in_list; }
    bool end_array() override { return end(); }
    bool start_object(std::size_t /*size*/) override { return depth_++ != outside; }
    bool end_object() override { return end(); }
    bool key(string_t &key) override {
        key_ = std::move(key);
        return true;
    }
    bool parse_error(std::size_t /*position*/, const std::string & /*token*/,
                     const json::exception & /*error*/) override {
        return false;
    }

private:
    static constexpr std::size_t outside = 0;
    static constexpr std::size_t in_list = 1;
    static constexpr std::size_t in_content = 2;

    template <typename Value>
    bool take_value(Value value) {
        constexpr std::array<std::string_view, 10> known{"name", "sequence", "bytes", "checksum", "time",
                                                         "host", "identity", "label", "tag",      "fault"};
        if (depth_ == in_content && std::ranges::find(known, key_) != known.end()) {
            content_[key_] = std::move(value);
        }
        return depth_ >= in_content;
    }

    bool end() { return --depth_ != in_list || take_content(); }

    bool take_content() {
        const json object = std::exchange(content_, json::object());
        Listed content;
        const auto sequence = object.find("sequence");
        if (!take(object, "name", content.name) || sequence == object.end() ||
            !sequence->is_number_unsigned() || !take(object, "fault", content.fault)) {
            return false;
        }
        content.sequence = sequence->get<std::uint64_t>();
        auto note = note_in(object);
        if (!note) {
            why_ = note.error().text;
            return false;
        }
        content.note = *std::move(note);
        contents_.push_back(std::move(content));
        return true;
    }

    std::size_t depth_ = outside;
    std::string key_;
    json content_ = json::object();  // the one that is read
    std::vector<Listed> contents_;
    std::string why_ = "sent a list that this rpma does not know";
};

}  // namespace

std::string encode_note(const Note &note) {
    return json_text(object_of(note));
}

bool are_same(const Note &left, const Note &right) {
    return left.length == right.length && left.checksum == right.checksum && left.time == right.time &&
           left.tag == right.tag;
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
    ListReader reader;
    if (!json::sax_parse(text, &reader)) {
        return failed("{}", reader.why());
    }
    return reader.take_contents();
}

std::uint64_t sequence_of(std::string_view file_name) {
    std::uint64_t sequence = 0;
    const bool is_number = base::read_number(file_name, sequence);
    return is_number && sequence <= largest_sequence && !file_name.starts_with('0') ? sequence : 0;
}

}  // namespace cli
