// SPDX-License-Identifier: BSD-3-Clause
// soft/ground/allowance: what the kernel may keep of what a connection sent and its peer does not read. Peers
// that read nothing pin no more memory than the process, and each origin, has for all of its connections.
#pragma once

#include <cstddef>

#include "soft/ground/origin.hpp"

namespace soft {

// A connection's part, for as long as its socket is open. Any thread.
class Allowance {
public:
    Allowance() = default;
    // A 16th of what is left of the origin's and the process', between the limits of one connection.
    explicit Allowance(Origin origin);
    ~Allowance();
    Allowance(Allowance &&other) noexcept;
    Allowance &operator=(Allowance &&other) noexcept;

    [[nodiscard]] std::size_t bytes() const { return bytes_; }

private:
    Origin origin_{};
    std::size_t bytes_ = 0;
};

}  // namespace soft
