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

    // A factor that turns the checksum of some bytes into their part of the checksum when so many others
    // follow: that number of bits, as a power of x modulo the polynomial.
    class Behind {
    public:
        explicit Behind(std::uint64_t bytes) {
            std::uint32_t square = 1U << 23;  // x to the 8
            for (; bytes != 0; bytes >>= 1) {
                factor_ = (bytes & 1) != 0 ? multiply(square, factor_) : factor_;
                square = multiply(square, square);
            }
        }

    private:
        friend Crc32c;
        std::uint32_t factor_ = 1U << 31;  // 1
    };

    // Adds bytes that have this checksum.
    void append(std::uint32_t checksum, Behind behind) {
        state_ = ~(multiply(behind.factor_, value()) ^ checksum);
    }

private:
    // Multiplies polynomials modulo that of CRC32C. The highest bit is the coefficient of 1.
    static std::uint32_t multiply(std::uint32_t left, std::uint32_t right) {
        constexpr std::uint32_t polynomial = 0x82f63b78;
        std::uint32_t product = 0;
        for (std::uint32_t bit = 1U << 31; bit != 0; bit >>= 1) {
            product ^= (left & bit) != 0 ? right : 0;
            right = (right & 1) != 0 ? right >> 1 ^ polynomial : right >> 1;
        }
        return product;
    }

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
