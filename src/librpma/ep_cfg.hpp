// SPDX-License-Identifier: BSD-3-Clause
// librpma/ep_cfg: the configuration of an endpoint.
#pragma once

#include <atomic>

#include "librpma/api.hpp"
#include "librpma/tls.hpp"

namespace librpma {

// A configuration as it was at one moment. A default-constructed one has the defaults.
struct EndpointConfiguration {
    int backlog = 0;  // 0: the device chooses
    bool v6only = false;
    bool reuseaddr = false;
    rpma_events *events = nullptr;
    TlsText tls;
};

}  // namespace librpma

// Any thread may set and get each value. Relaxed is enough, because a value publishes nothing else.
struct rpma_ep_cfg final {
    std::atomic<int> backlog{librpma::EndpointConfiguration{}.backlog};
    std::atomic<bool> v6only{librpma::EndpointConfiguration{}.v6only};
    std::atomic<bool> reuseaddr{librpma::EndpointConfiguration{}.reuseaddr};
    std::atomic<rpma_events *> events{librpma::EndpointConfiguration{}.events};
    librpma::TlsText tls;  // the one value that is not set in parallel
};

namespace librpma {

// cfg may be nullptr; the result then has the defaults.
[[nodiscard]] EndpointConfiguration configuration_of(const rpma_ep_cfg *cfg);

}  // namespace librpma
