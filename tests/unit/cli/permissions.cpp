// SPDX-License-Identifier: BSD-3-Clause
// cli/serve/permissions: tests what each identity may do, and which words are refused.
#include "cli/serve/permissions.hpp"

#include "bytes.hpp"

namespace {

using cli::Mode;
using cli::Permissions;

Permissions parsed(const std::vector<std::string> &words) {
    auto permissions = Permissions::parse(words);
    assert_true(permissions.has_value());
    return *std::move(permissions);
}

void without_a_word_everybody_may_do_everything(void **) {
    const Permissions none = parsed({});
    for (const Mode mode : {Mode::Push, Mode::Pull, Mode::Measure, Mode::MeasureDurable, Mode::Status}) {
        assert_true(none.why_not(mode, "").empty());
        assert_true(none.why_not(mode, "a").empty());
    }
}

void each_may_do_what_is_named(void **) {
    const Permissions some = parsed({"push=a", "pull=b", "push=both", "pull=both"});
    assert_true(some.why_not(Mode::Push, "a").empty());
    assert_true(some.why_not(Mode::Measure, "a").empty());
    assert_true(some.why_not(Mode::MeasureDurable, "a").empty());
    assert_string_equal(some.why_not(Mode::Pull, "a").c_str(), "the identity a may not pull (--allow)");
    assert_true(some.why_not(Mode::Pull, "b").empty());
    assert_true(some.why_not(Mode::List, "b").empty());
    assert_false(some.why_not(Mode::List, "a").empty());
    assert_string_equal(some.why_not(Mode::Push, "b").c_str(), "the identity b may not push (--allow)");
    for (const Mode mode : {Mode::Measure, Mode::MeasureDurable}) {
        assert_string_equal(some.why_not(mode, "b").c_str(), "the identity b may not measure (--allow)");
    }
    assert_true(some.why_not(Mode::Tag, "a").empty() && some.why_not(Mode::Tag, "b").empty());
    assert_false(some.why_not(Mode::Tag, "c").empty());
    assert_true(some.why_not(Mode::Push, "both").empty());
    assert_true(some.why_not(Mode::Pull, "both").empty());
}

// A part of a name is another name.
void others_may_only_ask_for_the_status(void **) {
    const Permissions some = parsed({"push=host", "pull=host"});
    for (const char *identity : {"other", "hos", "hosts", "HOST"}) {
        for (const Mode mode : {Mode::Push, Mode::Pull, Mode::Measure, Mode::MeasureDurable}) {
            assert_false(some.why_not(mode, identity).empty());
        }
        assert_true(some.why_not(Mode::Status, identity).empty());
    }
    assert_string_equal(some.why_not(Mode::Push, "").c_str(),
                        "a client without an identity may not push (--allow)");
    assert_true(some.why_not(Mode::Status, "").empty());
}

// The reason fits the text of an answer, also with the longest identity.
void the_reason_reaches_the_client(void **) {
    const std::string longest(64, 'x');
    const std::string why = parsed({"push=a"}).why_not(Mode::Measure, longest);
    const cli::Offer refusal{.status = cli::Status::Limit, .reason = why};
    const auto told = cli::decode_offer(cli::encode_offer(refusal));
    assert_true(told.has_value());
    assert_string_equal(told->reason.c_str(), why.c_str());
}

void an_identity_may_have_an_equals_sign(void **) {
    assert_true(parsed({"push=a=b"}).why_not(Mode::Push, "a=b").empty());
}

void other_words_are_refused(void **) {
    for (const char *word : {"", "push", "push=", "=a", "Push=a", "read=a", "push:a"}) {
        const auto refused = Permissions::parse({"pull=b", word});
        assert_false(refused.has_value());
        assert_true(refused.error().exit == cli::Exit::Usage);
        assert_true(refused.error().text.contains("expected push=IDENTITY or pull=IDENTITY"));
    }
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(without_a_word_everybody_may_do_everything),
        cmocka_unit_test(each_may_do_what_is_named),
        cmocka_unit_test(others_may_only_ask_for_the_status),
        cmocka_unit_test(the_reason_reaches_the_client),
        cmocka_unit_test(an_identity_may_have_an_equals_sign),
        cmocka_unit_test(other_words_are_refused),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
