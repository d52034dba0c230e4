// SPDX-License-Identifier: BSD-3-Clause
// soft/cm/librdmacm_id: the memory of an id as librdmacm's own rsockets see it, which run on this device when
// a test asks for it (src/verbs_preload). They read beyond the rdma_cm_id that rdma_cma.h declares. The
// program has the id's address, so these bytes have to follow the id in its memory. No other code reads them.
#pragma once

#include <rdma/rdma_cma.h>

#include <array>
#include <cstddef>

#include "soft/ground/limits.hpp"

namespace soft {

// The bytes that librdmacm 44 keeps behind an id, up to the last member that its rsockets read.
struct LibrdmacmDevice {
    std::array<std::byte, 72> not_read{};
    int max_qpsize = limits::max_qp_wr;
};
inline constexpr LibrdmacmDevice librdmacm_device{};
struct LibrdmacmId : rdma_cm_id {
    const LibrdmacmDevice *cma_dev = &librdmacm_device;
    void *connect_data = nullptr;
    std::size_t connect_len = 0;
    int events_completed = 0;
    int connect_error = 0;
    int sync = 0;  // the id is synchronous
};
static_assert(sizeof(rdma_cm_id) == 416 && sizeof(LibrdmacmId) == 456);

}  // namespace soft
