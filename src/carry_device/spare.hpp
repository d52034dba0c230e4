// SPDX-License-Identifier: BSD-3-Clause
// carry_device/spare: a TCP connection between the agents of both ends, which takes the place of a device
// that has lost the peer. Each agent writes to its own copy of the link what the other one sends, in order,
// as the device would. TCP loses none of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "carry/link.hpp"
#include "carry_device/watched.hpp"

namespace carry_device {

// Where a process's agent is found for one connection, and what to say there.
struct SparePort {
    std::uint64_t key = 0;
    std::uint16_t port = 0;  // of TCP; 0: nowhere
};

// The caller locks.
class Spare {
public:
    Spare(Watched fd, carry::Link &link) : fd_{std::move(fd)}, link_{link} {}

    // ---- what goes to the peer ----
    // Bytes for this place of the peer's copy.
    void write(std::size_t offset, const void *bytes, std::size_t size);
    // The peer says when its copy has all that was written before.
    void flush(std::uint32_t turn);
    // A message for the peer's agent.
    void tell();
    // Returns whether the next push should wait until the peer has taken more.
    [[nodiscard]] bool is_full() const { return out_.size() - sent_ > most_unsent; }

    // Gives the kernel what it takes, and applies what has come. Returns false when the connection has ended,
    // or the peer sends what no agent sends; what came before is applied then.
    [[nodiscard]] bool move();

    // ---- what has come ----
    [[nodiscard]] std::uint32_t settled_turn() const { return settled_; }
    // Returns whether a message has come since the last call.
    [[nodiscard]] bool takes_message() { return std::exchange(has_message_, false); }

    // Returns whether the peer's kernel has all that was written.
    [[nodiscard]] bool is_quiet() const;

private:
    static constexpr std::size_t most_unsent = std::size_t{64} << 10;
    static constexpr std::size_t most_owed = std::size_t{1} << 20;  // to a peer that asks, and does not read
    // Instead of an offset: the other word is a turn.
    enum Order : std::uint32_t { Tell = UINT32_MAX - 2, Flush, Flushed };
    struct Head {
        std::uint32_t offset;
        std::uint32_t size;
    };

    void add(const Head &head, const void *bytes);
    [[nodiscard]] bool send_some();
    [[nodiscard]] bool receive_some();
    [[nodiscard]] bool apply();

    Watched fd_;
    carry::Link &link_;
    std::vector<std::byte> out_;
    std::size_t sent_ = 0;  // of these
    std::vector<std::byte> in_;
    std::uint32_t settled_ = 0;
    bool has_message_ = false;
};

}  // namespace carry_device
