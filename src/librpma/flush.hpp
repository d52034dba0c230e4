// SPDX-License-Identifier: BSD-3-Clause
// librpma/flush: the memory that a read after write reads into.
#pragma once

#include "librpma/mr_remote.hpp"
#include "librpma/peer.hpp"

namespace librpma {

// How many bytes a read after write reads.
inline constexpr std::size_t flush_read_size = 8;

// A page of its own: what is registered must not share one with the program's data (fork, ibv_fork_init(3)).
class FlushBuffer {
public:
    [[nodiscard]] static Result<FlushBuffer> create(const rpma_peer &peer);
    FlushBuffer(FlushBuffer &&other) noexcept
        : page_{std::exchange(other.page_, nullptr)}, region_{std::move(other.region_)} {}
    FlushBuffer &operator=(FlushBuffer &&) = delete;
    FlushBuffer(const FlushBuffer &) = delete;
    FlushBuffer &operator=(const FlushBuffer &) = delete;
    ~FlushBuffer() { (void)close(); }

    [[nodiscard]] ibv_sge part(std::uint32_t length) const;
    // The first error; all is released.
    [[nodiscard]] int close();

private:
    explicit FlushBuffer(void *page) : page_{page} {}

    void *page_;
    verbs::MemoryRegion region_;
};

}  // namespace librpma
