// SPDX-License-Identifier: BSD-3-Clause
// cli/protocol/note: what is written beside a content is read again, and nothing else is taken for it.
#include "cli/protocol/note.hpp"

#include <sys/resource.h>

#include "bytes.hpp"

namespace {

const cli::Note some{0x1'0000'0001, 0xfedc'ba98, "2026-01-01T00:00:00Z",
                     "192.0.2.1",   "b\"ackup",  "\xffnight"};

void a_note_survives(void **) {
    const std::string text = cli::encode_note(some);
    const auto read = cli::decode_note(text);
    assert_true(read.has_value());
    assert_true(read->length == some.length && read->checksum == some.checksum && read->time == some.time);
    assert_true(read->host == some.host && read->identity == some.identity);
    assert_string_equal(read->label.c_str(), "\xef\xbf\xbdnight");  // what is no UTF-8 is replaced
    for (std::size_t size = 0; size < text.size(); ++size) {
        assert_fails(cli::decode_note(std::string_view{text}.substr(0, size)), "damaged note");
    }
}

void other_text_is_no_note(void **) {
    for (const char *text :
         {"[]", "3", "{}", R"({"bytes":-1,"checksum":"crc32c:1"})",
          R"({"bytes":1,"checksum":"crc32c:1","time":"","host":"","identity":"","label":3})",
          R"({"bytes":1,"checksum":"md5:1","time":"","host":"","identity":"","label":""})"}) {
        assert_fails(cli::decode_note(text), "damaged note");
    }
    const std::string_view good =
        R"({"bytes":1,"checksum":"crc32c:1","time":"","host":"","identity":"","label":")";
    assert_fails(cli::decode_note(std::string{good} + std::string(cli::longest_note, 'x') + "\"}"),
                 "damaged note");
}

void a_tag_is_ordered_and_survives(void **) {
    const cli::Tag tag{7, cli::largest_number, 0xc0ffee};
    cli::Note note = some;
    note.tag = tag;
    assert_true(cli::decode_note(cli::encode_note(note))->tag == tag);
    assert_false(static_cast<bool>(cli::decode_note(cli::encode_note(some))->tag));
    assert_string_equal(cli::tag_text({0, 12, 0xc0ffee}).c_str(), "0.12.0000000000c0ffee");
    // The epoch comes first, and the writer decides of two that have the same number.
    assert_true(cli::Tag{} < cli::Tag(0, 1, 1) && cli::Tag(0, 1, 9) < cli::Tag(0, 2, 1));
    assert_true(cli::Tag(0, 9, 9) < cli::Tag(1, 1, 1) && cli::Tag(0, 1, 1) < cli::Tag(0, 1, 2));
    for (const char *text : {"", "1", "1.2", "1.2.", "0.0.0000000000000001", "0.1.1", "0.1.000000000000000G",
                             "-1.1.0000000000000001", "0.01.0000000000000001", "0.1.0000000000000001 ",
                             "0.4611686018427387905.0000000000000001", "0x1x0000000000000001"}) {
        assert_fails(cli::parse_tag(text), "a tag that is none");
        std::string damaged = cli::encode_note(note);
        damaged.replace(damaged.find(cli::tag_text(tag)), cli::tag_text(tag).size(), text);
        assert_fails(cli::decode_note(damaged), "damaged note");
    }
}

void a_list_survives(void **) {
    const auto read = cli::decode_list(cli::encode_list({{"a", 7, some, ""}, {"b", 1, {}, "was deleted"}}));
    assert_true(read.has_value());
    assert_int_equal(read->size(), 2);
    assert_true(read->at(0).name == "a" && read->at(0).sequence == 7 &&
                read->at(0).note.length == some.length);
    assert_string_equal(read->at(1).fault.c_str(), "was deleted");
    for (const char *text : {"", "3", "[3]", "[{}]", "[[]]", "[", "[{", "[]]", "{}",
                             R"([{"name":"a","sequence":"x","fault":""}])"}) {
        assert_fails(cli::decode_list(text), "list that this rpma does not know");
    }
    assert_int_equal(cli::decode_list("[]")->size(), 0);
    // The reader leaves out what a later version adds to a content.
    std::string later = cli::encode_list({{"a", 7, some, ""}});
    later.insert(2, R"("new":[1,{"name":"b"}],"newer":{"sequence":8},"newest":null,)");
    assert_true(cli::decode_list(later).has_value() && cli::decode_list(later)->at(0).name == "a" &&
                cli::decode_list(later)->at(0).sequence == 7);
}

// Returns the most memory that the process has had, in bytes.
std::size_t peak() {
    rusage usage{};
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    return static_cast<std::size_t>(usage.ru_maxrss) << 10;
}

void a_list_of_rubbish_takes_no_memory(void **) {
    constexpr std::size_t size = std::size_t{32} << 20;
    for (const std::string piece : {"0,", "[", R"({"a":[)", R"({"a":0,"b":1,)", R"({"name":"a"},)"}) {
        std::string text = "[";
        text.reserve(size + piece.size());
        while (text.size() < size) {
            text += piece;
        }
        const std::size_t before = peak();
        assert_fails(cli::decode_list(text), "list that this rpma does not know");
        assert_true(peak() - before < size);
    }
}

void a_number_is_a_content(void **) {
    assert_int_equal(cli::sequence_of("1"), 1);
    assert_true(cli::sequence_of("9007199254740991") == cli::largest_sequence);
    for (const char *name : {"", "0", "01", "-1", "+1", "1x", " 1", "x", "9007199254740992",
                             "18446744073709551615", "18446744073709551616"}) {
        assert_int_equal(cli::sequence_of(name), 0);
    }
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {cmocka_unit_test(a_note_survives),
                                cmocka_unit_test(other_text_is_no_note),
                                cmocka_unit_test(a_tag_is_ordered_and_survives),
                                cmocka_unit_test(a_list_survives),
                                cmocka_unit_test(a_list_of_rubbish_takes_no_memory),
                                cmocka_unit_test(a_number_is_a_content)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
