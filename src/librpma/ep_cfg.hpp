// SPDX-License-Identifier: BSD-3-Clause
// librpma/ep_cfg: what an endpoint is to be like.
#pragma once

#include <atomic>

#include "librpma/api.hpp"

namespace librpma {

// A configuration as it was at one moment; by itself, the defaults.
struct EndpointParameters {
    int backlog = 0;  // the device's own
    bool v6only = false;
    bool reuseaddr = false;
    rpma_events *events = nullptr;
};

}  // namespace librpma

// Each value by itself may be set and got by any thread; relaxed, because nothing else is published with it.
struct rpma_ep_cfg final {
    std::atomic<int> backlog{librpma::EndpointParameters{}.backlog};
    std::atomic<bool> v6only{librpma::EndpointParameters{}.v6only};
    std::atomic<bool> reuseaddr{librpma::EndpointParameters{}.reuseaddr};
    std::atomic<rpma_events *> events{librpma::EndpointParameters{}.events};
};

namespace librpma {

// cfg may be nullptr: the defaults.
[[nodiscard]] EndpointParameters parameters_of(const rpma_ep_cfg *cfg);

}  // namespace librpma
