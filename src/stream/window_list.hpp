// SPDX-License-Identifier: BSD-3-Clause
// stream/window_list: the windows in our list, which the peer writes.
//
// The peer writes a window, and then sends a word that does not say which window it is. By then the next
// window may be on its way into the list, and some of its bytes may be here. Bytes come in order, so a
// window is whole when its length is there. The length is known: a peer has two halves of one size, and its
// Hello named the first.
#pragma once

#include <algorithm>

#include "stream/peer_memory.hpp"
#include "stream/wire.hpp"

namespace stream {

class WindowList {
public:
    // length is each window's, and not 0.
    explicit WindowList(std::uint32_t length) : length_{length} {}

    enum class Taken : std::uint8_t { None, Window, Nonsense };
    // Takes the next window out of the list, if it is there. `entries` is aligned for 8 bytes.
    [[nodiscard]] Taken take(std::byte *entries, KeyedMemory &window) {
        std::byte *const entry = entries + next_ * window_bytes;
        auto *const fields = reinterpret_cast<std::uint32_t *>(entry);
        // The length is read first, because the device writes it last.
        window.length = peer_wrote<std::uint32_t>(&fields[3]);
        if (window.length != length_) {
            return begins_length(window.length) ? Taken::None : Taken::Nonsense;
        }
        window.address = peer_wrote<std::uint64_t>(entry);
        window.key = peer_wrote<std::uint32_t>(&fields[2]);
        write_over<std::uint32_t>(&fields[3], 0);
        next_ = (next_ + 1) % windows;
        return Taken::Window;
    }

private:
    // Returns whether `here` begins with some first bytes of the length, or none, and has zeros behind them.
    [[nodiscard]] bool begins_length(std::uint32_t here) const {
        const auto bytes = std::bit_cast<std::array<std::byte, sizeof(here)>>(here);
        const auto all = std::bit_cast<std::array<std::byte, sizeof(here)>>(length_);
        const std::byte *const rest = std::ranges::mismatch(bytes, all).in1;
        return std::all_of(rest, bytes.data() + bytes.size(),
                           [](std::byte byte) { return byte == std::byte{0}; });
    }

    std::uint32_t length_;
    std::uint32_t next_ = 1;  // the first window came in Hello
};

}  // namespace stream
