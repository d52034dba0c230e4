// SPDX-License-Identifier: BSD-3-Clause
// persist/portion: how many bytes one msync makes durable. Calls on one file wait for each other
// (persist/file), and a device has few threads, so a short flush would wait until all of a long one is on
// storage. A long flush is therefore done in portions, and others have their turn between two of them. Behind
// eight flushes of 64 MiB, on a disk that writes 100 MB a second, a flush of 8 bytes takes 0.4 s, and 5.1 s
// when they are not done in portions.
//
// Each portion costs a flush of the disk's cache. So a portion grows where storage is fast, or has most bytes
// already: where a flush of the cache takes 4 ms, 256 MiB take 70 to 90 ms with one call, 110 ms in portions
// of 64 MiB, and 250 ms in those of 4 MiB.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/clock.hpp"

namespace persist {

class Portion {
public:
    static constexpr std::size_t fewest = std::size_t{4} << 20;
    static constexpr std::size_t most = std::size_t{64} << 20;
    static constexpr base::Milliseconds quick{25};
    static constexpr base::Milliseconds slow{100};

    // Returns how many of these bytes are done with one call. That ends between two pages.
    [[nodiscard]] std::size_t of(std::uintptr_t begin, std::size_t bytes) const {
        return std::min(bytes, bytes_ - begin % fewest);
    }
    // Is called with the time that a portion took of which there was more.
    void took(base::Clock::duration time) {
        if (time < quick) {
            bytes_ = std::min(bytes_ * 4, most);
        } else if (time > slow) {
            bytes_ = std::max(bytes_ / 4, fewest);
        }
    }

private:
    std::size_t bytes_ = fewest;
};

}  // namespace persist
