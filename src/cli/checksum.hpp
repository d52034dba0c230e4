// SPDX-License-Identifier: BSD-3-Clause
// cli/checksum: CRC32C (Castagnoli, RFC 3720 appendix B.4), the checksum of contents.
#pragma once

#include <isa-l/crc.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "cli/failure.hpp"

namespace cli {

class Crc32c {
public:
    void update(std::span<const std::byte> bytes) {
        constexpr std::size_t most = 1U << 30;  // isa-l takes an int
        while (!bytes.empty()) {
            const auto piece = bytes.first(std::min(bytes.size(), most));
            // isa-l's parameter lacks the const, but it only reads. The caller makes both inversions of the
            // standard.
            auto *data = const_cast<unsigned char *>(reinterpret_cast<const unsigned char *>(piece.data()));
            state_ = crc32_iscsi(data, static_cast<int>(piece.size()), state_);
            bytes = bytes.subspan(piece.size());
        }
    }

    [[nodiscard]] std::uint32_t value() const { return ~state_; }

private:
    std::uint32_t state_ = 0xffffffff;
};

[[nodiscard]] inline std::uint32_t crc32c(std::span<const std::byte> bytes) {
    Crc32c crc;
    crc.update(bytes);
    return crc.value();
}

// Returns the checksum as text, for people and for JSON.
[[nodiscard]] inline std::string checksum_text(std::uint32_t value) {
    return fmt::format("crc32c:{:08x}", value);
}

}  // namespace cli
