// SPDX-License-Identifier: BSD-3-Clause
// cli/write_all: bytes into a file.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>

namespace cli {

// Blocks until all bytes are written at the offset. Returns 0 or an errno value.
[[nodiscard]] inline int write_all(int fd, std::span<const std::byte> bytes, std::uint64_t offset) {
    while (!bytes.empty()) {
        const ssize_t put = pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
        if (put < 0 && errno != EINTR) {
            return errno;
        }
        const std::size_t progress = put > 0 ? static_cast<std::size_t>(put) : 0;
        bytes = bytes.subspan(progress);
        offset += progress;
    }
    return 0;
}

}  // namespace cli
