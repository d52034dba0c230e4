// SPDX-License-Identifier: BSD-3-Clause
// soft/ground/unread_share: how many bytes the kernel may keep that a connection has sent and its peer does
// not read. Peers that read nothing pin no more memory than the limits of the process and of each origin.
#pragma once

#include <cstddef>

#include "base/origin.hpp"

namespace soft {

// A connection's part, for as long as its socket is open. Any thread may use it.
class UnreadShare {
public:
    UnreadShare() = default;
    // Takes a 16th of what the origin and the process have left, between the limits of one connection.
    explicit UnreadShare(base::Origin origin);
    ~UnreadShare();
    UnreadShare(UnreadShare &&other) noexcept;
    UnreadShare &operator=(UnreadShare &&other) noexcept;

    [[nodiscard]] std::size_t bytes() const { return bytes_; }

private:
    base::Origin origin_{};
    std::size_t bytes_ = 0;
};

}  // namespace soft
