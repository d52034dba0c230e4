// SPDX-License-Identifier: BSD-3-Clause
// cli/perf/perf_rdma: the operations of `rpma perf` on RDMA connections, which share one completion queue.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/ring.hpp"
#include "cli/mapping.hpp"
#include "cli/perf/perf_path.hpp"
#include "cli/transfer/client_connection.hpp"

namespace cli {

class RdmaPath : public Path {
public:
    // Connects. With `polled`, wait() is not called.
    [[nodiscard]] static Outcome<std::unique_ptr<RdmaPath>> open(const DevicePeer &device,
                                                                 const Address &address, const Load &load,
                                                                 bool polled, double timeout_seconds);
    ~RdmaPath() override;

    [[nodiscard]] Durability durability() const { return durability_; }
    // Returns the addresses of the server's TCP baseline for each connection.
    [[nodiscard]] const std::vector<sockaddr_storage> &baselines() const { return baselines_; }

    [[nodiscard]] Outcome<> post(std::uint32_t slot) override;
    [[nodiscard]] Outcome<> post_barrier(std::uint32_t slot) override;
    [[nodiscard]] Outcome<std::size_t> collect(std::span<std::uint32_t> done) override;
    [[nodiscard]] Outcome<> wait() override;

private:
    explicit RdmaPath(const Load &load) : load_{load} {}
    [[nodiscard]] Outcome<> allocate(const DevicePeer &device, bool polled);
    [[nodiscard]] Outcome<> connect(const DevicePeer &device, const Address &address, double timeout_seconds);
    [[nodiscard]] Outcome<> post_receive(std::uint32_t connection);
    [[nodiscard]] Outcome<std::optional<std::uint32_t>> done_by(const ibv_wc &completion);
    [[nodiscard]] Outcome<> prepare_slots();
    [[nodiscard]] Outcome<> post_all(const ClientConnection &server, std::span<const rpma_op> operations);

    Load load_;
    Durability durability_ = Durability::None;
    Mapping memory_;
    LocalRegion local_;
    Completions completions_;
    std::vector<std::unique_ptr<ClientConnection>> servers_;
    std::vector<sockaddr_storage> baselines_;
    std::vector<rpma_op> operations_;              // each slot's: one, or a write and its flush
    std::vector<base::Ring<std::uint32_t>> sent_;  // each connection's slots whose message has no answer yet
};

}  // namespace cli
