// SPDX-License-Identifier: BSD-3-Clause
// Each test gets a folder of its own, new and empty. The set-up makes it and the tear-down removes it,
// because a failed assertion jumps past the destructors of the test.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace folder {

inline std::filesystem::path path;

inline int make(void ** = nullptr) {
    char name[] = "folder.XXXXXX";
    if (mkdtemp(name) == nullptr) {
        return -1;
    }
    path = std::filesystem::absolute(name);
    return 0;
}

inline int remove(void ** = nullptr) {
    std::error_code error;
    std::filesystem::remove_all(path, error);
    return error ? -1 : 0;
}

inline void write(const std::filesystem::path &file, const std::string &bytes) {
    std::ofstream{file, std::ios::binary} << bytes;
}

inline std::string read(const std::filesystem::path &file) {
    std::ifstream stream{file, std::ios::binary};
    return {std::istreambuf_iterator{stream}, {}};
}

// Returns the number of files in the folder, hidden ones included.
inline std::size_t count() {
    return static_cast<std::size_t>(std::ranges::distance(std::filesystem::directory_iterator{path}));
}

}  // namespace folder
