// SPDX-License-Identifier: BSD-3-Clause
#include "soft/transport/batch.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <new>

#include "base/parts.hpp"
#include "persist/guard.hpp"

namespace soft {

void Batch::use_crc() {
    copy_ = std::make_unique<std::byte[]>(wire::max_segment_bytes);
}

void Batch::put_payload(const iovec &piece, bool lent) {
    if (piece.iov_len == 0) {
        return;
    }
    assert(pieces_ < max_pieces);
    lent_pieces_ |= std::uint64_t{lent} << pieces_;
    iov_[pieces_++] = piece;
    queued_ += piece.iov_len;
}

void Batch::put_header(const wire::Segment &segment) {
    const std::size_t size = wire::encode_header(segment, own_.subspan(used_).first<wire::untagged_bytes>());
    if (copy_) {
        crc_ = {};
        crc_.feed({next_own(), size});
    }
    put_own(next_own(), size);
}

// Stores the checksum of the segment whose pad begins at `trailer`.
void Batch::end_sum(std::byte *trailer, std::size_t pad) {
    crc_.feed({trailer, pad});
    const auto digest = crc_.digest();
    std::memcpy(trailer + pad, digest.data(), digest.size());
}

void Batch::put_trailer(const wire::Segment &segment) {
    assert(used_ + wire::fpdu_max_trailer_bytes <= own_.size());
    std::byte *const trailer = next_own();
    put_own(trailer, store_trailer(segment, trailer));
}

[[gnu::hot, gnu::flatten]] base::Result<void> Batch::add(const wire::Segment &segment,
                                                         std::span<const iovec> payload) {
    put_header(segment);
    if (copy_) {
        if (!persist::guarded_gather(copy_.get(), payload)) {
            return base::failure(EFAULT);
        }
        crc_.feed({copy_.get(), segment.payload_bytes});
        put_payload(base::part_of(copy_.get(), segment.payload_bytes));
        copy_used_ = true;
    } else {
        for (const iovec &piece : payload) {
            put_payload(piece);
        }
    }
    put_trailer(segment);
    return {};
}

[[gnu::hot]] void Batch::add_copied(const wire::Segment &segment, std::span<const std::byte> payload) {
    (void)add_copied_by(segment, [&](std::byte *to) {
        std::ranges::copy(payload, to);
        return true;
    });
}

bool Batch::make_room_for_many() {
    assert(empty() && used_ == 0);
    if (many_ == nullptr) {
        many_.reset(new (std::nothrow) std::byte[many_bytes]);
        own_ = many_ != nullptr ? std::span{many_.get(), many_bytes} : std::span{few_};
    }
    return many_ != nullptr;
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
        put_payload(piece, true);
    }
    put_trailer(segment);
}

void Batch::copy_lent() {
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
        if (sent.bytes == queued_) {
            next_ = pieces_;  // the link has taken the whole batch at once, as it does nearly always
            return {};
        }
        sent_ += sent.bytes;
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
    used_ = pieces_ = next_ = queued_ = sent_ = lent_ = 0;
    lent_pieces_ = 0;
    copy_used_ = false;
}

}  // namespace soft
