// SPDX-License-Identifier: BSD-3-Clause
// rsocket/returned: results as functions of C return them.
#pragma once

#include <cerrno>
#include <new>
#include <type_traits>

#include "base/result.hpp"
#include "rsocket/call.hpp"

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

// Returns the failure of a call from a signal handler that would wait for the call that it has interrupted.
[[gnu::noinline, gnu::cold]] inline long fail_with_edeadlk() {
    errno = EDEADLK;
    return -1;
}

// Returns the result of work(), and sets errno also when there is no memory.
template <typename Work>
[[gnu::always_inline]] inline long guarded(Work work) {
    if (Call::is_interrupted()) [[unlikely]] {
        return fail_with_edeadlk();
    }
    const Call call;
    try {
        return returned(work());
    } catch (const std::bad_alloc &) {
        errno = ENOMEM;
        return -1;
    }
}

}  // namespace rsockets
