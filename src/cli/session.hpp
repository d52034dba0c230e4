// SPDX-License-Identifier: BSD-3-Clause
// cli/session: a client's connection to the server of a pool, and the one-sided operations on the pool's
// region.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cli/link.hpp"
#include "cli/mapping.hpp"
#include "cli/pool_format.hpp"

namespace cli {

// One thread. Operations are waited for in order; posting one waits for a free place in the send queue. Every
// wait ends when nothing happens for the timeout, and at SIGINT and SIGTERM (see end_waits_on_signals).
class Session {
public:
    using Clock = Link::Clock;
    using Operation = std::uint64_t;  // counts the operations of a session, from 1

    // Local memory for operations: `depth` chunks.
    static constexpr std::size_t chunk_size = std::size_t{1} << 20;
    static constexpr std::size_t depth = 16;

    // Connects. Empty when another push is under way.
    [[nodiscard]] static Outcome<std::unique_ptr<Session>> open(const Address &address, Mode mode,
                                                                double timeout_seconds);
    Session(const Session &) = delete;
    Session &operator=(const Session &) = delete;

    [[nodiscard]] const std::string &device() const { return device_.name; }
    [[nodiscard]] const Layout &layout() const { return layout_; }
    [[nodiscard]] Durability durability() const { return durability_; }
    // The chunk for the content's bytes at `offset`, at most up to its `end`; chunks follow each other in a
    // ring.
    [[nodiscard]] std::span<std::byte> chunk(std::uint64_t offset, std::uint64_t end) const;

    // Between bytes at `offset` of the region and local bytes, all in chunks, that stay untouched meanwhile.
    [[nodiscard]] Outcome<Operation> read(std::span<std::byte> local, std::uint64_t offset);
    [[nodiscard]] Outcome<Operation> write(std::uint64_t offset, std::span<const std::byte> local);
    // Makes the bytes written there durable, or just visible when the pool cannot be durable. The server does
    // it where that is by message.
    [[nodiscard]] Outcome<Operation> flush(std::uint64_t offset, std::uint64_t length);
    [[nodiscard]] Outcome<Operation> atomic_write(std::uint64_t offset, std::span<const std::byte, 8> word);

    // Waits until this operation, and all before it, have completed.
    [[nodiscard]] Outcome<> wait_for(Operation operation);
    [[nodiscard]] Outcome<> wait_for_all() { return wait_for(posted_); }

    // The region's first Layout::control_size bytes as they are now, valid until the first chunk is used
    // again.
    [[nodiscard]] Outcome<std::span<const std::byte>> read_control();

    // How long each completed flush took, from its post to its completion, in seconds.
    [[nodiscard]] const std::vector<double> &flush_seconds() const { return flush_seconds_; }

    // As Link's.
    void close() { link_.close(); }

private:
    Session(const Address &address, double timeout_seconds) : link_{address, timeout_seconds} {}
    [[nodiscard]] Outcome<> allocate();
    [[nodiscard]] Outcome<> take_offer(const Offer &offer, Mode mode);
    [[nodiscard]] std::size_t local_offset(std::span<const std::byte> local) const;
    [[nodiscard]] Outcome<> reserve();
    [[nodiscard]] Outcome<Operation> ask_to_store(std::uint64_t offset, std::uint64_t length);
    [[nodiscard]] Outcome<Operation> posted(int result, const char *what);
    [[nodiscard]] Outcome<> reap();
    void complete(Operation operation);

    static constexpr std::size_t messages_offset = depth * chunk_size;  // behind the chunks

    DevicePeer device_;
    Mapping memory_;
    LocalRegion local_;
    Link link_;
    rpma_cq *completions_ = nullptr;  // the connection's
    Layout layout_{};
    Durability durability_ = Durability::None;

    Operation posted_ = 0;
    Operation completed_ = 0;  // with all before it
    // A chunk's write each, and the flushes between them.
    static constexpr std::uint32_t queue_size = 2 * depth;
    std::bitset<queue_size> done_;  // completed before their turn, modulo queue_size
    struct Flush {
        Operation operation;
        Clock::time_point since;
    };
    std::deque<Flush> flushes_;  // those not completed
    std::vector<double> flush_seconds_;
};

}  // namespace cli
