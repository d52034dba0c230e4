// SPDX-License-Identifier: BSD-3-Clause
#include "soft/memory/local_memory.hpp"

namespace soft {

[[gnu::noinline]] std::optional<std::byte *> LocalMemory::look_up(const ibv_sge &sge, unsigned rights) {
    const std::uint64_t changes = Memory::changes();  // read first: a later change makes the look-up stale
    const auto pin = Memory::instance().pin(
        {.by = {&domain_}, .key = sge.lkey, .address = sge.addr, .length = sge.length, .rights = rights});
    if (!pin) {
        return std::nullopt;
    }
    const MemoryRegion &region = pin->region();
    changes_ = changes;
    key_ = sge.lkey;
    access_ = region.access;
    iova_ = region.iova;
    length_ = region.length;
    begin_ = reinterpret_cast<std::uintptr_t>(region.at(region.iova));
    return region.at(sge.addr);
}

}  // namespace soft
