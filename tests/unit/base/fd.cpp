// SPDX-License-Identifier: BSD-3-Clause
// base/fd: each descriptor is closed once, by its last owner.
#include "base/fd.hpp"

#include <fcntl.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <utility>

#include "check.hpp"

namespace {

using base::Fd;

bool is_open(int fd) {
    return fcntl(fd, F_GETFD) >= 0;
}

int new_descriptor() {
    const int fd = eventfd(0, EFD_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

void none_is_false(void **) {
    const Fd none;
    assert_false(static_cast<bool>(none));
    assert_int_equal(none.get(), -1);
    assert_false(static_cast<bool>(Fd{-1}));
}

void closes_at_the_end(void **) {
    int number = -1;
    {
        const Fd owner{new_descriptor()};
        number = owner.get();
        assert_true(static_cast<bool>(owner));
        assert_true(is_open(number));
    }
    assert_false(is_open(number));
    assert_int_equal(errno, EBADF);
}

void moving_leaves_nothing_behind(void **) {
    Fd first{new_descriptor()};
    const int number = first.get();
    {
        Fd second{std::move(first)};
        assert_false(static_cast<bool>(first));  // NOLINT(bugprone-use-after-move): it is what is tested
        assert_int_equal(second.get(), number);
        first = std::move(second);
        assert_false(static_cast<bool>(second));  // NOLINT(bugprone-use-after-move)
    }
    assert_true(is_open(number));
    Fd &itself = first;
    first = std::move(itself);
    assert_int_equal(first.get(), number);
    assert_true(is_open(number));
}

void assigning_closes_the_old_one(void **) {
    Fd owner{new_descriptor()};
    const int old = owner.get();
    Fd other{new_descriptor()};
    const int kept = other.get();
    owner = std::move(other);
    assert_false(is_open(old));
    assert_true(is_open(kept));
}

void released_is_the_callers(void **) {
    int number = -1;
    {
        Fd owner{new_descriptor()};
        number = owner.release();
        assert_false(static_cast<bool>(owner));
    }
    assert_true(is_open(number));
    assert_int_equal(close(number), 0);
}

void reset_closes_and_takes(void **) {
    Fd owner{new_descriptor()};
    const int old = owner.get();
    const int other = new_descriptor();
    owner.reset(other);
    assert_false(is_open(old));
    assert_int_equal(owner.get(), other);
    owner.reset();
    assert_false(is_open(other));
    assert_false(static_cast<bool>(owner));
    owner.reset();
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {cmocka_unit_test(none_is_false),
                                cmocka_unit_test(closes_at_the_end),
                                cmocka_unit_test(moving_leaves_nothing_behind),
                                cmocka_unit_test(assigning_closes_the_old_one),
                                cmocka_unit_test(released_is_the_callers),
                                cmocka_unit_test(reset_closes_and_takes)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
