// SPDX-License-Identifier: BSD-3-Clause
// librpma/peer_cfg: the configuration that a peer declares.
#pragma once

#include <atomic>

#include "base/shared_value.hpp"
#include "librpma/api.hpp"

// Relaxed is enough, because the value publishes nothing else.
struct rpma_peer_cfg final {
public:
    void set_direct_write_to_pmem(bool supported) { base::set_shared(direct_write_to_pmem_, supported); }
    [[nodiscard]] bool direct_write_to_pmem() const {
        return direct_write_to_pmem_.load(std::memory_order_relaxed);
    }

private:
    std::atomic<bool> direct_write_to_pmem_{false};
};
