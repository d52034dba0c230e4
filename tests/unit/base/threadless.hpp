// SPDX-License-Identifier: BSD-3-Clause
// A process that can start no thread.
#pragma once

#include <pthread.h>

#include <cstddef>

// Last, as it wants.
#include "check.hpp"

namespace test {

// Returns what make() gives while stacks are larger than there are addresses.
template <typename Make>
auto made_without_threads(Make make) {
    pthread_attr_t before;
    pthread_attr_t larger;
    assert_int_equal(pthread_getattr_default_np(&before), 0);
    assert_int_equal(pthread_getattr_default_np(&larger), 0);
    assert_int_equal(pthread_attr_setstacksize(&larger, std::size_t{1} << 60), 0);
    assert_int_equal(pthread_setattr_default_np(&larger), 0);
    auto made = make();
    assert_int_equal(pthread_setattr_default_np(&before), 0);
    return made;
}

}  // namespace test
