// SPDX-License-Identifier: BSD-3-Clause
// verbs_preload/face: the folders /sys/class/infiniband and /dev/infiniband as programs see them that ask for
// devices of RoCE (SOFTRDMA_ROCE): a tree of files in memory, which stands for the kernel's.
#pragma once

#include <array>
#include <climits>

namespace face {

// A program's path stands for itself, or for a file in the tree. The process makes the
// tree when it first looks there, and a forked child makes one of its own.
class Path {
public:
    explicit Path(const char *path);
    Path(const Path &) = delete;
    Path &operator=(const Path &) = delete;
    ~Path() = default;

    [[nodiscard]] const char *get() const { return replaced_[0] != '\0' ? replaced_.data() : path_; }

private:
    const char *path_;
    std::array<char, PATH_MAX> replaced_;
};

// Takes the tree's own name off a path that libc has resolved, so that it begins as the program's.
void take_tree_off(char *path);

}  // namespace face
