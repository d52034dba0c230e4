// SPDX-License-Identifier: BSD-3-Clause
// base/readable: tests that the descriptor is readable while it is set, also when
// another process reads it meanwhile.
#include "base/readable.hpp"

#include <fcntl.h>
#include <poll.h>

// check.hpp comes last, because it has macros with everyday names.
#include "check.hpp"

namespace {

bool has_something(const base::Readable &readable) {
    pollfd ready{.fd = readable.fd(), .events = POLLIN, .revents = 0};
    return poll(&ready, 1, 0) == 1;
}

void is_readable_while_set(void **) {
    auto readable = base::Readable::create();
    assert_true(readable.has_value());
    for (int round = 0; round < 3; ++round) {
        assert_false(has_something(*readable));
        readable->set(true);
        readable->set(true);
        assert_true(has_something(*readable));
        readable->set(false);
        readable->set(false);
    }
    assert_false(has_something(*readable));
}

// Another process may read the descriptor, because both have the same one after a fork.
void what_another_has_read_is_not_waited_for(void **) {
    auto readable = base::Readable::create();
    assert_true(readable.has_value());
    assert_int_equal(fcntl(readable->fd(), F_GETFL) & O_NONBLOCK, 0);
    readable->set(true);
    eventfd_t read_elsewhere = 0;
    assert_int_equal(eventfd_read(readable->fd(), &read_elsewhere), 0);
    readable->set(false);
    readable->set(true);
    assert_true(has_something(*readable));
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {cmocka_unit_test(is_readable_while_set),
                                cmocka_unit_test(what_another_has_read_is_not_waited_for)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
