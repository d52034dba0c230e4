// SPDX-License-Identifier: BSD-3-Clause
// librpma/peer_cfg: what a peer declares about itself.
#pragma once

#include <atomic>

#include "base/shared_value.hpp"
#include "librpma/api.hpp"

// Relaxed throughout: the value stands for itself, nothing else is published with it.
struct rpma_peer_cfg final {
public:
    void set_direct_write_to_pmem(bool supported) { base::set_shared(direct_write_to_pmem_, supported); }
    [[nodiscard]] bool direct_write_to_pmem() const {
        return direct_write_to_pmem_.load(std::memory_order_relaxed);
    }

private:
    std::atomic<bool> direct_write_to_pmem_{false};
};
