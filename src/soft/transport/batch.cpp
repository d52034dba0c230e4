// SPDX-License-Identifier: BSD-3-Clause
// soft/transport/batch: see the header.
#include "soft/transport/batch.hpp"

#include <bit>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <new>

#include "base/parts.hpp"
#include "persist/guard.hpp"

namespace soft {

void Batch::use_crc() {
    copy_ = std::make_unique<std::byte[]>(wire::max_segment_bytes);
}

void Batch::put_piece(const void *data, std::size_t size, bool lent) {
    if (size == 0) {
        return;
    }
    queued_ += size;
    // A trailer and the header behind it are adjacent, and become one piece. A lent piece stays separate.
    if (pieces_ != next_ && !lent && (lent_pieces_ >> (pieces_ - 1) & 1) == 0) {
        iovec &last = iov_[pieces_ - 1];
        if (static_cast<const std::byte *>(last.iov_base) + last.iov_len == data) {
            last.iov_len += size;
            return;
        }
    }
    assert(pieces_ < max_pieces);
    lent_pieces_ |= std::uint64_t{lent} << pieces_;
    iov_[pieces_++] = iovec{.iov_base = const_cast<void *>(data), .iov_len = size};
}

void Batch::put_own(std::span<const std::byte> bytes) {
    assert(used_ + bytes.size() <= own_bytes);
    if (bytes.empty()) {
        return;
    }
    std::memcpy(own_.data() + used_, bytes.data(), bytes.size());
    put_next_own(bytes.size());
}

// Adds the `size` bytes that were stored behind those in use.
void Batch::put_next_own(std::size_t size) {
    const std::span<const std::byte> bytes{own_.data() + used_, size};
    put_piece(bytes.data(), size);
    if (copy_) {
        crc_.feed(bytes);
    }
    used_ += size;
}

void Batch::put_header(const wire::Segment &segment) {
    crc_ = {};
    put_next_own(wire::encode_header(segment, std::span{own_}.subspan(used_).first<wire::untagged_bytes>()));
}

void Batch::put_trailer(const wire::Segment &segment) {
    static constexpr std::array<std::byte, wire::fpdu_max_trailer_bytes> zeros{};
    const std::size_t pad = wire::fpdu_pad_bytes(wire::segment_bytes(segment));
    if (copy_) {
        put_own(std::span{zeros}.first(pad));
        put_own(crc_.digest());
    } else {
        put_own(std::span{zeros}.first(pad + wire::fpdu_crc_bytes));
    }
}

base::Result<void> Batch::add(const wire::Segment &segment, std::span<const iovec> payload) {
    put_header(segment);
    if (copy_) {
        if (!persist::guarded_gather(copy_.get(), payload)) {
            return base::failure(EFAULT);
        }
        crc_.feed({copy_.get(), segment.payload_bytes});
        put_piece(copy_.get(), segment.payload_bytes);
    } else {
        for (const iovec &piece : payload) {
            put_piece(piece.iov_base, piece.iov_len);
        }
    }
    put_trailer(segment);
    return {};
}

[[gnu::hot]] void Batch::add_copied(const wire::Segment &segment, std::span<const std::byte> payload) {
    const iovec piece{.iov_base = const_cast<std::byte *>(payload.data()), .iov_len = payload.size()};
    add_gathered(segment, {&piece, 1});
}

[[gnu::hot]] void Batch::add_gathered(const wire::Segment &segment, std::span<const iovec> payload) {
    put_header(segment);
    for (const iovec &piece : payload) {
        put_own({static_cast<const std::byte *>(piece.iov_base), piece.iov_len});
    }
    put_trailer(segment);
}

bool Batch::make_room_to_keep() {
    if (kept_ == nullptr) {
        kept_.reset(new (std::nothrow) std::byte[max_lent_bytes]);
    }
    return kept_ != nullptr;
}

void Batch::add_lent(const wire::Segment &segment, std::span<const iovec> payload) {
    assert(kept_ != nullptr && has_room_to_lend(segment.payload_bytes));
    lent_ += segment.payload_bytes;
    put_header(segment);
    for (const iovec &piece : payload) {
        put_piece(piece.iov_base, piece.iov_len, true);
    }
    put_trailer(segment);
}

void Batch::keep() {
    std::byte *to = kept_.get();
    for (std::uint64_t left = empty() ? 0 : lent_pieces_ >> next_ << next_; left != 0; left &= left - 1) {
        iovec &piece = iov_[static_cast<std::size_t>(std::countr_zero(left))];
        std::memcpy(to, piece.iov_base, piece.iov_len);
        piece.iov_base = to;
        to += piece.iov_len;
    }
    lent_pieces_ = 0;
}

[[gnu::hot]] base::Result<void> Batch::send(Link &link) {
    while (!empty()) {
        const Link::Sent sent = link.send({&iov_[next_], pieces_ - next_});
        if (sent.error != 0) {
            return base::failure(sent.error);
        }
        if (sent.bytes == 0) {
            return {};
        }
        std::size_t left = sent.bytes;
        for (; next_ < pieces_ && left >= iov_[next_].iov_len; ++next_) {
            left -= iov_[next_].iov_len;
        }
        if (next_ < pieces_) {
            iov_[next_].iov_base = static_cast<std::byte *>(iov_[next_].iov_base) + left;
            iov_[next_].iov_len -= left;
        }
    }
    return {};
}

base::Result<void> Batch::copy_rest(std::vector<std::byte> &to) const {
    const auto rest = std::span{iov_}.subspan(next_, pieces_ - next_);
    const std::size_t done = to.size();
    try {
        to.resize(done + base::size_of(rest));
    } catch (const std::bad_alloc &) {
        return base::failure(ENOMEM);
    }
    return persist::guarded_gather(to.data() + done, rest) ? base::Result<void>{} : base::failure(EFAULT);
}

void Batch::clear() {
    used_ = pieces_ = next_ = queued_ = lent_ = 0;
    lent_pieces_ = 0;
}

}  // namespace soft
