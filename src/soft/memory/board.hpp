// SPDX-License-Identifier: BSD-3-Clause
// soft/memory/board: two devices of one host tell each other which memory the peer may access itself. Each
// end of a connection writes its own board, and reads the peer's; an end does not trust what it reads. The
// target offers regions on its board (memory/offers), and the initiator says on its own which offer it uses
// (memory/direct_access). A new board is all zero.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace soft {

struct Board {
    static constexpr std::size_t most_offers = 16;

    // A region that the peer may access. The key is written last.
    struct Offer {
        std::atomic<std::uint32_t> key{0};     // 0: there is no offer
        std::atomic<std::uint32_t> rights{0};  // IBV_ACCESS_ and SOFTRDMA_ACCESS_ bits
        std::atomic<std::uint64_t> begin{0};   // the address that the peer uses for the first byte
        std::atomic<std::uint64_t> length{0};
        std::atomic<std::uint64_t> place{0};         // the address of the first byte in the target's process
        std::atomic<std::uint64_t> registration{0};  // no other registration of the target has this number
    };
    // The range that the initiator has written in the region of an offer. Both numbers only grow until the
    // target takes them. When the target takes them in between, one is 0, and then it stands for all bytes.
    struct Written {
        std::atomic<std::uint64_t> from{0};  // bytes from the range's begin to the region's end
        std::atomic<std::uint64_t> to{0};    // bytes from the region's begin to the range's end
    };

    // The access that the initiator makes now. In 64 bits it is 0 when there is none.
    struct Access {
        std::uint32_t offer = 0;  // 1 + its number
        std::int32_t thread = 0;  // the initiator's thread; 0 when its interruption does not end the access
        bool is_call = false;     // a system call, which no interruption ends once it has begun

        static constexpr std::uint64_t call = std::uint64_t{1} << 63;

        [[nodiscard]] std::uint64_t bits() const {
            return offer | static_cast<std::uint64_t>(thread) << 32 | (is_call ? call : 0);
        }
        [[nodiscard]] static Access of(std::uint64_t bits) {
            return {.offer = static_cast<std::uint32_t>(bits),
                    .thread = static_cast<std::int32_t>((bits & ~call) >> 32),
                    .is_call = (bits & call) != 0};
        }
    };

    // The target's part.
    alignas(64) std::atomic<std::int32_t> thread{
        0};                                     // a thread of its process, which lasts as the connection
    std::atomic<std::uint32_t> changes{0};      // counts the offers that were made
    std::atomic<std::uint64_t> peers_place{0};  // where its process has mapped the peer's board
    alignas(64) std::array<Offer, most_offers> offers;
    // The initiator's part.
    alignas(64) std::atomic<std::uint64_t> access{0};  // Access::bits(); an older device writes 32 of them
    std::atomic<std::uint64_t> proof{0};
    alignas(64) std::array<Written, most_offers> written;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && sizeof(Board) <= 1024);

// The two boards of a connection. A connection that does not go through memory has none.
struct Boards {
    Board *own = nullptr;
    Board *peers = nullptr;

    Boards() = default;
    // The memory is aligned like a Board, and is not smaller.
    Boards(std::span<std::byte> own_memory, std::span<std::byte> peers_memory)
        : own{own_memory.empty() ? nullptr : reinterpret_cast<Board *>(own_memory.data())},
          peers{peers_memory.empty() ? nullptr : reinterpret_cast<Board *>(peers_memory.data())} {}
};

}  // namespace soft
