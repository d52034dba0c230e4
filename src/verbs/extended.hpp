// SPDX-License-Identifier: BSD-3-Clause
// verbs/extended: flush and atomic write of the kernel's devices, which are posted through ibv_qp_ex. Flush
// came with rdma-core 45, as the member of ibv_qp_ex behind wr_atomic_write: with older headers it is reached
// by its place, and only when the library that is loaded is new enough to have the place.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <string_view>

#include "verbs/post.hpp"

namespace verbs::extended {

// Returns whether the file of a libibverbs is one of rdma-core 45 or later: libibverbs.so.1.MINOR.PACKAGE.
// The package's number is in the name only: no symbol version came with 45.
[[nodiscard]] bool has_flush(std::string_view library_file);
// The same of the libibverbs that this process has loaded.
[[nodiscard]] bool library_has_flush();

// The native_ operations that a device says it has, as far as the library can post them.
[[nodiscard]] unsigned device_operations(const ibv_device_attr_ex &attributes, bool library_has_flush);
// Returns the flags with which ibv_create_qp_ex makes a queue pair that has these operations.
[[nodiscard]] std::uint64_t send_operations(unsigned native_operations);
// The native_ operations that a queue pair was given.
[[nodiscard]] unsigned queue_pair_operations(ibv_qp_ex *qp, bool library_has_flush);

// Posts a flush_request or atomic_write_request (verbs/post.hpp): 0 or an errno value.
int post(ibv_qp_ex *qp, const ibv_send_wr &request);

}  // namespace verbs::extended
