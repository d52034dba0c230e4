// SPDX-License-Identifier: BSD-3-Clause
// soft/faults: tests which values SOFTRDMA_FAULTS may have, and that a seed determines everything.
// tests/integration/faults.cpp tests what a program sees of faults.
#include "soft/ground/faults.hpp"

#include <cmath>
#include <string>

// This comes last, because it asserts.
#include "../base/check.hpp"

namespace {

using soft::Faults;
using Kind = Faults::Kind;

Faults parsed(const char *text) {
    const auto faults = Faults::parse(text);
    if (!faults) {
        fail_msg("\"%s\" is refused: %s", text, faults.error().c_str());
    }
    return *faults;
}

void texts_with_a_meaning(void **) {
    const Faults faults = parsed(
        "drop=1000:0.5,seed=18446744073709551615,delay_us=50,tear=4294967295,fill=2:1,"
        "register=0:0");
    assert_int_equal(faults.at(Kind::Delay, 1, 0), 50);
    assert_int_equal(faults.at(Kind::Tear, 1, 0), UINT32_MAX);
    assert_int_equal(faults.at(Kind::Register, 1, 0), Faults::none);
    assert_int_equal(parsed("seed=7").at(Kind::Drop, 1, 0), Faults::none);
}

void texts_without_one(void **) {
    struct {
        const char *text;
        const char *named;
    } const cases[] = {
        {"", "\"\""},
        {",", "\"\""},
        {"drop=1,", "\"\""},
        {"drop", "\"drop\""},
        {"drop=", "\"drop=\""},
        {"drop=1:", "\"drop=1:\""},
        {"drop=:0.5", "\"drop=:0.5\""},
        {"drop=-1", "\"drop=-1\""},
        {"drop=+1", "\"drop=+1\""},
        {"drop= 1", "\"drop= 1\""},
        {"drop=1 ", "\"drop=1 \""},
        {"drop=0x10", "\"drop=0x10\""},
        {"drop=4294967296", "\"drop=4294967296\""},
        {"drop=99999999999999999999", "\"drop=99999999999999999999\""},
        {"drop=1:1.1", "\"drop=1:1.1\""},
        {"drop=1:-0.1", "\"drop=1:-0.1\""},
        {"drop=1:nan", "\"drop=1:nan\""},
        {"drop=1:1e-3", "\"drop=1:1e-3\""},
        {"drop=1:.", "\"drop=1:.\""},
        {"drop=1:0.5:0.5", "\"drop=1:0.5:0.5\""},
        {"drop=1,drop=2", "\"drop=2\""},
        {"delay_us=10000001", "\"delay_us=10000001\""},
        {"seed=1,seed=1", "\"seed=1\""},
        {"seed=7:0.5", "\"seed=7:0.5\""},
        {"Drop=1", "\"Drop=1\""},
        {"delay=1", "\"delay=1\""},
        {"drop=1;tear=2", "\"drop=1;tear=2\""},
    };
    for (const auto &one : cases) {
        const auto faults = Faults::parse(one.text);
        assert_false(faults.has_value());
        if (!faults.error().starts_with(one.named + std::string{", expected "})) {
            fail_msg("\"%s\" gives %s", one.text, faults.error().c_str());
        }
    }
}

void the_first_occasions_are_spared(void **) {
    const Faults faults = parsed("drop=3");
    for (std::uint32_t object = 0; object < 4; ++object) {
        assert_int_equal(faults.at(Kind::Drop, object, 2), Faults::none);
        assert_int_not_equal(faults.at(Kind::Drop, object, 3), Faults::none);
    }
}

// Asserts that about a tenth of `count` occasions were hits.
void assert_about_a_tenth(std::uint64_t hits, std::uint64_t count) {
    const double expected = 0.1 * static_cast<double>(count);
    assert_true(std::abs(static_cast<double>(hits) - expected) < 4 * std::sqrt(0.9 * expected));
}

// The seed is the same in each run, so the result does not depend on luck.
void chances_are_what_they_say(void **) {
    constexpr std::uint64_t count = 10'000;
    const Faults faults = parsed("seed=7,drop=0:0.1,tear=5:0.1");
    std::uint64_t occasions = 0;
    std::uint64_t objects = 0;
    std::uint64_t both = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
        occasions += faults.at(Kind::Drop, 1, i) != Faults::none ? 1 : 0;
        objects += faults.at(Kind::Drop, i, 0) != Faults::none ? 1 : 0;
        both += faults.at(Kind::Drop, 1, i) != Faults::none && faults.at(Kind::Tear, 1, i) != Faults::none;
    }
    assert_about_a_tenth(occasions, count);
    assert_about_a_tenth(objects, count);
    assert_about_a_tenth(both, occasions);
}

void a_seed_says_it_all(void **) {
    const Faults one = parsed("seed=7,fill=0:0.5");
    const Faults same = parsed("fill=0:0.5,seed=7,drop=9");
    const Faults other = parsed("seed=8,fill=0:0.5");
    int different = 0;
    for (std::uint32_t i = 0; i < 1000; ++i) {
        assert_int_equal(one.at(Kind::Fill, 1, i), same.at(Kind::Fill, 1, i));
        different += one.at(Kind::Fill, 1, i) != other.at(Kind::Fill, 1, i) ? 1 : 0;
    }
    assert_in_range(different, 400, 600);
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(texts_with_a_meaning),
        cmocka_unit_test(texts_without_one),
        cmocka_unit_test(the_first_occasions_are_spared),
        cmocka_unit_test(chances_are_what_they_say),
        cmocka_unit_test(a_seed_says_it_all),
    };
    return cmocka_run_group_tests_name("soft/faults", tests, nullptr, nullptr);
}
