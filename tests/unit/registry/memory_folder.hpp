// SPDX-License-Identifier: BSD-3-Clause
// Each test gets a registry of its own, in memory as the registry of the machine is.
#pragma once

#include <sys/stat.h>

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
    registry::read_all(
        folder::path, [](uid_t) { return true; },
        [&](const registry::Seen &one) {
            all.push_back(one);
            return true;
        });
    return all;
}

// Returns the path of the only file in the registry.
inline std::filesystem::path file() {
    return std::filesystem::directory_iterator {
        folder::path
    } -> path();
}

}  // namespace memory_folder
