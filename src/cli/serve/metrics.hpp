// SPDX-License-Identifier: BSD-3-Clause
// cli/serve/metrics: what a server counts, in the form of Prometheus.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "cli/failure.hpp"
#include "cli/protocol/health.hpp"
#include "cli/store/store.hpp"

namespace cli {

class Follower;

// Any thread may call it. The store outlives it.
class Metrics {
public:
    // Storage that works longer than the patience for one thing that a push has asked for is slow.
    Metrics(const Store &store, std::chrono::seconds patience);
    Metrics(const Metrics &) = delete;
    Metrics &operator=(const Metrics &) = delete;
    ~Metrics();

    // Tells also what a follower lacks, which outlives the metrics. Before listen(), in the same thread.
    void follow(const Follower &follower);
    // Serves them over HTTP at this address, which has a port, in threads of its own. Each request looks at a
    // file of each name of the store, as the status does. While storage hangs it tells what is known.
    [[nodiscard]] Outcome<> listen(const std::string &address);

    void committed(std::uint64_t bytes, double seconds);
    void stored(std::uint64_t bytes, double seconds);
    void aborted(const char *reason);
    void pulled(std::uint64_t bytes);
    void refused();
    void dropped();
    void storage_failed();
    void connected(std::size_t clients, std::size_t pushes);
    // Says when the oldest commit was asked for that storage has not ended.
    void committing(std::optional<std::chrono::steady_clock::time_point> since);
    // Says since when storage works for the push for which it has worked longest.
    void storing(std::optional<std::chrono::steady_clock::time_point> since);

private:
    struct Parts;
    std::unique_ptr<Parts> parts_;
};

}  // namespace cli
