// SPDX-License-Identifier: BSD-3-Clause
// stream/incoming: the receiving direction: bytes in the receive buffer, words of the peer, and its
// mappings. It exists from the time when the peer's Hello is known. The lock of the stream's shard guards
// all of it.
#pragma once

#include <arpa/inet.h>

#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <utility>

#include "base/cursor.hpp"
#include "stream/iomaps.hpp"
#include "stream/outgoing.hpp"
#include "stream/receive_ring.hpp"

namespace stream {

// Receives for which the peer gets no credit: its words about windows and ends take none.
inline constexpr std::uint16_t kept_receives = 8;

// Returns the receive of a word that comes as a message, on iWARP. Elsewhere words have no place in memory,
// and their receives are all alike.
[[nodiscard]] inline rpma_recv_op receive_of(const StreamMemory &memory, std::size_t index) {
    return {.op_context = reinterpret_cast<const void *>(index),
            .local = memory.private_memory(),
            .offset = index * word_bytes,
            .len = word_bytes,
            .reserved = 0};
}

class Incoming {
public:
    Incoming(const Common &common, const Hello &theirs)
        : common_{common},
          peer_order_{theirs.big_endian ? std::endian::big : std::endian::little},
          unread_{common.settings.receive_bytes / 2,
                  static_cast<std::uint16_t>(common.settings.receives - kept_receives)},
          peer_maps_{common.settings.slots} {}
    Incoming(const Incoming &) = delete;
    Incoming &operator=(const Incoming &) = delete;

    // Takes the word of a receive that has completed. Returns nothing when the message is no word of 4 bytes.
    [[nodiscard]] std::optional<std::uint32_t> take_word(const ibv_wc &completion) {
        const std::size_t index = completion.wr_id;
        std::uint32_t bits = ntohl(completion.imm_data);
        if ((completion.wc_flags & IBV_WC_WITH_IMM) == 0) {
            if (completion.byte_len != word_bytes || index >= common_.settings.receives) [[unlikely]] {
                return std::nullopt;
            }
            std::memcpy(&bits, common_.memory.word(index), word_bytes);
            bits = base::to_order(bits, peer_order_);
        }
        if (common_.device.is_iwarp()) {
            taken_[taken_count_] = receive_of(common_.memory, index);
        }
        ++taken_count_;
        return bits;
    }
    // Returns whether a word of the peer has come.
    [[nodiscard]] bool has_heard() const { return has_heard_ || taken_count_ != 0; }
    // Returns whether there is no room for another receive that is to be posted again.
    [[nodiscard]] bool must_post_receives() const { return taken_count_ == taken_.size(); }
    // Posts the receives of words that have come again. The peer uses the receive of a message with bytes
    // again when it has got the credit back, so the caller posts the receives before each update. The
    // receives of other words have no credit. They are posted before the word is taken, because the peer may
    // learn of that at once. Returns 0 or an errno value.
    [[nodiscard]] int post_receives();
    // Notes that the peer has written a message. Returns false when the peer had no credit, or no such room.
    [[nodiscard]] bool arrived(std::uint32_t bytes) { return unread_.arrived(bytes); }
    // Takes a slot of our list that the peer has written, and may write again at any time. Returns false when
    // there is no such slot, or no credit for it.
    [[nodiscard]] bool take_slot(std::uint32_t index);
    // Works like PeerMaps::find().
    [[nodiscard]] std::optional<KeyedMemory> find(std::uint64_t offset) const {
        return peer_maps_.find(offset);
    }

    [[nodiscard]] std::size_t readable() const { return unread_.readable(); }
    [[nodiscard]] bool is_full() const { return unread_.is_full(); }
    // Copies bytes, at most readable().
    void copy(std::span<const iovec> parts, std::size_t bytes) const;
    // Copies bytes as most come, those that the program wants together. Returns how many, and 0 when they are
    // not together.
    [[nodiscard, gnu::always_inline]] std::size_t copy_at_once(void *bytes, std::size_t size) const {
        const Part unread = unread_.front();
        const std::size_t received = std::min(size, unread.size);
        if (received < std::min(size, unread_.readable())) [[unlikely]] {
            return 0;  // the rest is where the buffer begins
        }
        std::memcpy(bytes, common_.memory.receive_buffer() + unread.offset, received);
        return received;
    }
    // Notes that the program has taken bytes.
    void consume(std::size_t bytes) {
        unread_.consume(bytes);
        common_.report->received_bytes += bytes;
    }
    [[nodiscard]] bool owes_update() const { return unread_.owes_update(); }
    [[nodiscard]] ReceiveRing::Update update() { return unread_.update(); }

private:
    static constexpr std::size_t receives_at_once = 32;

    const Common common_;
    const std::endian peer_order_;
    ReceiveRing unread_;
    PeerMaps peer_maps_;
    // Receives of words that have come, to be posted again together.
    std::array<rpma_recv_op, receives_at_once> taken_{};
    std::size_t taken_count_ = 0;
    bool has_heard_ = false;  // a word whose receive is posted again
};

}  // namespace stream
