// SPDX-License-Identifier: BSD-3-Clause
#include "stream/incoming.hpp"

#include <cerrno>

#include "base/parts.hpp"
#include "stream/peer_memory.hpp"

namespace stream {

[[gnu::noinline]] int Incoming::post_receives() {
    const std::size_t count = std::exchange(taken_count_, 0);
    has_heard_ = has_heard_ || count != 0;
    return count != 0 && rpma_recv_many(common_.conn.get(), taken_.data(), count, nullptr) != 0 ? ECONNABORTED
                                                                                                : 0;
}

bool Incoming::take_slot(std::uint32_t index) {
    if (index >= common_.settings.slots || !unread_.arrived_empty()) {
        return false;
    }
    const auto *const entry = reinterpret_cast<const std::uint64_t *>(common_.memory.slot(index));
    Slot slot;
    slot.offset = peer_wrote<std::uint64_t>(&entry[0]);
    slot.memory.address = peer_wrote<std::uint64_t>(&entry[1]);
    const auto rest = peer_wrote<std::uint64_t>(&entry[2]);
    const auto [key, length] = std::bit_cast<std::array<std::uint32_t, 2>>(rest);
    slot.memory.key = key;
    slot.memory.length = length;
    return peer_maps_.set(index, slot);
}

void Incoming::copy(std::span<const iovec> parts, std::size_t bytes) const {
    base::for_pieces(parts, 0, bytes, [this](std::span<std::byte> to, std::size_t before) {
        while (!to.empty()) {
            const Part from = unread_.front(before);
            const std::size_t size = std::min(from.size, to.size());
            std::memcpy(to.data(), common_.memory.receive_buffer() + from.offset, size);
            to = to.subspan(size);
            before += size;
        }
    });
}

}  // namespace stream
