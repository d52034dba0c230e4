// SPDX-License-Identifier: BSD-3-Clause
// This header replaces operator new for the whole process. The program includes it in one file, and its
// allocation_fails() decides which allocations fail.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>

namespace test {

[[nodiscard]] bool allocation_fails(std::size_t size);

}  // namespace test

// Every operator that the device uses is replaced, because a sanitizer brings its own. The operators are not
// inline, because otherwise g++ would not see which new belongs to which delete.
[[gnu::noinline]] void *operator new(std::size_t size, const std::nothrow_t &) noexcept {
    return test::allocation_fails(size) ? nullptr : std::malloc(size);
}
[[gnu::noinline]] void *operator new(std::size_t size) {
    void *const memory = operator new(size, std::nothrow);
    if (memory == nullptr) {
        throw std::bad_alloc{};
    }
    return memory;
}
[[gnu::noinline]] void *operator new[](std::size_t size, const std::nothrow_t &) noexcept {
    return operator new(size, std::nothrow);
}
[[gnu::noinline]] void *operator new[](std::size_t size) {
    return operator new(size);
}
[[gnu::noinline]] void operator delete(void *memory) noexcept {
    std::free(memory);
}
[[gnu::noinline]] void operator delete(void *memory, std::size_t) noexcept {
    std::free(memory);
}
[[gnu::noinline]] void operator delete[](void *memory) noexcept {
    std::free(memory);
}
[[gnu::noinline]] void operator delete[](void *memory, std::size_t) noexcept {
    std::free(memory);
}
