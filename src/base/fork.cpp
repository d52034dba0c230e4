// SPDX-License-Identifier: BSD-3-Clause
// base/fork: see the header.
#include "base/fork.hpp"

#include <pthread.h>

namespace base {

constinit std::atomic<unsigned> forks{0};

namespace {

[[maybe_unused]] const int counts_forks =
    pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });

}  // namespace

}  // namespace base
