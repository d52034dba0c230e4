// SPDX-License-Identifier: BSD-3-Clause
// rsocket/transfer: one call of the program that receives or sends, until it has moved its bytes.
#pragma once

#include <span>
#include <vector>

#include "rsocket/wait.hpp"

namespace rsockets {

// The parts of a call, and those that are left after some bytes have moved.
class PartsLeft {
public:
    explicit PartsLeft(std::span<const iovec> parts) : all_{parts}, left_{parts} {}
    PartsLeft(const PartsLeft &) = delete;
    PartsLeft &operator=(const PartsLeft &) = delete;
    [[nodiscard]] std::span<const iovec> all() const { return all_; }
    [[nodiscard]] std::span<const iovec> left() const { return left_; }
    [[nodiscard]] std::size_t moved() const { return moved_; }
    void move(std::size_t bytes);

private:
    std::span<const iovec> all_;
    std::span<const iovec> left_;
    std::size_t moved_ = 0;
    std::vector<iovec> rest_;
};

// The caller holds the rsocket's lock in all calls.
class Receiving {
public:
    // The flags are those of recv(2), and none of those that rsockets refuse. `blocks` says whether the call
    // waits.
    Receiving(Carrier &carrier, std::span<const iovec> parts, int flags, bool blocks);
    // Returns how many bytes. It may return with less than is wanted, but waits for as many as the flags and
    // the low water say.
    [[nodiscard]] Result<std::size_t> run();

private:
    [[nodiscard]] bool peeks() const {
        return reading_ == stream::Reading::Peek || reading_ == stream::Reading::Count;
    }
    [[nodiscard]] bool is_granted(std::size_t received) const { return received >= least_ || peeks(); }
    [[nodiscard]] Result<std::size_t> attempt();
    // Goes on when the first look, which gave `first`, was not enough.
    [[nodiscard]] Result<std::size_t> run_rest(Wait &wait, Result<std::size_t> first);

    Carrier &carrier_;
    PartsLeft parts_;
    const stream::Reading reading_;
    bool blocks_;
    const std::size_t wanted_;
    const std::size_t least_;
};

class Sending {
public:
    // blocks: whether the call waits.
    Sending(Carrier &carrier, std::span<const iovec> parts, bool blocks)
        : carrier_{carrier}, parts_{parts}, blocks_{blocks} {}
    // Returns how many bytes.
    [[nodiscard]] Result<std::size_t> run();

private:
    [[nodiscard]] Result<std::size_t> attempt();
    // Goes on when the first look, which gave `first`, was not enough.
    [[nodiscard]] Result<std::size_t> run_rest(Wait &wait, Result<std::size_t> first);

    Carrier &carrier_;
    PartsLeft parts_;
    const bool blocks_;
};

}  // namespace rsockets
