// SPDX-License-Identifier: BSD-3-Clause
// rsocket/returned: results as functions of C return them.
#pragma once

#include <cerrno>
#include <new>
#include <type_traits>

#include "base/result.hpp"

namespace rsockets {

template <typename T>
[[gnu::always_inline]] inline long returned(const base::Result<T> &result) {
    if (!result) {
        errno = result.error().number;
        return -1;
    }
    if constexpr (std::is_void_v<T>) {
        return 0;
    } else {
        return static_cast<long>(*result);
    }
}

// Returns what call gives, and sets errno also when there is no memory.
template <typename Call>
[[gnu::always_inline]] inline long guarded(Call call) {
    try {
        return returned(call());
    } catch (const std::bad_alloc &) {
        errno = ENOMEM;
        return -1;
    }
}

}  // namespace rsockets
