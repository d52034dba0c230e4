// SPDX-License-Identifier: BSD-3-Clause
// stream/allowance: the messages and bytes that the peer lets us send. A message takes one of its credits,
// and its bytes a place in the oldest of its windows; the peer gives both back as its program reads.
//
//     messages   ---- taken by the peer ----|---- on their way ----|---- may be sent ----|
//                                       limit - given             sent                 limit
//
// All three counters have 16 bits and wrap around. The peer is not trusted; the most that it can do is to
// stop us.
#pragma once

#include <algorithm>
#include <array>
#include <iterator>

#include "stream/wire.hpp"

namespace stream {

class Allowance {
public:
    // credits and first are what the peer's Hello says.
    Allowance(std::uint16_t credits, const KeyedMemory &first)
        : given_{credits}, limit_{credits}, open_{{first}} {}

    // Notes that the peer lets us send up to this message. Returns false when the peer takes credits back, or
    // claims to have taken messages that were never sent.
    [[nodiscard]] bool extend(std::uint16_t limit) {
        const auto on_their_way = static_cast<std::uint16_t>(sent_ - (limit_ - given_));
        if (static_cast<std::uint16_t>(limit - limit_) > on_their_way) {
            return false;
        }
        limit_ = limit;
        return true;
    }
    // Notes that the peer has opened a window, behind those it opened before. Returns false when this cannot
    // be a window, or is one too many.
    [[nodiscard]] bool open(const KeyedMemory &window) {
        if (window.length == 0 || !is_memory(window.address, window.length)) {
            return false;
        }
        for (KeyedMemory &place : open_) {
            if (place.length == 0) {
                place = window;
                return true;
            }
        }
        return false;
    }

    [[nodiscard]] bool has_credit() const { return sent_ != limit_; }
    [[nodiscard]] std::uint16_t credits() const { return static_cast<std::uint16_t>(limit_ - sent_); }
    // Returns how many bytes the next message may have.
    [[nodiscard]] std::uint32_t room() const { return has_credit() ? open_.front().length : 0; }
    // Takes the place of a message of `bytes` bytes, which are at least 1 and at most room().
    KeyedMemory take(std::uint32_t bytes) {
        KeyedMemory &window = open_.front();
        const KeyedMemory place{.address = window.address, .key = window.key, .length = bytes};
        window.address += bytes;
        window.length -= bytes;
        if (window.length == 0) [[unlikely]] {
            std::ranges::rotate(open_, std::next(open_.begin()));
        }
        ++sent_;
        return place;
    }
    // Takes the credit of a message without a place. The caller has seen that there is one.
    void take_credit() { ++sent_; }

private:
    std::uint16_t given_;
    std::uint16_t limit_;
    std::uint16_t sent_ = 0;
    std::array<KeyedMemory, windows> open_;  // the oldest first; behind the last are some without a length
};

}  // namespace stream
