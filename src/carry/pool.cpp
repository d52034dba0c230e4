// SPDX-License-Identifier: BSD-3-Clause
// carry/pool: memory in sizes that are powers of two.
#include "carry/pool.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>

#include "base/fork.hpp"
#include "base/small_mutex.hpp"
#include "carry/section.hpp"

namespace carry::pool {

namespace {

constinit base::SmallMutex mutex;
const base::HeldWhileForking<mutex> whole_after_forks{base::ForkLevel::Base};

struct Free {
    Free *next;
};
constexpr unsigned sizes_count = 64;
constinit std::array<Free *, sizes_count> free_of_size GUARDED_BY(mutex){};

// take() gives memory from here: the rest of the last piece that the kernel has given.
constexpr std::size_t piece_bytes = std::size_t{64} << 10;
constinit std::byte *piece GUARDED_BY(mutex) = nullptr;
constinit std::size_t left_of_piece GUARDED_BY(mutex) = 0;

unsigned size_of(std::size_t bytes) {
    constexpr std::size_t least = 64;
    return static_cast<unsigned>(std::bit_width(std::max(bytes, least) - 1));
}

std::byte *map(std::size_t bytes) {
    const int error = errno;
    void *const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        throw std::bad_alloc{};
    }
    errno = error;
    return static_cast<std::byte *>(memory);
}

}  // namespace

void *take(std::size_t bytes) {
    const HeldShortly held{mutex};
    const unsigned size = size_of(bytes);
    Free *&first = free_of_size.at(size);
    if (first != nullptr) {
        return std::exchange(first, first->next);
    }
    const std::size_t room = std::size_t{1} << size;
    if (room > piece_bytes / 4) {
        return map(room);
    }
    if (left_of_piece < room) {
        piece = map(piece_bytes);
        left_of_piece = piece_bytes;
    }
    left_of_piece -= room;
    return piece + left_of_piece;
}

void give(void *memory, std::size_t bytes) noexcept {
    const HeldShortly held{mutex};
    Free *&first = free_of_size[size_of(bytes)];
    first = new (memory) Free{.next = first};
}

}  // namespace carry::pool
