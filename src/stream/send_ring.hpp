// SPDX-License-Identifier: BSD-3-Clause
// stream/send_ring: the messages that are posted and not complete. Messages complete in the order in which
// they were posted; each gives back its bytes of the send buffer and its places in the send queue. When all
// are complete, the next bytes take the buffer's first place again, which the processor's cache has. A write
// with a completion of its own is a message here, and the word behind it another.
//
// When the device has taken the bytes during the post, a completion of its own is not worth its cost. Such a
// message is silent while there is enough room: it completes with the next message that is not silent.
#pragma once

#include <algorithm>
#include <utility>

#include "base/ring.hpp"
#include "stream/receive_ring.hpp"

namespace stream {

// A stream takes more when this much fits: less would make messages of a few bytes.
inline constexpr std::size_t send_low_water = 2048;

class SendRing {
public:
    // The buffer has `bytes` bytes, the queue `places` places, of which `kept` are for messages without
    // bytes.
    SendRing(std::size_t bytes, std::uint32_t places, std::uint32_t kept)
        : size_{bytes},
          free_{bytes},
          enough_{std::max(bytes / 2, std::min(bytes, send_low_water))},
          places_{places},
          kept_{kept},
          most_silent_{std::min(most_silent, (places - kept) / 4)},
          posted_{places} {}

    // Returns how many bytes a message may have that takes up to `places`.
    [[nodiscard]] std::size_t room(std::uint32_t places) const {
        return places_ >= places + kept_ ? free_ : 0;
    }
    [[nodiscard]] bool has_place(std::uint32_t places) const { return places_ >= places; }
    // Returns the next free bytes up to the end of the buffer. The others are at its beginning.
    [[nodiscard]] Part front(std::size_t bytes) const {
        return {.offset = next_, .size = std::min(bytes, size_ - next_)};
    }
    // Returns whether the next message, of `bytes` bytes that the device takes during the post and of one
    // place, may be silent. While only silent messages are posted there is room for more, because no sender
    // waits for those.
    [[nodiscard]] bool may_be_silent(std::size_t bytes) const {
        return silent_.places < most_silent_ && free_ - bytes >= enough_;
    }
    // Notes that a message of `bytes` bytes, at most room(), is posted.
    void posted(std::size_t bytes, std::uint32_t places) {
        posted_.push({.bytes = silent_.bytes + bytes, .places = silent_.places + places});
        silent_ = {};
        next_ = next_ + bytes < size_ ? next_ + bytes : next_ + bytes - size_;
        free_ -= bytes;
        places_ -= places;
    }
    // Notes the same of a silent one.
    void posted_silently(std::size_t bytes) {
        silent_.bytes += bytes;
        ++silent_.places;
        free_ -= bytes;
        --places_;
    }
    // Notes that the oldest message that is not silent is complete. Returns false when there is none.
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

    // Takes all places away, so that nothing is posted, until release().
    void hold() { held_ = std::exchange(places_, 0); }
    void release() { places_ += std::exchange(held_, 0); }
    [[nodiscard]] bool is_held() const { return held_ != 0; }

    [[nodiscard]] std::size_t free() const { return free_; }
    // Returns whether the device needs no memory of what is posted.
    [[nodiscard]] bool idle() const { return posted_.empty(); }

private:
    struct Posted {
        std::size_t bytes = 0;
        std::uint32_t places = 0;
    };

    static constexpr std::uint32_t most_silent = 16;

    std::size_t size_;
    std::size_t free_;
    std::size_t enough_;
    std::size_t next_ = 0;
    std::uint32_t places_;
    std::uint32_t held_ = 0;
    std::uint32_t kept_;
    std::uint32_t most_silent_;
    Posted silent_;  // all that will complete with the next message that is not
    base::Ring<Posted> posted_;
};

}  // namespace stream
