// SPDX-License-Identifier: BSD-3-Clause
// verbs/select: tests the words of RPMA_DEVICE.
#include "verbs/select.hpp"

#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>

extern "C" {
#include <cmocka.h>
}

namespace {

void the_three_words(void **) {
    assert_true(verbs::parse_choice(nullptr) == verbs::Choice::Automatic);
    assert_true(verbs::parse_choice("auto") == verbs::Choice::Automatic);
    assert_true(verbs::parse_choice("kernel") == verbs::Choice::Kernel);
    assert_true(verbs::parse_choice("soft") == verbs::Choice::Soft);
}

void no_other_word(void **) {
    base::log_threshold.store(static_cast<int>(base::LogLevel::Disabled));
    for (const char *word : {"", " ", "AUTO", "softw", "sof", "soft ", "kernel,soft", "0"}) {
        const auto choice = verbs::parse_choice(word);
        assert_false(choice.has_value());
        assert_int_equal(choice.error().number, EINVAL);
    }
}

// A context that is not of the soft device belongs to the kernel. No call passes
// it to the soft device's library.
void foreign_context_is_the_kernels(void **) {
    const ibv_context context{};
    assert_ptr_equal(&verbs::provider_of(&context), &verbs::rdma_core);
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(the_three_words),
        cmocka_unit_test(no_other_word),
        cmocka_unit_test(foreign_context_is_the_kernels),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
