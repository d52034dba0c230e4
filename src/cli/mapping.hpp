// SPDX-License-Identifier: BSD-3-Clause
// cli/mapping: memory from mmap with an owner.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <span>
#include <utility>

namespace cli {

inline constexpr std::size_t page_size = 4096;

// Owns one mapping and unmaps it once; empty when mmap failed (errno says why).
class Mapping {
public:
    Mapping() = default;
    Mapping(std::size_t size, int flags, int fd, int protection = PROT_READ | PROT_WRITE) : size_{size} {
        void *address = mmap(nullptr, size, protection, flags, fd, 0);
        address_ = address == MAP_FAILED ? nullptr : static_cast<std::byte *>(address);
    }
    Mapping(Mapping &&other) noexcept
        : address_{std::exchange(other.address_, nullptr)}, size_{other.size_} {}
    Mapping &operator=(Mapping &&other) noexcept {
        std::swap(address_, other.address_);
        std::swap(size_, other.size_);
        return *this;
    }
    Mapping(const Mapping &) = delete;
    Mapping &operator=(const Mapping &) = delete;
    ~Mapping() {
        if (address_ != nullptr) {
            munmap(address_, size_);
        }
    }

    explicit operator bool() const { return address_ != nullptr; }
    [[nodiscard]] std::span<std::byte> bytes() const {
        return address_ != nullptr ? std::span{address_, size_} : std::span<std::byte>{};
    }

private:
    std::byte *address_ = nullptr;
    std::size_t size_ = 0;
};

}  // namespace cli
