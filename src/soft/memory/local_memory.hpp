// SPDX-License-Identifier: BSD-3-Clause
// soft/memory/local_memory: finds the memory of the program's own requests by its key. It remembers the
// region that was found last, so that requests with the same key look into no table.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <optional>

#include "soft/memory/memory.hpp"

namespace soft {

// It is not thread-safe: its owner locks.
class LocalMemory {
public:
    // `domain` is the queue pair's; its keys name the memory.
    explicit LocalMemory(const ibv_pd &domain) : domain_{domain} {}

    [[nodiscard]] const ibv_pd &domain() const { return domain_; }
    // Returns where the bytes of an element of a scatter list are. Returns nothing when its key does not
    // allow an access with these rights. The program keeps the memory registered until its request is done,
    // so the memory is not pinned. The caller touches it guarded (persist/guard.hpp), because a program may
    // break that rule.
    [[nodiscard]] std::optional<std::byte *> find(const ibv_sge &sge, unsigned rights) {
        const std::uint64_t offset = sge.addr - iova_;
        if (sge.lkey == key_ && Memory::changes() == changes_ && (rights & ~access_) == 0 &&
            offset <= length_ && sge.length <= length_ - offset) [[likely]] {
            // NOLINTNEXTLINE(performance-no-int-to-ptr): a region of the whole address space begins at 0.
            return reinterpret_cast<std::byte *>(begin_ + offset);
        }
        return look_up(sge, rights);
    }

private:
    [[nodiscard]] std::optional<std::byte *> look_up(const ibv_sge &sge, unsigned rights);

    const ibv_pd &domain_;
    // The region, as long as Memory::changes() is this number. At first it is none, of no bytes.
    std::uint64_t changes_ = 0;
    std::uint32_t key_ = 0;
    unsigned access_ = 0;
    std::uint64_t iova_ = 0;
    std::uint64_t length_ = 0;
    std::uintptr_t begin_ = 0;
};

}  // namespace soft
