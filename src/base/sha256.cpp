// SPDX-License-Identifier: BSD-3-Clause
#include "base/sha256.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <vector>

namespace base {

namespace {

constexpr std::size_t block_bytes = 64;
using Block = std::array<std::byte, block_bytes>;
using State = std::array<std::uint32_t, 8>;

// The first 32 bits of the fractional parts of the square roots of the first eight primes, and of the cube
// roots of the first 64.
constexpr State first_state{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                            0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
constexpr std::array<std::uint32_t, 64> constants{
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

void compress(State &state, std::span<const std::byte, block_bytes> block) {
    std::array<std::uint32_t, 64> words{};
    for (std::size_t i = 0; i < block_bytes; ++i) {
        words[i / 4] = words[i / 4] << 8 | std::to_integer<std::uint32_t>(block[i]);
    }
    for (std::size_t i = 16; i < words.size(); ++i) {
        const std::uint32_t before = words[i - 15];
        const std::uint32_t last = words[i - 2];
        words[i] = words[i - 16] + words[i - 7] +
                   (std::rotr(before, 7) ^ std::rotr(before, 18) ^ (before >> 3)) +
                   (std::rotr(last, 17) ^ std::rotr(last, 19) ^ (last >> 10));
    }
    auto [a, b, c, d, e, f, g, h] = state;
    for (std::size_t i = 0; i < words.size(); ++i) {
        const std::uint32_t one = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                                  ((e & f) ^ (~e & g)) + constants[i] + words[i];
        const std::uint32_t other =
            (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
        h = g;
        g = f;
        f = e;
        e = d + one;
        d = c;
        c = b;
        b = a;
        a = one + other;
    }
    const State more{a, b, c, d, e, f, g, h};
    for (std::size_t i = 0; i < state.size(); ++i) {
        state[i] += more[i];
    }
}

template <typename Word>
void append(std::vector<std::byte> &bytes, Word word) {
    for (int shift = std::numeric_limits<Word>::digits - 8; shift >= 0; shift -= 8) {
        bytes.push_back(static_cast<std::byte>(word >> shift));
    }
}

}  // namespace

Digest sha256(std::span<const std::byte> bytes) {
    std::vector<std::byte> padded{bytes.begin(), bytes.end()};
    padded.push_back(std::byte{0x80});
    padded.resize((padded.size() + sizeof(std::uint64_t) + block_bytes - 1) / block_bytes * block_bytes -
                  sizeof(std::uint64_t));
    append(padded, std::uint64_t{bytes.size()} * 8);
    State state = first_state;
    for (std::size_t at = 0; at < padded.size(); at += block_bytes) {
        compress(state, std::span{padded}.subspan(at).first<block_bytes>());
    }
    std::vector<std::byte> result;
    for (const std::uint32_t word : state) {
        append(result, word);
    }
    Digest digest;
    std::ranges::copy(result, digest.begin());
    return digest;
}

Digest hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> message) {
    Block whole{};
    if (key.size() > block_bytes) {
        std::ranges::copy(sha256(key), whole.begin());
    } else {
        std::ranges::copy(key, whole.begin());
    }
    const auto digest = [&whole](std::byte pad, std::span<const std::byte> text) {
        std::vector<std::byte> all;
        for (const std::byte byte : whole) {
            all.push_back(byte ^ pad);
        }
        all.insert(all.end(), text.begin(), text.end());
        return sha256(all);
    };
    return digest(std::byte{0x5c}, digest(std::byte{0x36}, message));
}

}  // namespace base
