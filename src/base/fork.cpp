// SPDX-License-Identifier: BSD-3-Clause
// base/fork: see the header.
#include "base/fork.hpp"

#include <pthread.h>
#include <unistd.h>

namespace base {

constinit std::atomic<unsigned> forks{0};

namespace {

std::atomic<pid_t> process{getpid()};

[[maybe_unused]] const int counts_forks = pthread_atfork(nullptr, nullptr, [] {
    forks.fetch_add(1, std::memory_order_relaxed);
    process.store(getpid(), std::memory_order_relaxed);
});

}  // namespace

bool is_in_parents_memory() {
    return process.load(std::memory_order_relaxed) != getpid();
}

}  // namespace base
