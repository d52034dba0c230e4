// SPDX-License-Identifier: BSD-3-Clause
// stream/peer_memory: numbers in our memory that the peer writes, which it may do at any time. They are
// aligned for their size. Race detectors do not see what is done here: nothing orders it with the peer's
// writes, and the caller checks what it reads.
#pragma once

// clang's no_sanitize("thread") keeps the instrumentation of atomic operations, and GCC's does not.
#ifdef __clang__
#define STREAM_PEER_MEMORY __attribute__((disable_sanitizer_instrumentation, noinline))
#else
#define STREAM_PEER_MEMORY __attribute__((no_sanitize("thread"), noinline))
#endif

namespace stream {

// Reads a number. A later read by the program sees all that the peer wrote before it.
template <typename T>
[[nodiscard]] STREAM_PEER_MEMORY T peer_wrote(const void *at) {
    return __atomic_load_n(static_cast<const T *>(at), __ATOMIC_ACQUIRE);
}

// Writes over a number.
template <typename T>
STREAM_PEER_MEMORY void write_over(void *at, T value) {
    __atomic_store_n(static_cast<T *>(at), value, __ATOMIC_RELAXED);
}

}  // namespace stream

#undef STREAM_PEER_MEMORY
