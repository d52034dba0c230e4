// SPDX-License-Identifier: BSD-3-Clause
// model/rsocket_bytes: the random numbers of a run, and the bytes that a stream must bring.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>

namespace model {

// One call, or one direction of a conversation, has no more bytes.
inline constexpr std::size_t most_bytes = 300'000;

// A run takes its random numbers here, from a seed.
class Dice {
public:
    explicit Dice(std::uint64_t seed) : engine_{seed} {}
    [[nodiscard]] std::size_t below(std::size_t limit) { return static_cast<std::size_t>(engine_() % limit); }
    [[nodiscard]] std::uint64_t any() { return engine_(); }
    [[nodiscard]] bool one_in(std::size_t count) { return below(count) == 0; }
    // Returns a number of bytes: mostly a small one, sometimes more than the buffers hold.
    [[nodiscard]] std::size_t size();

private:
    std::mt19937_64 engine_;
};

// This class knows the bytes from one end to the other.
class Bytes {
public:
    void begin(std::uint64_t salt);
    // Fills in the bytes that are to be sent next.
    void next(std::span<std::byte> bytes) const { fill(sent_, bytes); }
    void send(std::size_t bytes) { sent_ += bytes; }
    // Returns whether these are the bytes that come next.
    [[nodiscard]] bool are_next(std::span<const std::byte> bytes) const;
    void receive(std::size_t bytes) { received_ += bytes; }
    [[nodiscard]] std::uint64_t on_their_way() const { return sent_ - received_; }
    [[nodiscard]] std::uint64_t sent() const { return sent_; }
    [[nodiscard]] std::uint64_t received() const { return received_; }

private:
    void fill(std::uint64_t from, std::span<std::byte> bytes) const;
    std::uint64_t salt_ = 0;
    std::uint64_t sent_ = 0;
    std::uint64_t received_ = 0;
};

}  // namespace model
