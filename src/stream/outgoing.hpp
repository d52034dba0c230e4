// SPDX-License-Identifier: BSD-3-Clause
// stream/outgoing: what this end posts: bytes into the peer's windows, words, and news of mappings. It is
// there once the peer's Hello is.
//
// A function that posts returns 0, or an errno value when the device took nothing: then the stream is over,
// which its Connection sees to. The lock of the stream's shard guards all of it.
#pragma once

#include <array>
#include <bit>
#include <cerrno>
#include <optional>

#include "stream/allowance.hpp"
#include "stream/device.hpp"
#include "stream/iomaps.hpp"
#include "stream/report.hpp"
#include "stream/send_ring.hpp"
#include "stream/settings.hpp"
#include "stream/shard.hpp"
#include "stream/stream_memory.hpp"
#include "stream/window_list.hpp"

namespace stream {

// The op_context of a Disconnect: nothing follows when that has left.
inline constexpr std::uint64_t farewell = 1;

// Both directions of a stream use these. Its Connection owns them, and does not move.
struct Common {
    const Device &device;
    const Settings &settings;
    const StreamMemory &memory;  // it is there before anything is posted
    const Connected &conn;       // as the memory
    Report &report;
    // A message is put together here. The bytes stay until the caller releases the lock.
    std::span<std::byte, longest_message> scratch;
};

class Outgoing {
public:
    // Places in the send queue that are kept for our words that take no credit.
    static constexpr std::uint32_t kept_places = 8;

    Outgoing(const Common &common, const Hello &theirs);
    Outgoing(const Outgoing &) = delete;
    Outgoing &operator=(const Outgoing &) = delete;

    // Returns how many bytes the next message may have.
    [[nodiscard, gnu::always_inline]] std::size_t room() const {
        // News of mappings go to the peer before any later byte.
        const std::size_t room = own_maps_.has_news() ? 0 : posted_.room(message_ops_ + 1);
        return std::min(room, std::size_t{allowance_.room()});
    }
    // Returns whether enough bytes fit that it is worth while to take some.
    [[nodiscard]] bool has_room() const {
        return room() != 0 &&
               posted_.free() >= std::min<std::size_t>(send_low_water, common_.settings.send_bytes);
    }
    [[nodiscard]] bool has_room_at_once(std::size_t bytes) const {
        return posted_.free() >= std::min(bytes, longest_message);
    }
    // Returns whether the device needs no memory of what is posted.
    [[nodiscard]] bool idle() const { return posted_.idle(); }
    // Returns whether a post takes the bytes where they are, and copies what has not left when it returns:
    // the soft device does so with as many as a message has. On other devices bytes are copied into the send
    // buffer.
    [[nodiscard]] static bool sends_in_place(const Device &device) { return !device.is_of_kernel(); }

    // Sends a message of bytes that the device takes during the post. They are at least 1 and at most
    // room().
    [[nodiscard, gnu::always_inline]] int send_piece(const void *bytes, std::uint32_t length) {
        const int error = post_message(bytes, allowance_.take(length));
        if (error == 0) [[likely]] {
            count_message(length);
        }
        return error;
    }
    struct Sent {
        std::size_t bytes;
        int error;

        // Returns the program's result of a send of `wanted` bytes. EAGAIN: there was no room.
        [[nodiscard]] base::Result<std::size_t> result(std::size_t wanted) const {
            return bytes != 0 || wanted == 0 ? base::Result<std::size_t>{bytes}
                                             : base::failure(error != 0 ? error : EAGAIN);
        }
    };
    // Sends bytes, as many as there is room for.
    [[nodiscard]] Sent send(std::span<const iovec> parts);
    // Writes bytes from skip on into memory that the peer has mapped, as many as there is room for.
    [[nodiscard]] Sent write(const iovec &from, std::size_t skip, KeyedMemory to);

    [[nodiscard]] bool has_place_for_control() const { return posted_.has_place(places_of(0)); }
    [[nodiscard]] int send_control(Control control);
    // There is always a place left for the words that end both directions, one after the other.
    [[nodiscard]] bool has_place_for_update() const {
        return posted_.has_place(places_of(1) + 2 * places_of(0));
    }
    [[nodiscard]] int send_update(const ReceiveRing::Update &update);

    // Posts nothing before begin(). On iWARP the end that was asked is silent until the other end's first
    // message. The soft device sees to that; siw sends at once, and a siw that finds more bytes behind the
    // answer to its request than the answer has refuses it.
    void wait_for_peer() { posted_.hold(); }
    [[nodiscard]] bool waits_for_peer() const { return posted_.is_held(); }
    void begin() { posted_.release(); }

