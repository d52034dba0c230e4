// SPDX-License-Identifier: BSD-3-Clause
// base/shared_value: storing an atomic value so that race detectors see that it is atomic.
#pragma once

#include <atomic>
#include <type_traits>

namespace base {

// Valgrind's helgrind and drd see only instructions. They take the plain store of a relaxed or releasing
// store() for a race, but not an exchange. The exchange costs a locked instruction, so it is not for the path
// of every operation.
template <typename T>
void set_shared(std::atomic<T> &shared, std::type_identity_t<T> value,
                std::memory_order order = std::memory_order_relaxed) {
    static_cast<void>(shared.exchange(value, order));
}

}  // namespace base
