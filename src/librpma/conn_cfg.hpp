// SPDX-License-Identifier: BSD-3-Clause
// librpma/conn_cfg: what a connection is to be like.
#pragma once

#include <atomic>

#include "librpma/api.hpp"

namespace librpma {

// A configuration as it was at one moment; by itself, the defaults.
struct ConnectionParameters {
    int timeout_ms = RPMA_DEFAULT_TIMEOUT_MS;
    std::uint32_t cq_size = 10;
    std::uint32_t rcq_size = 0;
    std::uint32_t sq_size = 10;
    std::uint32_t rq_size = 10;
    bool shared_channel = false;
    rpma_srq *srq = nullptr;
};

}  // namespace librpma

// Each value by itself may be set and got by any thread; relaxed, because nothing else is published with it.
struct rpma_conn_cfg final {
    std::atomic<int> timeout_ms{librpma::ConnectionParameters{}.timeout_ms};
    std::atomic<std::uint32_t> cq_size{librpma::ConnectionParameters{}.cq_size};
    std::atomic<std::uint32_t> rcq_size{librpma::ConnectionParameters{}.rcq_size};
    std::atomic<std::uint32_t> sq_size{librpma::ConnectionParameters{}.sq_size};
    std::atomic<std::uint32_t> rq_size{librpma::ConnectionParameters{}.rq_size};
    std::atomic<bool> shared_channel{librpma::ConnectionParameters{}.shared_channel};
    std::atomic<rpma_srq *> srq{librpma::ConnectionParameters{}.srq};
};

namespace librpma {

// cfg may be nullptr: the defaults.
[[nodiscard]] ConnectionParameters parameters_of(const rpma_conn_cfg *cfg);

}  // namespace librpma
