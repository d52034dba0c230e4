// SPDX-License-Identifier: BSD-3-Clause
// Each test gets a registry of its own, in memory as the registry of the machine is.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <system_error>
#include <vector>

#include "../../folder.hpp"
#include "registry/book.hpp"
#include "registry/reader.hpp"

namespace memory_folder {

inline int make(void ** = nullptr) {
    char name[] = "/dev/shm/test-registry.XXXXXX";
    folder::path = mkdtemp(name) != nullptr ? name : "";
    return folder::path.empty() || chmod(name, 0755) != 0 ? -1 : 0;
}

inline std::vector<registry::Seen> seen() {
    std::vector<registry::Seen> all;
    registry::read_all(folder::path, registry::users_with_processes(), [&](const registry::Seen &one) {
        all.push_back(one);
        return true;
    });
    return all;
}

// Returns the folder of a user.
inline std::filesystem::path of(uid_t user = geteuid()) {
    return folder::path / ("rsockets-" + std::to_string(user));
}

// Returns the number of this user's files.
inline std::size_t count() {
    std::error_code error;
    return static_cast<std::size_t>(std::ranges::distance(std::filesystem::directory_iterator{of(), error}));
}

// Returns the path of this user's only file in the registry.
inline std::filesystem::path file() {
    return std::filesystem::directory_iterator {
        of()
    } -> path();
}

}  // namespace memory_folder