    // Is called for each completion of a post. Posts complete in their order.
    void completed() { (void)posted_.completed(); }
    // Notes that the peer has taken messages, and perhaps opened windows. Returns false when it cannot have.
    [[nodiscard]] bool take_update(std::uint16_t limit);

    // Mappings, in direct.cpp.
    // Works like Connection::map().
    [[nodiscard]] base::Result<void> map(void *begin, std::size_t bytes, bool for_peer, std::uint64_t offset);
    [[nodiscard]] base::Result<void> unmap(const void *begin, std::size_t bytes) {
        return own_maps_.remove(begin, bytes);
    }
    [[nodiscard]] base::Result<void> unmap_all() { return own_maps_.clear(); }
    [[nodiscard]] bool has_mappings() const { return !own_maps_.empty(); }
    [[nodiscard]] bool has_news() const { return own_maps_.has_news(); }
    [[nodiscard]] int tell_mappings();

private:
    [[nodiscard]] std::uint32_t places_of(std::size_t writes) const {
        return static_cast<std::uint32_t>(common_.device.is_iwarp() ? writes + 1
                                                                    : std::max<std::size_t>(writes, 1));
    }
    void prepare_message();
    [[nodiscard]] int post_message(const void *bytes, const KeyedMemory &to);
    [[nodiscard]] int put(std::span<const iovec> parts, std::size_t skip, KeyedMemory to, bool tells);
    [[nodiscard]] int put_copied(std::span<const iovec> parts, std::size_t skip, KeyedMemory to, bool tells);
    [[nodiscard]] int post(std::span<rpma_op> writes_and_room, std::size_t bytes,
                           std::optional<std::uint32_t> word);
    void note_posted(std::span<const rpma_op> ops, std::size_t bytes);
    // Posts a message of these operations. They take `bytes` bytes of the send buffer.
    [[nodiscard]] int hand_over(std::span<const rpma_op> ops, std::size_t bytes) {
        posted_.posted(bytes, static_cast<std::uint32_t>(ops.size()));
        return hand_over(ops);
    }
    [[nodiscard]] int hand_over(std::span<const rpma_op> ops) {
        if (const int result = rpma_post(common_.conn.get(), ops.data(), ops.size(), nullptr); result != 0)
            [[unlikely]] {
            // There is a place in the send queue: the device had no memory for what has not left.
            return result == RPMA_E_AGAIN ? ENOMEM : ECONNRESET;
        }
        return 0;
    }
    void count_message(std::uint32_t bytes) {
        ++common_.report->sent_messages;
        common_.report->sent_bytes += bytes;
    }
    // Counts a send that finds no room, once until the next message.
    void note_stall();

    const Common common_;
    Allowance allowance_;
    WindowList granted_;
    SendRing posted_;
    OwnMaps own_maps_;
    // The peer's list, the entry of it that is written next, and how the peer reads it.
    const KeyedMemory peer_list_;
    std::uint32_t peer_window_ = 1;
    const std::endian peer_order_;
    const bool peer_counts_slots_;
    // They send a message of bytes that the device takes during the post. The first is a write, and on iWARP
    // the second is the word behind it.
    std::array<rpma_op, 2> message_{};
    std::uint32_t message_ops_ = 0;
    std::uint32_t message_word_ = 0;
    // The messages that were sent before the last stall.
    std::uint64_t stalled_at_ = UINT64_MAX;
};

// Posts a message of bytes that the device takes during the post. It changes what prepare_message() has
// prepared, because most messages are like this.
[[gnu::always_inline]] inline int Outgoing::post_message(const void *bytes, const KeyedMemory &to) {
    message_word_ = encode(Op::Data, to.length);
    rpma_op &write = message_[0];
    write.bytes = bytes;
    write.len = to.length;
    write.remote_addr = to.address;
    write.remote_key = to.key;
    write.imm = message_word_;
    if (message_ops_ == 1) {  // on iWARP the word behind the write completes
        const bool is_silent = posted_.may_be_silent(to.length);
        write.flags = is_silent ? RPMA_F_COMPLETION_ON_ERROR : RPMA_F_COMPLETION_ALWAYS;
        if (is_silent) [[likely]] {
            posted_.posted_silently(to.length);
            return hand_over({message_.data(), 1});
        }
    }
    return hand_over({message_.data(), message_ops_}, to.length);
}

}  // namespace stream
