// SPDX-License-Identifier: BSD-3-Clause
// stream/connection: the program's bytes, out of the buffer that the peer writes, and into the peer's.
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/parts.hpp"
#include "stream/connection.hpp"

namespace stream {

namespace {

// Calls use(piece of parts, how much came before it) for the bytes from skip on.
template <typename Use>
void for_pieces(std::span<const iovec> parts, std::size_t skip, std::size_t bytes, Use use) {
    std::size_t done = 0;
    for (const iovec &part : parts) {
        if (done == bytes) {
            return;
        }
        if (skip >= part.iov_len) {
            skip -= part.iov_len;
            continue;
        }
        const std::size_t size = std::min(part.iov_len - skip, bytes - done);
        use(std::span{static_cast<std::byte *>(part.iov_base) + skip, size}, done);
        done += size;
        skip = 0;
    }
}

// Returns where the bytes from `skip` on are, if they are in one part, else nullptr.
const void *piece_of(std::span<const iovec> parts, std::size_t skip, std::size_t bytes) {
    for (const iovec &part : parts) {
        if (skip < part.iov_len) {
            return bytes <= part.iov_len - skip ? static_cast<const std::byte *>(part.iov_base) + skip
                                                : nullptr;
        }
        skip -= part.iov_len;
    }
    return nullptr;
}

}  // namespace

bool Connection::can_receive(std::size_t bytes) const {
    const bool has_bytes = readable() != 0 && (readable() >= bytes || unread_->is_full());
    return has_bytes || peer_ended_ || !may_read_ || phase_ == Phase::Over;
}

base::Result<std::size_t> Connection::receive(std::span<const iovec> parts, Reading reading) {
    const std::size_t bytes = std::min(base::size_of(parts), readable());
    if (bytes == 0) {
        if (readable() != 0 || peer_ended_ || !may_read_) {
            return 0;
        }
        if (error_ != 0) {
            return base::failure(error_);
        }
        return phase_ != Phase::Over ? base::Result<std::size_t>{base::failure(EAGAIN)} : 0;
    }
    if (reading == Reading::Take || reading == Reading::Peek) {
        for_pieces(parts, 0, bytes, [&](std::span<std::byte> to, std::size_t before) {
            mutex().assert_held();
            while (!to.empty()) {
                const Part from = unread_->front(before);
                const std::size_t size = std::min(from.size, to.size());
                std::memcpy(to.data(), buffer() + from.offset, size);
                to = to.subspan(size);
                before += size;
            }
        });
    }
    if (reading == Reading::Take || reading == Reading::Discard) {
        consumed(bytes);
    }
    return bytes;
}

// Returns how many bytes the next message may have: 0 when it has to wait.
std::size_t Connection::next_message(std::size_t most) const {
    return std::min({most, most_at_once, room_for_message()});
}

void Connection::note_stall() {
    if (std::exchange(stalled_at_, live_->sent_messages) != live_->sent_messages) {
        ++(allowance_->room() == 0 ? live_->stalls_for_peer : live_->stalls_for_device);
    }
}

bool Connection::can_send() const {
    if (!may_write_ || peer_left_ || phase_ == Phase::Over) {
        return true;
    }
    if (keeps_sends()) {
        return unsent_.size() < settings_.send_bytes;
    }
    return phase_ == Phase::Established && next_message(1) != 0 &&
           posted_->free() >= std::min<std::size_t>(send_low_water, settings_.send_bytes);
}

int Connection::why_not_send() const {
    if (error_ != 0 && may_write_ && !peer_left_) {
        return error_;
    }
    return !may_write_ || peer_left_ || phase_ == Phase::Over ? EPIPE : EAGAIN;
}

base::Result<std::size_t> Connection::send(std::span<const iovec> parts) {
    if (!may_send() || !unsent_.empty()) {
        return keeps_sends() ? keep(parts) : base::failure(why_not_send());
    }
    return post_bytes(parts);
}

base::Result<std::size_t> Connection::keep(std::span<const iovec> parts) {
    const std::size_t bytes = base::append(parts, settings_.send_bytes, unsent_);
    return bytes != 0 || base::size_of(parts) == 0 ? base::Result<std::size_t>{bytes} : base::failure(EAGAIN);
}

// Posts what keep() has kept, as much as there is room for. The program may have ended this direction since:
// the word of that end goes behind the bytes.
void Connection::send_unsent() {
    const iovec all{.iov_base = unsent_.data(), .iov_len = unsent_.size()};
    if (const auto sent = peer_left_ ? base::failure(EPIPE) : post_bytes({&all, 1})) {
        unsent_.erase(unsent_.begin(), unsent_.begin() + static_cast<std::ptrdiff_t>(*sent));
    } else if (sent.error().number != EAGAIN) {
        unsent_.clear();
    }
}

base::Result<std::size_t> Connection::post_bytes(std::span<const iovec> parts) {
    const std::size_t bytes = base::size_of(parts);
    std::size_t sent = 0;
    while (sent < bytes && error_ == 0) {
        const auto size = static_cast<std::uint32_t>(next_message(bytes - sent));
        if (size == 0) {
            note_stall();
            break;
        }
        if (!put(parts, sent, allowance_->take(size), true)) {
            break;
        }
        sent += size;
        count_message(size);
    }
    return sent != 0 || bytes == 0 ? base::Result<std::size_t>{sent}
                                   : base::failure(error_ != 0 ? error_ : EAGAIN);
}

void Connection::prepare_message() {
    rpma_op &write = message_[0];
    write.type = device_.is_iwarp() ? RPMA_OP_WRITE : RPMA_OP_WRITE_WITH_IMM;
    write.flags = RPMA_F_COMPLETION_ON_ERROR;
    rpma_op &word = message_[1];
    word.type = RPMA_OP_SEND;
    word.flags = RPMA_F_COMPLETION_ALWAYS;
    word.bytes = &message_word_;
    word.len = word_bytes;
    message_ops_ = places_of(1);
}

// Posts bytes from skip on, as many as the peer's memory takes. tells: as a message, which the peer is told
// of.
bool Connection::put(std::span<const iovec> parts, std::size_t skip, Target to, bool tells) {
    const void *const piece =
        to.length <= settings_.inline_bytes ? piece_of(parts, skip, to.length) : nullptr;
    if (piece == nullptr) {
        return put_copied(parts, skip, to, tells);
    }
    if (tells) {
        return post_message(piece, to);
    }
    std::array<rpma_op, 2> ops{};
    ops[0].bytes = piece;
    ops[0].len = to.length;
    ops[0].remote_addr = to.address;
    ops[0].remote_key = to.key;
    return post(ops, to.length, std::nullopt);
}

// Does the same for bytes that are in several parts, or too many for the device to take. The soft device
// takes the parts of a message when they are together in the shard's scratch; over a device of the kernel the
// bytes are copied into the send buffer.
[[gnu::noinline]] bool Connection::put_copied(std::span<const iovec> parts, std::size_t skip, Target to,
                                              bool tells) {
    const std::size_t bytes = to.length;
    if (sends_in_place()) {
        const auto together = shard_->scratch();
        for_pieces(parts, skip, bytes, [&](std::span<std::byte> piece, std::size_t before) {
            std::memcpy(together.data() + before, piece.data(), piece.size());
        });
        const iovec whole{.iov_base = together.data(), .iov_len = bytes};
        return put({&whole, 1}, 0, to, tells);
    }
    std::array<rpma_op, 3> ops{};
    std::size_t writes = 0;
    const Part first = posted_->front(bytes);
    std::byte *const ring = private_base_ + send_buffer_at();
    for_pieces(parts, skip, bytes, [&](std::span<std::byte> piece, std::size_t before) {
        const std::size_t head = before < first.size ? std::min(piece.size(), first.size - before) : 0;
        std::memcpy(ring + first.offset + before, piece.data(), head);
        if (head < piece.size()) {
            std::memcpy(ring + (before + head - first.size), piece.data() + head, piece.size() - head);
        }
    });
    for (const Part part : {first, Part{.offset = 0, .size = bytes - first.size}}) {
        if (part.size != 0) {
            rpma_op &op = ops[writes++];
            op.local = private_.get();
            op.local_offset = send_buffer_at() + part.offset;
            op.len = part.size;
            op.remote_addr = to.address;
            op.remote_key = to.key;
            to.address += part.size;
        }
    }
    return post(std::span{ops}.first(writes + 1), bytes,
                tells ? std::optional{encode(Op::Data, static_cast<std::uint32_t>(bytes))} : std::nullopt);
}

void Connection::abort() {
    may_read_ = false;
    may_write_ = false;
    break_off(ECONNABORTED);
}

void Connection::shut(bool receiving, bool sending) {
    const bool could_read = may_read_ && !peer_ended_;
    const bool could_write = may_write_;
    may_read_ = may_read_ && !receiving;
    may_write_ = may_write_ && !sending;
    if (!could_write && !(could_read && receiving)) {
        return;  // it was said
    }
    if (!may_write_ && !peer_left_) {
        owed_ = could_read && may_read_ ? Control::Shutdown : Control::Disconnect;
    }
    if (phase_ == Phase::Established) {
        send_what_is_owed();
    }
}

void Connection::leave() {
    shut(true, true);
    if (!device_.is_of_kernel() && phase_ == Phase::Established && !owed_) {
        drains_ = rpma_conn_drain(conn_.get()) == 0;
    }
}

}  // namespace stream
