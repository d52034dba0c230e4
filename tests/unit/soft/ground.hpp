// SPDX-License-Identifier: BSD-3-Clause
// Hostile peers aim at the regions that are registered here.
#pragma once

#include <algorithm>
#include <span>

#include "disorder.hpp"
#include "softrdma.h"

namespace test {

// There is a region that peers may read and write, one that they may only read, and one whose old key they
// know. Margins between the regions are not registered.
class Ground {
public:
    explicit Ground(ibv_pd *pd)
        : pd_{pd}, bytes_(open_bytes + 2 * small_bytes + 4 * margin_bytes, untouched) {
        open_ = registered(margin_bytes, open_bytes,
                           IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
        read_only_ = registered(read_only_at, small_bytes, IBV_ACCESS_REMOTE_READ);
        register_spare();
    }
    ~Ground() {
        for (ibv_mr *const region : {open_, read_only_, spare_}) {
            (void)softrdma_ibv_dereg_mr(region);
        }
    }
    Ground(const Ground &) = delete;
    Ground &operator=(const Ground &) = delete;

    void register_spare() {
        stale_key_ = spare_ != nullptr ? spare_->rkey : 0;
        if (spare_ != nullptr) {
            assert_int_equal(softrdma_ibv_dereg_mr(spare_), 0);
        }
        spare_ = registered(spare_at, small_bytes, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
    }
    [[nodiscard]] Aim open() const { return aim(*open_); }
    [[nodiscard]] Aim read_only() const { return aim(*read_only_); }
    [[nodiscard]] Aim stale() const {
        return {.key = stale_key_,
                .address = reinterpret_cast<std::uintptr_t>(spare_->addr),
                .bytes = small_bytes};
    }
    [[nodiscard]] bool is_untouched() const {
        const auto same = [](std::byte byte) { return byte == untouched; };
        return std::ranges::all_of(std::span{bytes_}.first(margin_bytes), same) &&
               std::ranges::all_of(std::span{bytes_}.subspan(margin_bytes + open_bytes), same);
    }

private:
    static constexpr std::size_t open_bytes = 64 * 1024;
    static constexpr std::size_t small_bytes = 4096;
    static constexpr std::size_t margin_bytes = 4096;
    static constexpr std::byte untouched{0xee};
    static constexpr std::size_t read_only_at = 2 * margin_bytes + open_bytes;
    static constexpr std::size_t spare_at = read_only_at + small_bytes + margin_bytes;

    [[nodiscard]] static Aim aim(const ibv_mr &region) {
        return {.key = region.rkey,
                .address = reinterpret_cast<std::uintptr_t>(region.addr),
                .bytes = region.length};
    }
    [[nodiscard]] ibv_mr *registered(std::size_t at, std::size_t size, int access) {
        ibv_mr *const region = softrdma_ibv_reg_mr(
            pd_, bytes_.data() + at, size, access | IBV_ACCESS_LOCAL_WRITE | SOFTRDMA_ACCESS_FLUSH_GLOBAL);
        assert_non_null(region);
        return region;
    }

    ibv_pd *const pd_;
    Bytes bytes_;
    ibv_mr *open_ = nullptr;
    ibv_mr *read_only_ = nullptr;
    ibv_mr *spare_ = nullptr;
    std::uint32_t stale_key_ = 0;
};

}  // namespace test
