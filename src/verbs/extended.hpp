// SPDX-License-Identifier: BSD-3-Clause
// verbs/extended: flush and atomic write of the kernel's devices, which are posted through ibv_qp_ex. Flush
// came with rdma-core 45, as the member of ibv_qp_ex after wr_atomic_write. With older headers this code
// finds the member by its offset, and only when the loaded library is new enough to have it.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <string_view>

#include "verbs/post.hpp"

namespace verbs::extended {

// Returns whether the file of a libibverbs, libibverbs.so.1.MINOR.PACKAGE, is from rdma-core 45 or later.
// Only the file's name has the package's number, because no symbol version came with 45.
[[nodiscard]] bool has_flush(std::string_view library_file);
// Returns the same for the libibverbs that this process has loaded.
[[nodiscard]] bool library_has_flush();

// Returns the native_ operations that a device announces, as far as the library can post them.
[[nodiscard]] unsigned device_operations(const ibv_device_attr_ex &attributes, bool library_has_flush);
// Returns the flags with which ibv_create_qp_ex makes a queue pair that has these operations.
[[nodiscard]] std::uint64_t send_operations(unsigned native_operations);
// Returns the native_ operations that a queue pair has.
[[nodiscard]] unsigned queue_pair_operations(ibv_qp_ex *qp, bool library_has_flush);

// Posts a flush_request or atomic_write_request (verbs/post.hpp). Returns 0 or an errno value.
int post(ibv_qp_ex *qp, const ibv_send_wr &request);

}  // namespace verbs::extended
