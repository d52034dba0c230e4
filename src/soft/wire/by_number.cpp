// SPDX-License-Identifier: BSD-3-Clause
#include "soft/wire/by_number.hpp"

#include "base/cursor.hpp"

namespace soft::wire {

namespace {

constexpr std::uint32_t names_magic = 0x734e756d;  // "sNum"
constexpr unsigned number_bits = 24;
constexpr std::uint32_t number_mask = (1U << number_bits) - 1;
constexpr std::uint32_t reliable_type = 1;
constexpr std::uint32_t unreliable_type = 2;

}  // namespace

std::optional<QueuePairNames> decode_names(std::span<const std::byte> private_data) {
    base::Reader reader{private_data};
    const bool ours = reader.big<std::uint32_t>() == names_magic;
    const auto destination = reader.big<std::uint32_t>();
    const auto source = reader.big<std::uint32_t>();
    const std::uint32_t type = destination >> number_bits;
    if (!ours || !reader.ok() || reader.left() != 0 || (type != reliable_type && type != unreliable_type) ||
        source > number_mask) {
        return std::nullopt;
    }
    return QueuePairNames{
        .reliable = type == reliable_type, .destination = destination & number_mask, .source = source};
}

std::array<std::byte, queue_pair_names_bytes> encode(const QueuePairNames &names) {
    std::array<std::byte, queue_pair_names_bytes> bytes;
    base::Writer writer{bytes};
    writer.big(names_magic);
    writer.big((names.reliable ? reliable_type : unreliable_type) << number_bits | names.destination);
    writer.big(names.source);
    return bytes;
}

}  // namespace soft::wire
