// SPDX-License-Identifier: BSD-3-Clause
// stream/send_ring: what is posted and not complete. Messages complete in the order they were posted in; each
// gives back its bytes of the send buffer and its places in the send queue. When all are complete, the next
// bytes take the buffer's first place again, which the processor's cache has.
#pragma once

#include <algorithm>

#include "base/ring.hpp"
#include "stream/receive_ring.hpp"

namespace stream {

class SendRing {
public:
    // The buffer has `bytes` bytes, the queue `places` places, of which `kept` are for messages without
    // bytes.
    SendRing(std::size_t bytes, std::uint32_t places, std::uint32_t kept)
        : size_{bytes}, free_{bytes}, places_{places}, kept_{kept}, posted_{places} {}

    // How many bytes a message may have that takes up to `places`.
    [[nodiscard]] std::size_t room(std::uint32_t places) const {
        return places_ >= places + kept_ ? free_ : 0;
    }
    [[nodiscard]] bool has_place(std::uint32_t places) const { return places_ >= places; }
    // The next free bytes: the first of them, up to the end of the buffer, then the rest.
    [[nodiscard]] Part front(std::size_t bytes) const {
        return {.offset = next_, .size = std::min(bytes, size_ - next_)};
    }
    // Notes that a message of `bytes` bytes, at most room(), is posted.
    void posted(std::size_t bytes, std::uint32_t places) {
        posted_.push({.bytes = bytes, .places = places});
        next_ = next_ + bytes < size_ ? next_ + bytes : next_ + bytes - size_;
        free_ -= bytes;
        places_ -= places;
    }
    // Notes that the oldest message is complete. False: there is none.
    [[nodiscard]] bool completed() {
        if (posted_.empty()) {
            return false;
        }
        free_ += posted_.front().bytes;
        places_ += posted_.front().places;
        posted_.pop();
        if (posted_.empty()) {
            next_ = 0;
        }
        return true;
    }

    [[nodiscard]] std::size_t free() const { return free_; }
    [[nodiscard]] bool idle() const { return posted_.empty(); }

private:
    struct Posted {
        std::size_t bytes = 0;
        std::uint32_t places = 0;
    };

    std::size_t size_;
    std::size_t free_;
    std::size_t next_ = 0;
    std::uint32_t places_;
    std::uint32_t kept_;
    base::Ring<Posted> posted_;
};

}  // namespace stream
