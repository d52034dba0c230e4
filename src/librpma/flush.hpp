// SPDX-License-Identifier: BSD-3-Clause
// librpma/flush: the memory that a read after write reads into.
#pragma once

#include <atomic>

#include "base/mutex.hpp"
#include "librpma/pages.hpp"
#include "librpma/peer.hpp"

namespace librpma {

// How many bytes a read after write reads.
inline constexpr std::size_t flush_read_size = 8;

// Made when the first flush needs it: where flushes are native, none does. Any number of threads.
class FlushBuffer {
public:
    explicit FlushBuffer(const rpma_peer &peer) : peer_{peer} {}
    ~FlushBuffer() { (void)close(); }
    FlushBuffer(const FlushBuffer &) = delete;
    FlushBuffer &operator=(const FlushBuffer &) = delete;

    // As many bytes of it. RPMA_E_NOMEM or RPMA_E_PROVIDER, logged.
    [[nodiscard]] Result<ibv_sge> part(std::uint32_t length);
    // The first error; all is released.
    [[nodiscard]] int close();

private:
    [[nodiscard]] int make() EXCLUDES(mutex_);

    const rpma_peer &peer_;
    base::Mutex mutex_;  // held to make it
    std::atomic<bool> made_{false};
    Pages page_;
    verbs::MemoryRegion region_;
};

}  // namespace librpma
