// SPDX-License-Identifier: BSD-3-Clause
// operator new for the whole process, which fails when the program that includes this, in one file, says so.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>

namespace test {

[[nodiscard]] bool allocation_fails(std::size_t size);

}  // namespace test

// All that the device uses, because a sanitizer has its own. Not inline: g++ would miss that they belong
// together.
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
