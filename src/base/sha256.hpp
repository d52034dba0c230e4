// SPDX-License-Identifier: BSD-3-Clause
// base/sha256: SHA-256 (FIPS 180-4), and HMAC with it (RFC 2104), for a few bytes at a time.
#pragma once

#include <array>
#include <cstddef>
#include <span>

namespace base {

using Digest = std::array<std::byte, 32>;

[[nodiscard]] Digest sha256(std::span<const std::byte> bytes);
[[nodiscard]] Digest hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> message);

}  // namespace base
