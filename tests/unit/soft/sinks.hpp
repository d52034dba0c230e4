// SPDX-License-Identifier: BSD-3-Clause
// The device writes what requests bring into this memory. The memory is one region, registered for local
// writing only and cut into cells. Only the used part of a cell may change.
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <span>
#include <vector>

#include "softrdma.h"

// This comes last, because it asserts.
#include "../wire/bytes.hpp"

namespace test {

class Sinks {
public:
    static constexpr std::size_t most_bytes = 32 * 1024;

    struct Cell {
        std::size_t at;
        std::size_t bytes;
        std::size_t used = 0;  // behind the guard
    };

    explicit Sinks(ibv_pd *pd) : memory_(small_cells * small_bytes + large_cells * large_bytes, untouched) {
        region_ = softrdma_ibv_reg_mr(pd, memory_.data(), memory_.size(), IBV_ACCESS_LOCAL_WRITE);
        assert_non_null(region_);
        cells_.reserve(small_cells + large_cells);
        for (std::size_t at = 0; at < memory_.size(); at += cells_.back().bytes) {
            const bool is_large = cells_.size() >= small_cells;
            cells_.push_back({.at = at, .bytes = is_large ? large_bytes : small_bytes});
            (is_large ? large_ : small_).push_back(&cells_.back());
        }
    }
    ~Sinks() { (void)softrdma_ibv_dereg_mr(region_); }
    Sinks(const Sinks &) = delete;
    Sinks &operator=(const Sinks &) = delete;

    // Returns a free cell, or null when there is none.
    [[nodiscard]] Cell *take(std::size_t bytes) {
        auto &free = bytes + 2 * guard_bytes <= small_bytes ? small_ : large_;
        if (free.empty()) {
            return nullptr;
        }
        Cell *const cell = free.back();
        free.pop_back();
        cell->used = bytes;
        return cell;
    }
    // Takes the cell back, and asserts that none but its first `filled` bytes have changed.
    void give_back(Cell &cell, std::size_t filled) {
        assert_true(filled <= cell.used);
        cell.used = filled;
        assert_true(is_untouched(cell));
        std::ranges::fill(filled_part(cell), untouched);
        cell.used = 0;
        (cell.bytes == small_bytes ? small_ : large_).push_back(&cell);
    }
    [[nodiscard]] std::span<std::byte> filled_part(const Cell &cell) {
        return std::span{memory_}.subspan(cell.at + guard_bytes, cell.used);
    }
    [[nodiscard]] ibv_sge sge(const Cell &cell) {
        return {.addr = reinterpret_cast<std::uintptr_t>(filled_part(cell).data()),
                .length = static_cast<std::uint32_t>(cell.used),
                .lkey = region_->lkey};
    }
    [[nodiscard]] bool are_untouched() const {
        return std::ranges::all_of(cells_, [this](const Cell &cell) { return is_untouched(cell); });
    }

private:
    static constexpr std::byte untouched{0xe1};
    static constexpr std::size_t guard_bytes = 64;
    static constexpr std::size_t small_bytes = 1024;
    static constexpr std::size_t large_bytes = most_bytes + 2 * guard_bytes;
    static constexpr std::size_t small_cells = 4096;
    static constexpr std::size_t large_cells = 32;

    [[nodiscard]] bool is_untouched(const Cell &cell) const {
        const auto all = std::span{memory_}.subspan(cell.at, cell.bytes);
        const auto same = [](std::byte byte) { return byte == untouched; };
        return std::ranges::all_of(all.first(guard_bytes), same) &&
               std::ranges::all_of(all.subspan(guard_bytes + cell.used), same);
    }

    Bytes memory_;
    ibv_mr *region_ = nullptr;
    std::vector<Cell> cells_;
    std::vector<Cell *> small_;  // those that are free
    std::vector<Cell *> large_;
};

}  // namespace test
