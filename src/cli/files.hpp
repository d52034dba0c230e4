// SPDX-License-Identifier: BSD-3-Clause
// cli/files: a file without a name, its name, and bytes into a file.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/fd.hpp"

namespace cli {

// Makes a file without a name in a folder, whose path begins at the folder `at`. The kernel removes the file
// when the process ends in any way.
[[nodiscard]] inline base::Fd unnamed_file(int at, const char *folder = ".", mode_t mode = 0600) {
    return base::Fd{openat(at, folder, O_TMPFILE | O_RDWR | O_CLOEXEC, mode)};
}

// Gives a file without a name its name. Returns 0 or an errno value.
[[nodiscard]] inline int give_name(int fd, int folder, const std::string &name) {
    const auto descriptor = "/proc/self/fd/" + std::to_string(fd);
    return linkat(AT_FDCWD, descriptor.c_str(), folder, name.c_str(), AT_SYMLINK_FOLLOW) == 0 ? 0 : errno;
}

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
