// SPDX-License-Identifier: BSD-3-Clause
// base/fork: see the header.
#include "base/fork.hpp"

#include <pthread.h>

#include <atomic>

namespace base {

namespace {

std::atomic<unsigned> forks{0};

[[maybe_unused]] const int counts_forks =
    pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });

}  // namespace

unsigned fork_generation() {
    return forks.load(std::memory_order_relaxed);
}

}  // namespace base
