// SPDX-License-Identifier: BSD-3-Clause
// rsocket/descriptor_set: a set of select(2) as the kernel reads it: as long as the call's first argument
// says, which may be longer than an fd_set.
#pragma once

#include <sys/select.h>

#include <cstddef>

namespace rsockets {

class DescriptorSet {
public:
    // Has nothing where there is no set.
    explicit DescriptorSet(fd_set *set) : words_{reinterpret_cast<fd_mask *>(set)} {}

    [[nodiscard]] bool has(int fd) const { return words_ != nullptr && (word_of(fd) & mask_of(fd)) != 0; }
    // There is a set.
    void add(int fd) { word_of(fd) |= mask_of(fd); }
    void remove(int fd) { word_of(fd) &= ~mask_of(fd); }

    // Returns how many words a set for the descriptors below `count` has.
    [[nodiscard]] static std::size_t words_for(int count) {
        return (static_cast<std::size_t>(count) + bits - 1) / bits;
    }

private:
    static constexpr std::size_t bits = sizeof(fd_mask) * 8;

    [[nodiscard]] fd_mask &word_of(int fd) const { return words_[static_cast<std::size_t>(fd) / bits]; }
    [[nodiscard]] static fd_mask mask_of(int fd) {
        return static_cast<fd_mask>(std::size_t{1} << static_cast<std::size_t>(fd) % bits);
    }

    fd_mask *words_;
};

}  // namespace rsockets
