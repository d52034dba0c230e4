// SPDX-License-Identifier: BSD-3-Clause
// carry_device/proof: how an end shows that it has a connection: by the first bytes of both directions, which
// only the two ends have seen. It names how many it has, and the other one proves that it knows all of these.
// The end that is asked does so only when it has as many itself.
#pragma once

#include <nettle/hmac.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "carry/first_bytes.hpp"
#include "carry/link.hpp"

namespace carry_device {

using Digest = std::array<std::uint8_t, SHA256_DIGEST_SIZE>;

// How many of the first bytes each side has sent, as far as one end has seen them.
struct Lengths {
    std::uint16_t of_side[2]{};

    friend bool operator==(const Lengths &, const Lengths &) = default;
};

[[nodiscard]] inline std::uint64_t mixed(std::uint64_t value) {
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
    value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
    return value ^ (value >> 31);
}

// The two hosts have other cookies of their network namespaces, so these are no part of the name.
[[nodiscard]] inline std::uint64_t name_of(const carry::FourTuple &connection) {
    std::uint64_t hash = 1;
    std::array<std::uint64_t, sizeof(connection.ends) / 8> words;
    std::memcpy(words.data(), connection.ends, sizeof(connection.ends));
    for (const std::uint64_t word : words) {
        hash = mixed(hash ^ word);
    }
    return hash;
}

// One end's side of a connection and its first bytes.
class Beginning {
public:
    Beginning(const carry::BeginningOf &bytes, std::uint32_t side) : bytes_{bytes}, side_{side} {}

    [[nodiscard]] const carry::FirstBytes &of_side(std::uint32_t side) const {
        return side == side_ ? bytes_.sent : bytes_.received;
    }
    [[nodiscard]] Lengths lengths() const {
        Lengths all;
        for (std::uint32_t side = 0; side < 2; ++side) {
            all.of_side[side] = static_cast<std::uint16_t>(of_side(side).get().size());
        }
        return all;
    }
    [[nodiscard]] bool has(const Lengths &wanted) const {
        const Lengths own = lengths();
        return own.of_side[0] >= wanted.of_side[0] && own.of_side[1] >= wanted.of_side[1];
    }

private:
    const carry::BeginningOf &bytes_;
    std::uint32_t side_;
};

// The facts of one meeting. Each end has chosen one of the random numbers, so no proof serves again. The
// asked end's hello has the key of the asker's hello instead of its number, and the asker's hello none.
struct Facts {
    enum Speaker : std::uint32_t { Answers, Asker, Asked };  // in its answer, or in its hello

    std::uint64_t name = 0;
    std::uint64_t asks = 0;
    std::uint64_t answers = 0;
    std::uint32_t port = 0;  // where the asked end is
    Speaker speaker = Answers;
    Lengths proven{};
    std::uint32_t unused = 0;
};

// The caller has as many bytes, unless the program has closed the connection meanwhile.
[[nodiscard]] inline Digest proof_of(const Beginning &beginning, const Facts &facts) {
    std::vector<std::byte> known;
    for (std::uint32_t side = 0; side < 2; ++side) {
        const auto all = beginning.of_side(side).get();
        const auto bytes = all.first(std::min<std::size_t>(facts.proven.of_side[side], all.size()));
        known.insert(known.end(), bytes.begin(), bytes.end());
    }
    hmac_sha256_ctx hash;
    hmac_sha256_set_key(&hash, known.size(), reinterpret_cast<const std::uint8_t *>(known.data()));
    hmac_sha256_update(&hash, sizeof(facts), reinterpret_cast<const std::uint8_t *>(&facts));
    Digest digest;
    hmac_sha256_digest(&hash, digest.size(), digest.data());
    return digest;
}

// Returns as much of it as a hello has.
[[nodiscard]] inline std::uint64_t short_proof_of(const Beginning &beginning, const Facts &facts) {
    const Digest whole = proof_of(beginning, facts);
    std::uint64_t first = 0;
    std::memcpy(&first, whole.data(), sizeof(first));
    return first;
}

}  // namespace carry_device
