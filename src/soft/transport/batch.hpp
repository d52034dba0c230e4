// SPDX-License-Identifier: BSD-3-Clause
// soft/transport/batch: FPDUs that go into a link with one call. Headers, trailers and small payload are in
// the batch, and larger payload stays where it is. With CRC32C all payload is copied, so that the bytes that
// are sent match the checksum. Lent payload stays where it is until keep(), which copies the bytes that the
// link has not taken.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "soft/link/link.hpp"
#include "soft/wire/ddp.hpp"
#include "soft/wire/rdmap.hpp"

namespace soft {

class Batch {
public:
    Batch() = default;
    Batch(const Batch &) = delete;
    Batch &operator=(const Batch &) = delete;

    // Turns CRC32C on. It is called before the first segment.
    void use_crc();

    // Returns true when another segment of any size, and immediate data behind it, can be added.
    [[nodiscard]] bool has_room() const {
        return pieces_ + max_segment_pieces <= max_pieces && used_ + max_segment_own_bytes <= own_.size() &&
               queued_ < enough_bytes && !copy_used_;
    }
    [[nodiscard]] bool empty() const { return next_ == pieces_; }
    [[nodiscard]] std::size_t bytes() const { return queued_; }
    // Returns how many of these the link has taken, while the batch is not empty.
    [[nodiscard]] std::size_t sent_bytes() const { return sent_; }

    // Gives the batch, which is empty, room for `many_bytes` of headers and small payload. Returns false when
    // there is no memory for that.
    [[nodiscard]] bool make_room_for_many();

    // Adds a segment whose payload is in memory of the application or of a region, and stays there until the
    // batch is sent. Fails with EFAULT when the memory vanished (only with CRC32C).
    [[nodiscard]] base::Result<void> add(const wire::Segment &segment, std::span<const iovec> payload);
    // Adds a segment with a small payload, which copy(place) copies to its place; adds nothing when that
    // returns false. It is inlined, because it is on the way of each small request. The segment is a copy,
    // because the compiler then knows that the bytes which are stored do not change it.
    template <typename Copy>
    [[nodiscard, gnu::always_inline]] bool add_copied_by(wire::Segment segment, Copy copy) {
        std::byte *const to = next_own();
        const std::size_t header = wire::header_bytes(segment.opcode);
        if (!copy(to + header)) {
            return false;
        }
        const std::size_t bytes = header + segment.payload_bytes;
        assert(used_ + bytes + wire::fpdu_max_trailer_bytes <= own_.size());
        wire::encode_header(segment, {to, bytes});
        if (copy_) [[unlikely]] {
            crc_ = {};
            crc_.feed({to, bytes});
        }
        put_own(to, bytes + store_trailer(segment, to + bytes));
        return true;
    }
    // Adds a segment with a copy of a small payload.
    void add_copied(const wire::Segment &segment, std::span<const std::byte> payload);
    // add_lent() adds a segment whose payload stays in place until keep(), which copies the bytes that are
    // not sent by then. Before that, make_room_to_keep() must return true, which it does unless there is no
    // memory; an empty batch then has room for max_lent_bytes.
    [[nodiscard]] bool make_room_to_keep();
    [[nodiscard]] bool has_room_to_lend(std::size_t bytes) const { return lent_ + bytes <= max_lent_bytes; }
    void add_lent(const wire::Segment &segment, std::span<const iovec> payload);
    void keep() {
        if (lent_pieces_ != 0) [[unlikely]] {
            copy_lent();
        }
    }

    // Sends the bytes that the link takes. When the batch is not empty then, the link is full. A failure ends
    // the connection.
    [[nodiscard]] base::Result<void> send(Link &link);
    // Appends the bytes that are not sent yet. Fails with EFAULT when their memory has vanished, and with
    // ENOMEM.
    [[nodiscard]] base::Result<void> copy_rest(std::vector<std::byte> &to) const;
    // payload_piece() returns the piece of the last segment's payload, when there was any; the next function
    // tells whether the link has taken a piece completely.
    [[nodiscard]] std::size_t payload_piece() const { return pieces_ - 2; }
    [[nodiscard]] bool has_sent(std::size_t piece) const { return piece < next_; }
    // Empties the batch, which was sent completely.
    void clear();

