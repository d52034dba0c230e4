// SPDX-License-Identifier: BSD-3-Clause
// librpma/flush_buffer: the memory into which a read after write reads.
#pragma once

#include <atomic>

#include "base/mutex.hpp"
#include "librpma/pages.hpp"
#include "librpma/peer.hpp"

namespace librpma {

// The number of bytes of a read after write.
inline constexpr std::size_t flush_read_size = 8;

// The buffer is made when the first flush needs it; native flushes need none. Any number of threads may use
// it.
class FlushBuffer {
public:
    explicit FlushBuffer(const rpma_peer &peer) : peer_{peer} {}
    ~FlushBuffer() { (void)close(); }
    FlushBuffer(const FlushBuffer &) = delete;
    FlushBuffer &operator=(const FlushBuffer &) = delete;

    // Returns a part of the buffer with `length` bytes. Fails with RPMA_E_NOMEM or RPMA_E_PROVIDER, and logs
    // it.
    [[nodiscard]] Result<ibv_sge> part(std::uint32_t length);
    // Releases everything, and returns the first error.
    [[nodiscard]] int close();

private:
    [[nodiscard]] int make() EXCLUDES(mutex_);

    const rpma_peer &peer_;
    base::Mutex mutex_;  // held while the buffer is made
    std::atomic<bool> made_{false};
    Pages page_;
    verbs::MemoryRegion region_;
};

}  // namespace librpma
