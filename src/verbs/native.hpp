// SPDX-License-Identifier: BSD-3-Clause
// verbs/native: operations beyond RFC 5040 that a device, or both ends of a connection, may support, as a set
// of bits.
#pragma once

#include <softrdma.h>

namespace verbs {

inline constexpr unsigned native_flush = SOFTRDMA_OPERATION_FLUSH;
inline constexpr unsigned native_atomic_write = SOFTRDMA_OPERATION_ATOMIC_WRITE;
inline constexpr unsigned native_immediate = SOFTRDMA_OPERATION_IMMEDIATE;

}  // namespace verbs
