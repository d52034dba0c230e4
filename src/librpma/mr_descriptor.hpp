// SPDX-License-Identifier: BSD-3-Clause
// librpma/mr_descriptor: the bytes that give a peer access to a region; 21 bytes, little endian, not aligned:
//
//    0       8       16    20  21
//    +-------+-------+-----+---+
//    |address| size  | rkey| u |    u: usage, a set of RPMA_MR_USAGE_ bits
//    +-------+-------+-----+---+
//
// In u, librpma 1.0 to 1.3 use only the two flush bits. When u has a flush bit, all bits that concern only
// the region's owner, and not WRITE_DST, the region may be written, and takes native flush and atomic write.
// As a plain usage that combination would have no meaning: a flush of a region that no peer may write. A
// connection cannot tell this, because a peer with librpma 1.3 on a device that supports both registers its
// regions for neither.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/cursor.hpp"
#include "librpma/api.hpp"

namespace librpma {

inline constexpr int all_usages = 0xff;

struct MrDescriptor {
    std::uint64_t address;
    std::uint64_t size;
    std::uint32_t rkey;
    std::uint8_t usage;
    // Says whether native flush and atomic write may be posted to the region; its usage then has WRITE_DST
    // and a flush bit.
    bool takes_native = false;
};

inline constexpr std::size_t mr_descriptor_size = 21;
static_assert(mr_descriptor_size == sizeof(std::uint64_t) * 2 + sizeof(std::uint32_t) + sizeof(std::uint8_t));

inline constexpr int flush_usages = RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY | RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT;
inline constexpr int owners_usages =
    RPMA_MR_USAGE_READ_DST | RPMA_MR_USAGE_WRITE_SRC | RPMA_MR_USAGE_SEND | RPMA_MR_USAGE_RECV;

inline void write(const MrDescriptor &descriptor, std::span<std::byte, mr_descriptor_size> bytes) {
    const int native = (descriptor.usage | owners_usages) & ~RPMA_MR_USAGE_WRITE_DST;
    base::Writer writer{bytes};
    writer.little(descriptor.address);
    writer.little(descriptor.size);
    writer.little(descriptor.rkey);
    writer.little(descriptor.takes_native ? static_cast<std::uint8_t>(native) : descriptor.usage);
    assert(writer.ok());
}

// Reads a descriptor. Fails with RPMA_E_INVAL, and logs it, when there are too few bytes or the region allows
// nothing. Bytes after it are ignored.
[[nodiscard]] inline Result<MrDescriptor> read_mr_descriptor(std::span<const std::byte> bytes) {
    base::Reader reader{bytes};
    MrDescriptor descriptor{};
    descriptor.address = reader.little<std::uint64_t>();
    descriptor.size = reader.little<std::uint64_t>();
    descriptor.rkey = reader.little<std::uint32_t>();
    descriptor.usage = reader.little<std::uint8_t>();
    if (!reader.ok()) {
        BASE_LOG(Error, "a memory region's descriptor has %zu bytes, at least %zu are needed", bytes.size(),
                 mr_descriptor_size);
        return Failure{RPMA_E_INVAL};
    }
    if (descriptor.usage == 0) {
        BASE_LOG(Error,
                 "a memory region's descriptor has usage 0, at least one RPMA_MR_USAGE_ bit is needed");
        return Failure{RPMA_E_INVAL};
    }
    if ((descriptor.usage & flush_usages) != 0 &&
        (descriptor.usage & (owners_usages | RPMA_MR_USAGE_WRITE_DST)) == owners_usages) {
        descriptor.takes_native = true;
        descriptor.usage =
            static_cast<std::uint8_t>((descriptor.usage & ~owners_usages) | RPMA_MR_USAGE_WRITE_DST);
    }
    return descriptor;
}

}  // namespace librpma
