// SPDX-License-Identifier: BSD-3-Clause
// librpma/conn_cfg: the configuration of a connection.
#pragma once

#include <sys/socket.h>

#include <atomic>

#include "librpma/api.hpp"
#include "librpma/tls.hpp"

namespace librpma {

// An atomic write that is an inline write needs this many bytes, so every queue pair is created with them.
inline constexpr std::uint32_t least_inline_size = 8;

// A configuration as it was at one moment. A default-constructed one has the defaults.
struct ConnectionConfiguration {
    int timeout_ms = RPMA_DEFAULT_TIMEOUT_MS;
    std::uint32_t cq_size = 10;
    std::uint32_t rcq_size = 0;
    std::uint32_t sq_size = 10;
    std::uint32_t rq_size = 10;
    bool shared_channel = false;
    rpma_srq *srq = nullptr;
    // The completion queues that do not belong to the connection.
    rpma_cq *cq = nullptr;
    rpma_cq *rcq = nullptr;
    rpma_events *events = nullptr;
    // The largest number of the field; for receiver-not-ready it means no limit.
    std::uint8_t retry_count = 7;
    std::uint8_t rnr_retry_count = 7;
    std::uint8_t ack_timeout = 0;
    std::uint32_t inline_size = 0;
    bool bounds_check = false;
    sockaddr_storage source{};  // AF_UNSPEC: the device chooses
    TlsText tls;
};

}  // namespace librpma

// Any thread may set and get each value. Relaxed is enough, because a value publishes nothing else.
struct rpma_conn_cfg final {
    std::atomic<int> timeout_ms{librpma::ConnectionConfiguration{}.timeout_ms};
    std::atomic<std::uint32_t> cq_size{librpma::ConnectionConfiguration{}.cq_size};
    std::atomic<std::uint32_t> rcq_size{librpma::ConnectionConfiguration{}.rcq_size};
    std::atomic<std::uint32_t> sq_size{librpma::ConnectionConfiguration{}.sq_size};
    std::atomic<std::uint32_t> rq_size{librpma::ConnectionConfiguration{}.rq_size};
    std::atomic<bool> shared_channel{librpma::ConnectionConfiguration{}.shared_channel};
    std::atomic<rpma_srq *> srq{librpma::ConnectionConfiguration{}.srq};
    std::atomic<rpma_cq *> cq{librpma::ConnectionConfiguration{}.cq};
    std::atomic<rpma_cq *> rcq{librpma::ConnectionConfiguration{}.rcq};
    std::atomic<rpma_events *> events{librpma::ConnectionConfiguration{}.events};
    std::atomic<std::uint8_t> retry_count{librpma::ConnectionConfiguration{}.retry_count};
    std::atomic<std::uint8_t> rnr_retry_count{librpma::ConnectionConfiguration{}.rnr_retry_count};
    std::atomic<std::uint8_t> ack_timeout{librpma::ConnectionConfiguration{}.ack_timeout};
    std::atomic<std::uint32_t> inline_size{librpma::ConnectionConfiguration{}.inline_size};
    std::atomic<bool> bounds_check{librpma::ConnectionConfiguration{}.bounds_check};
    // These two are not set in parallel.
    sockaddr_storage source{};
    librpma::TlsText tls;
};

namespace librpma {

// cfg may be nullptr; the result then has the defaults.
[[nodiscard]] ConnectionConfiguration configuration_of(const rpma_conn_cfg *cfg);

}  // namespace librpma
