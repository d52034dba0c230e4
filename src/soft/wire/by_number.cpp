// SPDX-License-Identifier: BSD-3-Clause
#include "soft/wire/by_number.hpp"

#include <utility>

#include "base/cursor.hpp"

namespace soft::wire {

namespace {

constexpr std::uint32_t names_magic = 0x734e756d;  // "sNum"
constexpr unsigned number_bits = 24;
constexpr std::uint32_t number_mask = (1U << number_bits) - 1;
constexpr std::uint32_t first_type = 1;
constexpr std::uint32_t last_type = 4;

}  // namespace

std::optional<QueuePairNames> decode_names(std::span<const std::byte> private_data) {
    base::Reader reader{private_data};
    const bool ours = reader.big<std::uint32_t>() == names_magic;
    const auto destination = reader.big<std::uint32_t>();
    const auto source = reader.big<std::uint32_t>();
    const std::uint32_t type = destination >> number_bits;
    if (!ours || !reader.ok() || reader.left() != 0 || type < first_type || type > last_type ||
        (destination & number_mask) >= first_datagram_number || source > number_mask) {
        return std::nullopt;
    }
    return QueuePairNames{.type = QueuePairType{static_cast<std::uint8_t>(type)},
                          .destination = destination & number_mask,
                          .source = source};
}

std::array<std::byte, queue_pair_names_bytes> encode(const QueuePairNames &names) {
    std::array<std::byte, queue_pair_names_bytes> bytes;
    base::Writer writer{bytes};
    writer.big(names_magic);
    writer.big(std::uint32_t{std::to_underlying(names.type)} << number_bits | names.destination);
    writer.big(names.source);
    return bytes;
}

}  // namespace soft::wire
