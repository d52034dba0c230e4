// SPDX-License-Identifier: BSD-3-Clause
// A test runs a function here while its process can start no thread.
#pragma once

#include <pthread.h>

#include <cstddef>

// check.hpp comes last, because it has macros with everyday names.
#include "check.hpp"

namespace test {

// Calls make() while the stacks of threads are larger than the address space, and returns its result.
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
