// SPDX-License-Identifier: BSD-3-Clause
// stream/early_sends: the bytes that the program sends before the peer has answered.
#pragma once

#include <cerrno>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "base/parts.hpp"
#include "base/result.hpp"
#include "stream/life.hpp"

namespace stream {

class EarlySends {
public:
    // From now on the stream keeps what is sent before the peer has answered, as much as the send buffer has
    // room for, and sends it when the peer has answered.
    void begin() { wanted_ = true; }
    // Returns whether what is sent is kept for later.
    [[nodiscard]] bool keeps(const Life &life) const {
        const bool asks = life.phase() == Phase::Asking || life.phase() == Phase::Connecting;
        return life.may_write() && (!empty() ? life.phase() != Phase::Over : asks && wanted_);
    }
    [[nodiscard]] bool empty() const { return bytes_.empty(); }
    [[nodiscard]] std::size_t size() const { return bytes_.size(); }
    // Keeps bytes, up to `most` with those that are here. Returns how many. EAGAIN: there is no room.
    [[nodiscard]] base::Result<std::size_t> keep(std::span<const iovec> parts, std::size_t most) {
        const std::size_t bytes = base::append(parts, most, bytes_);
        return bytes != 0 || base::size_of(parts) == 0 ? base::Result<std::size_t>{bytes}
                                                       : base::failure(EAGAIN);
    }
    [[nodiscard]] iovec all() { return {.iov_base = bytes_.data(), .iov_len = bytes_.size()}; }
    // Notes that the first `bytes` bytes are sent.
    void sent(std::size_t bytes) {
        bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(bytes));
    }
    // Returns what was kept, and forgets it.
    [[nodiscard]] std::vector<std::byte> take() { return std::exchange(bytes_, {}); }
    void clear() { bytes_.clear(); }

private:
    bool wanted_ = false;
    std::vector<std::byte> bytes_;
};

}  // namespace stream
