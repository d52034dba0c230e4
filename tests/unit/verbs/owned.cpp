// SPDX-License-Identifier: BSD-3-Clause
// verbs/owned: an object is destroyed once, by its own provider, and the caller gets the errno value of that.
#include "verbs/owned.hpp"

#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>

extern "C" {
#include <cmocka.h>
}

namespace {

int destroyed;
int destroy_result;
int destroy_errno;

verbs::Provider counting() {
    verbs::Provider provider = verbs::soft;
    provider.completion.destroy_cq = [](ibv_cq *) {
        ++destroyed;
        errno = destroy_errno;
        return destroy_result;
    };
    return provider;
}

const verbs::Provider provider = counting();
ibv_cq object;

int reset_counts(void **) {
    destroyed = 0;
    destroy_result = 0;
    destroy_errno = 0;
    return 0;
}

void destroys_once(void **) {
    {
        verbs::CompletionQueue queue{provider, &object};
        assert_true(static_cast<bool>(queue));
        assert_int_equal(queue.reset(), 0);
        assert_false(static_cast<bool>(queue));
        assert_int_equal(queue.reset(), 0);
    }
    assert_int_equal(destroyed, 1);
}

void moving_leaves_nothing_behind(void **) {
    {
        verbs::CompletionQueue first{provider, &object};
        verbs::CompletionQueue second{std::move(first)};
        verbs::CompletionQueue third;
        third = std::move(second);
        assert_ptr_equal(third.get(), &object);
        assert_int_equal(destroyed, 0);
    }
    assert_int_equal(destroyed, 1);
}

void assignment_destroys_what_was_there(void **) {
    ibv_cq other;
    verbs::CompletionQueue queue{provider, &object};
    queue = verbs::CompletionQueue{provider, &other};
    assert_int_equal(destroyed, 1);
    assert_ptr_equal(queue.get(), &other);
}

void nothing_is_not_destroyed(void **) {
    {
        verbs::CompletionQueue queue{provider, nullptr};
    }
    assert_int_equal(destroyed, 0);
}

// ibv_ calls return an errno value. rdma_ calls return -1 and set errno.
void both_kinds_of_failure_are_an_errno(void **) {
    destroy_result = EBUSY;
    verbs::CompletionQueue first{provider, &object};
    assert_int_equal(first.reset(), EBUSY);
    destroy_result = -1;
    destroy_errno = EINVAL;
    verbs::CompletionQueue second{provider, &object};
    assert_int_equal(second.reset(), EINVAL);
    assert_int_equal(destroyed, 2);
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test_setup(destroys_once, reset_counts),
        cmocka_unit_test_setup(moving_leaves_nothing_behind, reset_counts),
        cmocka_unit_test_setup(assignment_destroys_what_was_there, reset_counts),
        cmocka_unit_test_setup(nothing_is_not_destroyed, reset_counts),
        cmocka_unit_test_setup(both_kinds_of_failure_are_an_errno, reset_counts),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
