// SPDX-License-Identifier: BSD-3-Clause
#include "stream/outgoing.hpp"

#include <cstring>
#include <utility>

#include "base/parts.hpp"

namespace stream {

Outgoing::Outgoing(const Common &common, const Hello &theirs)
    : common_{common},
      allowance_{theirs.credits, theirs.data},
      granted_{theirs.data.length},
      posted_{common.settings.send_bytes, common.settings.sends + kept_places, kept_places},
      own_maps_{theirs.slots},
      peer_list_{theirs.list},
      peer_order_{theirs.big_endian ? std::endian::big : std::endian::little},
      peer_counts_slots_{theirs.counts_slots} {
    prepare_message();
    common_.report->granted_bytes = theirs.data.length;
    common_.report->granted_messages = theirs.credits;
}

void Outgoing::prepare_message() {
    rpma_op &write = message_[0];
    write.type = common_.device.is_iwarp() ? RPMA_OP_WRITE : RPMA_OP_WRITE_WITH_IMM;
    write.flags = RPMA_F_COMPLETION_ON_ERROR;
    rpma_op &word = message_[1];
    word.type = RPMA_OP_SEND;
    word.flags = RPMA_F_COMPLETION_ALWAYS;
    word.bytes = &message_word_;
    word.len = word_bytes;
    message_ops_ = places_of(1);
}

void Outgoing::note_stall() {
    Report &report = common_.report;
    if (std::exchange(stalled_at_, report->sent_messages) != report->sent_messages) {
        ++(allowance_.room() == 0 ? report->stalls_for_peer : report->stalls_for_device);
    }
}

Outgoing::Sent Outgoing::send(std::span<const iovec> parts) {
    const std::size_t bytes = base::size_of(parts);
    std::size_t sent = 0;
    while (sent < bytes) {
        const auto size = static_cast<std::uint32_t>(std::min({bytes - sent, longest_message, room()}));
        if (size == 0) {
            note_stall();
            break;
        }
        if (const int error = put(parts, sent, allowance_.take(size), true); error != 0) {
            return {.bytes = sent, .error = error};
        }
        sent += size;
        count_message(size);
    }
    return {.bytes = sent, .error = 0};
}

// Posts bytes from skip on, as many as the peer's memory takes. tells: as a message, which the peer is told
// of.
int Outgoing::put(std::span<const iovec> parts, std::size_t skip, KeyedMemory to, bool tells) {
    const void *const piece =
        to.length <= common_.settings.inline_bytes ? base::piece_of(parts, skip, to.length) : nullptr;
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
// takes the parts of a message when they are together in the scratch; over a device of the kernel the bytes
// are copied into the send buffer.
[[gnu::noinline]] int Outgoing::put_copied(std::span<const iovec> parts, std::size_t skip, KeyedMemory to,
                                           bool tells) {
    const std::size_t bytes = to.length;
    if (sends_in_place(common_.device)) {
        base::for_pieces(parts, skip, bytes, [&](std::span<std::byte> piece, std::size_t before) {
            std::memcpy(common_.scratch.data() + before, piece.data(), piece.size());
        });
        const iovec whole{.iov_base = common_.scratch.data(), .iov_len = bytes};
        return put({&whole, 1}, 0, to, tells);
    }
    std::array<rpma_op, 3> ops{};
    std::size_t writes = 0;
    const Part first = posted_.front(bytes);
    std::byte *const ring = common_.memory.send_buffer();
    base::for_pieces(parts, skip, bytes, [&](std::span<std::byte> piece, std::size_t before) {
        const std::size_t head = before < first.size ? std::min(piece.size(), first.size - before) : 0;
        std::memcpy(ring + first.offset + before, piece.data(), head);
        if (head < piece.size()) {
            std::memcpy(ring + (before + head - first.size), piece.data() + head, piece.size() - head);
        }
    });
    for (const Part part : {first, Part{.offset = 0, .size = bytes - first.size}}) {
        if (part.size != 0) {
            rpma_op &op = ops[writes++];
            op.local = common_.memory.private_memory();
            op.local_offset = common_.memory.send_buffer_at() + part.offset;
            op.len = part.size;
            op.remote_addr = to.address;
            op.remote_key = to.key;
            to.address += part.size;
        }
    }
    return post(std::span{ops}.first(writes + 1), bytes,
                tells ? std::optional{encode(Op::Data, static_cast<std::uint32_t>(bytes))} : std::nullopt);
}

int Outgoing::send_control(Control control) {
    std::array<rpma_op, 1> ops{};
    return post(ops, 0, encode(Op::Control, static_cast<std::uint32_t>(control)));
}

int Outgoing::send_update(const ReceiveRing::Update &update) {
    std::array<rpma_op, 2> ops{};
    if (!update.window) {
        return post(std::span{ops}.first(1), 0, encode(Op::Window, update.limit));
    }
    const auto bytes = encode_window(
        {.address = reinterpret_cast<std::uintptr_t>(common_.memory.receive_buffer()) + update.window->offset,
         .key = common_.memory.shared_key(),
         .length = static_cast<std::uint32_t>(update.window->size)},
        peer_order_);
    ops[0].bytes = bytes.data();
    ops[0].len = bytes.size();
    ops[0].remote_addr = peer_list_.address + std::uint64_t{peer_window_} * window_bytes;
    ops[0].remote_key = peer_list_.key;
    peer_window_ = peer_window_ + 1 < peer_list_.length ? peer_window_ + 1 : 0;
    return post(ops, 0, encode(Op::Window, update.limit));
}

bool Outgoing::take_update(std::uint16_t limit) {
    if (!allowance_.extend(limit)) {
        return false;
    }
    KeyedMemory window;
    auto found = WindowList::Taken::None;
    while ((found = granted_.take(common_.memory.windows_list(), window)) == WindowList::Taken::Window) {
        if (!allowance_.open(window)) {
            return false;
        }
        common_.report->granted_bytes += window.length;
    }
    common_.report->granted_messages = common_.report->sent_messages + allowance_.credits();
    return found == WindowList::Taken::None;
}

// Posts the writes, which are all elements but the last, and behind them the word, if there is one, in the
// last. They take `bytes` bytes of the send buffer.
//
// On iWARP each write from the send buffer has a completion of its own. The kernel's soft-iWARP (siw) gives
// TCP the pages themselves of a write that has none, and completes the word behind it before TCP has sent
// them: the bytes of a later message, in the same place, would reach the peer twice.
int Outgoing::post(std::span<rpma_op> writes_and_room, std::size_t bytes, std::optional<std::uint32_t> word) {
    const auto writes = writes_and_room.first(writes_and_room.size() - 1);
    for (rpma_op &write : writes) {
        write.type = RPMA_OP_WRITE;
        write.flags = write.local != nullptr && common_.device.is_iwarp() ? RPMA_F_COMPLETION_ALWAYS
                                                                          : RPMA_F_COMPLETION_ON_ERROR;
    }
    rpma_op *last = &writes_and_room.back();
    std::size_t count = writes_and_room.size();
    if (!word) {
        last = &writes.back();
        --count;
    } else if (common_.device.is_iwarp()) {
        last->type = RPMA_OP_SEND;
        last->bytes = &*word;
        last->len = word_bytes;
    } else {
        if (!writes.empty()) {
            last = &writes.back();
            --count;
        }
        last->type = RPMA_OP_WRITE_WITH_IMM;
        last->imm = *word;
    }
    last->flags = RPMA_F_COMPLETION_ALWAYS;
    const bool is_last = word == encode(Op::Control, static_cast<std::uint32_t>(Control::Disconnect));
    last->op_context = reinterpret_cast<const void *>(is_last ? farewell : 0);
    const auto ops = writes_and_room.first(count);
    note_posted(ops, bytes);
    return hand_over(ops);
}

// Notes the operations that are about to be posted, up to each that completes, and the bytes that those take
// of the send buffer.
void Outgoing::note_posted(std::span<const rpma_op> ops, std::size_t bytes) {
    std::uint32_t places = 0;
    for (const rpma_op &op : ops.first(ops.size() - 1)) {
        ++places;
        if (op.flags == RPMA_F_COMPLETION_ALWAYS) {
            posted_.posted(op.len, std::exchange(places, 0));
            bytes -= op.len;
        }
    }
    posted_.posted(bytes, places + 1);
}

}  // namespace stream
