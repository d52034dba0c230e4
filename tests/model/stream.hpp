// SPDX-License-Identifier: BSD-3-Clause
// model/stream: random operations on two connected ends, from a seed, each step checked by the oracle of
// model/side.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "side.hpp"

namespace model {

class Stream {
public:
    explicit Stream(std::uint64_t seed, std::optional<Faults> faults) : random_{seed}, faults_{faults} {}

    // Does one random step. Returns "" or a text that says what went wrong.
    [[nodiscard]] std::string step();
    // Waits until no request is open, and compares memory.
    [[nodiscard]] std::string settle();

private:
    struct Planned {
        conformance::Request request;
        Operation operation;
        std::vector<std::byte> content;
    };

    [[nodiscard]] std::size_t below(std::size_t limit) { return static_cast<std::size_t>(random_() % limit); }
    [[nodiscard]] bool one_in(std::size_t count) { return below(count) == 0; }
    [[nodiscard]] std::size_t size();
    [[nodiscard]] Range range_within(std::size_t bytes, std::size_t length);

    void reconnect();
    [[nodiscard]] std::string post_chain(Side &side, Side &other);
    [[nodiscard]] std::string post_receives(Side &side, std::size_t count);
    [[nodiscard]] std::string disconnect(Side &side, Side &other);
    [[nodiscard]] std::string blunder(Side &side, Side &other);
    void leave(Side &side);
    [[nodiscard]] std::string go_on_alone(Side &side);
    [[nodiscard]] std::string poll_until_failed(Side &side);
    [[nodiscard]] std::string ended(Side &here, Side &there);
    [[nodiscard]] bool failed() const { return client_->failed() || server_->failed(); }
    [[nodiscard]] std::string ended_by_fault();
    [[nodiscard]] std::string poll(Side &side, int most);
    [[nodiscard]] Planned plan(Side &side, Side &other, const std::vector<Planned> &before);
    [[nodiscard]] Planned plan_flush(Side &other);
    void gather(Side &side, Planned &planned, std::size_t length);
    void aim(Side &side, Side &other, Planned &planned, const std::vector<Planned> &before);

    std::mt19937_64 random_;
    const std::optional<Faults> faults_;
    std::uint64_t next_wr_id_ = 1;
    std::unique_ptr<conformance::Ends> ends_;
    std::unique_ptr<Side> client_;
    std::unique_ptr<Side> server_;
};

}  // namespace model
