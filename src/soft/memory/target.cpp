// SPDX-License-Identifier: BSD-3-Clause
#include "soft/memory/target.hpp"

#include <algorithm>
#include <cinttypes>

#include "base/log.hpp"
#include "persist/guard.hpp"
#include "soft/ground/limits.hpp"

namespace soft {

static_assert(Target::max_pieces >= limits::max_sge);

ibv_wc_status Target::aim_at(const ibv_pd *domain, std::span<const ibv_sge> sges, std::size_t offset,
                             std::size_t most_bytes) {
    for (const ibv_sge &sge : sges) {
        if (bytes == most_bytes) {
            break;
        }
        if (offset >= sge.length) {
            offset -= sge.length;
            continue;
        }
        const std::size_t size = std::min<std::size_t>(sge.length - offset, most_bytes - bytes);
        auto pin = Memory::instance().pin({.by = {domain},
                                           .key = sge.lkey,
                                           .address = sge.addr,
                                           .length = sge.length,
                                           .rights = IBV_ACCESS_LOCAL_WRITE});
        if (!pin) {
            BASE_LOG(Error,
                     "local memory of %" PRIu32 " bytes at 0x%" PRIx64 " with key 0x%" PRIx32
                     " cannot be filled: %s",
                     sge.length, sge.addr, sge.lkey, text_of(pin.error()));
            return IBV_WC_LOC_PROT_ERR;
        }
        pieces[count] = {.iov_base = pin->region().at(sge.addr + offset), .iov_len = size};
        pins[count++] = std::move(*pin);
        bytes += size;
        offset = 0;
    }
    return bytes != 0 ? IBV_WC_SUCCESS : IBV_WC_LOC_LEN_ERR;
}

std::size_t Target::fill(const std::byte *from) const {
    for (std::size_t i = 0; i < count; ++i) {
        if (!persist::guarded_copy(pieces[i].iov_base, from, pieces[i].iov_len)) {
            return i;
        }
        from += pieces[i].iov_len;
    }
    return count;
}

}  // namespace soft
