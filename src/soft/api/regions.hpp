// SPDX-License-Identifier: BSD-3-Clause
// soft/api/regions: registers memory.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace soft {

struct RegionIsOf {
    std::uint64_t queue_pair = 0;       // only its peer reaches the region (AnyQueuePair::creation); 0: all
    std::atomic<int> *holds = nullptr;  // counts the regions of device memory; null: it is the program's
};

// Returns null and errno when the memory cannot be registered. Throws std::bad_alloc.
[[nodiscard]] ibv_mr *register_region(ibv_pd &pd, void *address, std::size_t length, std::uint64_t iova,
                                      unsigned access, const RegionIsOf &of = {});

}  // namespace soft
