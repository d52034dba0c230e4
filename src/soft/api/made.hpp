// SPDX-License-Identifier: BSD-3-Clause
// soft/api/made: the return values of the C functions. A function that makes an object returns a pointer, or
// null and errno. Other functions return 0 or an errno value; those of the connection manager return 0, or -1
// and errno.
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

// Runs a call that may allocate; missing memory becomes ENOMEM.
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

// Runs a call that returns 0 or an errno value; missing memory becomes ENOMEM.
template <typename Call>
int error_of(Call call) {
    try {
        return call();
    } catch (const std::bad_alloc &) {
        return ENOMEM;
    }
}

inline int status_failed(int error) {
    errno = error;
    return -1;
}

// Runs a call; a failure, or missing memory, becomes -1 and errno.
template <typename Call>
int status_of(Call call) {
    try {
        const base::Result<void> result = call();
        return result ? 0 : status_failed(result.error().number);
    } catch (const std::bad_alloc &) {
        return status_failed(ENOMEM);
    }
}

// Does the same for a call that makes an object; *out is written only on success.
template <typename Make, typename T>
int status_of(Make make, T **out) {
    return status_of([&]() -> base::Result<void> {
        auto result = make();
        if (!result) {
            return std::unexpected{result.error()};
        }
        *out = *result;
        return {};
    });
}

}  // namespace soft
