// SPDX-License-Identifier: BSD-3-Clause
// librpma/srq_cfg: the configuration of a shared receive queue. A new one has the defaults.
#pragma once

#include <atomic>

#include "librpma/api.hpp"

struct rpma_srq_cfg final {
    std::atomic<std::uint32_t> rq_size{20};
    std::atomic<std::uint32_t> rcq_size{20};
};