    // The largest payload that these copy.
    static constexpr std::size_t max_copied_bytes = 512;
    static constexpr std::size_t max_lent_bytes = std::size_t{64} << 10;
    static constexpr std::size_t max_payload_pieces = 6;
    // A segment with payload takes two pieces at least: its own bytes and its payload.
    static constexpr std::size_t max_segments = 32;
    static constexpr std::size_t many_bytes = std::size_t{16} << 10;

private:
    // The trailer of a segment and the immediate data behind it are one piece.
    static constexpr std::size_t max_segment_pieces = max_payload_pieces + 2;
    static constexpr std::size_t max_segment_own_bytes = 2 * wire::untagged_bytes + max_copied_bytes +
                                                         wire::immediate_bytes +
                                                         2 * wire::fpdu_max_trailer_bytes;
    static constexpr std::size_t max_pieces = 2 * max_segments;
    static_assert(max_pieces <= 64, "each has a bit in lent_pieces_");
    static constexpr std::size_t few_bytes = 2048;
    static constexpr std::size_t enough_bytes = 1 << 20;

    [[nodiscard]] std::byte *next_own() { return own_.data() + used_; }
    // Adds the `size` bytes that were stored at next_own(). A trailer and the header behind it are adjacent,
    // and become one piece. No payload is adjacent to them.
    [[gnu::always_inline]] void put_own(std::byte *bytes, std::size_t size) {
        iovec *const end = iov_.data() + pieces_;
        if (pieces_ != next_ && static_cast<std::byte *>(end[-1].iov_base) + end[-1].iov_len == bytes) {
            end[-1].iov_len += size;
        } else {
            assert(pieces_ < max_pieces);
            iov_[pieces_++] = {.iov_base = bytes, .iov_len = size};
        }
        used_ += size;
        queued_ += size;
    }
    // Stores the pad and the checksum behind a segment, and returns their size. The bytes of the longest
    // trailer are cleared, because that takes two stores. has_room() keeps room for them.
    [[nodiscard, gnu::always_inline]] std::size_t store_trailer(const wire::Segment &segment,
                                                                std::byte *trailer) {
        const std::size_t pad = wire::fpdu_pad_bytes(wire::segment_bytes(segment));
        std::memset(trailer, 0, wire::fpdu_max_trailer_bytes);
        if (copy_) [[unlikely]] {
            end_sum(trailer, pad);
        }
        return pad + wire::fpdu_crc_bytes;
    }
    void end_sum(std::byte *trailer, std::size_t pad);
    void put_header(const wire::Segment &segment);
    void put_trailer(const wire::Segment &segment);
    void put_payload(const iovec &piece, bool lent = false);
    void copy_lent();

    std::array<std::byte, few_bytes> few_;
    std::unique_ptr<std::byte[]> many_;  // room for many_bytes; allocated at the first use
    std::span<std::byte> own_{few_};     // one of these two
    std::array<iovec, max_pieces> iov_;
    std::unique_ptr<std::byte[]> copy_;  // with CRC32C: room for one segment's payload
    bool copy_used_ = false;
    std::unique_ptr<std::byte[]> kept_;  // room for lent payload, max_lent_bytes; allocated at the first use
    std::uint64_t lent_pieces_ = 0;      // a bit for each piece
    std::size_t lent_ = 0;               // bytes
    wire::Crc crc_;
    std::size_t used_ = 0;    // of own_
    std::size_t pieces_ = 0;  // of iov_
    std::size_t next_ = 0;    // the first piece that is not wholly sent
    std::size_t queued_ = 0;  // bytes of all pieces
    std::size_t sent_ = 0;    // of these, while some are not sent
};

}  // namespace soft
