// SPDX-License-Identifier: BSD-3-Clause
// carry/pool: memory for what calls keep that a signal handler may make, such as close(2): the handler may
// have interrupted malloc(3). A child of a system call that copies the process cannot use malloc(3) either,
// when another thread of its parent was inside.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <utility>

namespace carry::pool {

// Returns memory of so many bytes at least, aligned for each type; throws std::bad_alloc. Any thread may
// call.
[[nodiscard]] void *take(std::size_t bytes);
// Another take() of about as many bytes gets it; the kernel does not get it back.
void give(void *memory, std::size_t bytes) noexcept;

template <typename T>
struct Allocator {
    using value_type = T;

    Allocator() = default;
    template <typename Other>
    explicit(false) Allocator(const Allocator<Other> & /*other*/) {}
    // NOLINTBEGIN(bugprone-sizeof-expression): containers have pointers too
    [[nodiscard]] T *allocate(std::size_t count) { return static_cast<T *>(take(count * sizeof(T))); }
    void deallocate(T *memory, std::size_t count) noexcept {
        give(static_cast<void *>(memory), count * sizeof(T));
    }
    // NOLINTEND(bugprone-sizeof-expression)
    template <typename Other>
    bool operator==(const Allocator<Other> & /*other*/) const {
        return true;
    }
};

struct Give {
    template <typename T>
    void operator()(T *object) const {
        std::destroy_at(object);
        give(object, sizeof(T));
    }
};
template <typename T>
using Owned = std::unique_ptr<T, Give>;

template <typename T>
Owned<T> own(T &&object) {
    return Owned<T>{new (take(sizeof(T))) T{std::forward<T>(object)}};
}

// An object that is never destroyed.
template <typename T>
T &lasting() {
    return *new (take(sizeof(T))) T;
}

}  // namespace carry::pool
