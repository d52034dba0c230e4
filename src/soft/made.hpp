// SPDX-License-Identifier: BSD-3-Clause
// soft/made: what the C face gives where it makes an object: a pointer, or null and errno.
#pragma once

#include <cerrno>
#include <new>
#include <type_traits>

#include "base/result.hpp"

namespace soft {

template <typename T>
T *failed(int error) {
    errno = error;
    return nullptr;
}

// Runs what may allocate: out of memory becomes ENOMEM.
template <typename Make>
std::invoke_result_t<Make> made(Make make) {
    try {
        return make();
    } catch (const std::bad_alloc &) {
        errno = ENOMEM;
        return nullptr;
    }
}

template <typename T>
T *value_of(const base::Result<T *> &result) {
    if (!result) {
        errno = result.error().number;
        return nullptr;
    }
    return *result;
}

}  // namespace soft
