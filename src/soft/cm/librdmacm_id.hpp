// SPDX-License-Identifier: BSD-3-Clause
// soft/cm/librdmacm_id: what an id's memory looks like to librdmacm's own rsockets, which run on this device
// when a test asks for it (src/verbs_preload). They read an rdma_cm_id further than rdma_cma.h declares it,
// and the program has the id's address, so what they read has to follow the id in its memory. Nothing else
// reads it.
#pragma once

#include <rdma/rdma_cma.h>

#include <array>
#include <cstddef>

#include "soft/ground/limits.hpp"

namespace soft {

// librdmacm 44 keeps this behind an id, up to the last member that its rsockets look at.
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
