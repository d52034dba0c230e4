// SPDX-License-Identifier: BSD-3-Clause
// librpma/pages: memory that has its pages for itself, to be registered. Registered memory must not share a
// page with the program's data (fork, ibv_fork_init(3)).
#pragma once

#include <cstddef>
#include <utility>

#include "librpma/api.hpp"

namespace librpma {

// The pages are zeroed, and take no memory before they are touched.
class Pages {
public:
    Pages() = default;
    // Fails with RPMA_E_NOMEM.
    [[nodiscard]] static Result<Pages> create(std::size_t size);
    Pages(Pages &&other) noexcept
        : address_{std::exchange(other.address_, nullptr)}, size_{std::exchange(other.size_, 0)} {}
    Pages &operator=(Pages &&other) noexcept {
        if (this != &other) {
            (void)close();
            address_ = std::exchange(other.address_, nullptr);
            size_ = std::exchange(other.size_, 0);
        }
        return *this;
    }
    Pages(const Pages &) = delete;
    Pages &operator=(const Pages &) = delete;
    ~Pages() { (void)close(); }

    [[nodiscard]] void *address() const { return address_; }
    // Fails with RPMA_E_INVAL, and logs it, when the program has changed the mapping.
    [[nodiscard]] int close();

private:
    Pages(void *address, std::size_t size) : address_{address}, size_{size} {}

    void *address_ = nullptr;
    std::size_t size_ = 0;
};

}  // namespace librpma
