// SPDX-License-Identifier: BSD-3-Clause
// soft/queues/placed: counts what one connection has placed of its peer's requests, for the acknowledgements
// that the peer gets where both agreed on them.
#pragma once

#include <atomic>
#include <cstdint>

#include "soft/wire/rdmap.hpp"

namespace soft {

// Only the holder of the group's lock counts; now() needs no lock. What is counted is visible to the thread
// that reads the count.
class Placed {
public:
    void begin(bool counts) {
        counts_ = counts;
        writes_.store(0, std::memory_order_relaxed);
        messages_.store(0, std::memory_order_relaxed);
    }
    void write() { count(writes_); }
    // Is called before the program gets the completion, so that no answer of the program overtakes the
    // acknowledgement.
    void message() { count(messages_); }
    [[nodiscard]] wire::Acknowledgement now() const {
        return {.writes = writes_.load(std::memory_order_acquire),
                .messages = messages_.load(std::memory_order_acquire)};
    }

private:
    void count(std::atomic<std::uint32_t> &number) const {
        if (counts_) {
            number.fetch_add(1, std::memory_order_release);
        }
    }

    bool counts_ = false;
    std::atomic<std::uint32_t> writes_{0};
    std::atomic<std::uint32_t> messages_{0};
};

}  // namespace soft
