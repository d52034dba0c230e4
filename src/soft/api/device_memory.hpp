// SPDX-License-Identifier: BSD-3-Clause
// soft/api/device_memory: device memory, which verbs.h's inlines reach by the table of calls. It is ordinary
// memory of the process, which the program reaches only through the calls.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

namespace soft {

// The most bytes that one piece has, as on many cards.
inline constexpr std::size_t max_device_memory_bytes = std::size_t{256} << 10;

// Fails with EOPNOTSUPP when comp_mask is not 0, and with EINVAL when there is no such size or alignment.
[[nodiscard]] ibv_dm *alloc_device_memory(ibv_context *context, ibv_alloc_dm_attr *attributes);
// Returns EBUSY while a part of it is registered.
[[nodiscard]] int free_device_memory(ibv_dm *memory);
// Registers a part of it, whose addresses begin with 0 (IBV_ACCESS_ZERO_BASED, which has to be set).
[[nodiscard]] ibv_mr *register_device_memory(ibv_pd *pd, ibv_dm *memory, std::uint64_t offset,
                                             std::size_t length, unsigned access);

}  // namespace soft
