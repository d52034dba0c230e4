// SPDX-License-Identifier: BSD-3-Clause
// A test with a fixture is a function that takes `Fixture &`. The constructor of the fixture sets up, and its
// destructor tears down. Both may assert. Other files include this header last, as check.hpp.
#pragma once

#include "check.hpp"

namespace test {

template <auto body, typename Fixture>
CMUnitTest on_fixture(const char *name, void (*)(Fixture &)) {
    return {.name = name,
            .test_func = [](void **state) { body(*static_cast<Fixture *>(*state)); },
            .setup_func =
                [](void **state) {
                    *state = new Fixture;
                    return 0;
                },
            .teardown_func =
                [](void **state) {
                    delete static_cast<Fixture *>(*state);
                    return 0;
                },
            .initial_state = nullptr};
}

}  // namespace test

// Makes the test `function`, which has a fixture of its own. cmocka prints the name of the function.
#define fixture_test(function) test::on_fixture<function>(#function, function)
