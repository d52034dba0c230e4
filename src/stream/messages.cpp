// SPDX-License-Identifier: BSD-3-Clause
// stream/connection: message words, from the peer and to it.
#include <arpa/inet.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/cursor.hpp"
#include "base/log.hpp"
#include "stream/connection.hpp"

namespace stream {

namespace {

// The op_context of a Disconnect: nothing follows when that has left.
constexpr std::uint64_t farewell = 1;

constexpr const char *beyond_its_room = "data beyond its windows, its credits or its end";

}  // namespace

void Connection::go_on() {
    mutex().assert_held();
    if (phase_ == Phase::Established && owes()) [[unlikely]] {
        send_what_is_owed();
    }
    if (observer_ != nullptr) {
        observer_->changed();
    }
}

void Connection::take_completion(const ibv_wc &completion) {
    mutex().assert_held();
    if (phase_ != Phase::Established) [[unlikely]] {
        keep_early(completion);
        return;
    }
    if (completion.status != IBV_WC_SUCCESS) [[unlikely]] {
        take_failure(completion.status);
        return;
    }
    if ((completion.opcode & IBV_WC_RECV) == 0) {
        (void)posted_->completed();
        if (completion.wr_id == farewell) {
            peer_left_ = true;
            peer_ended_ = true;
        }
        return;
    }
    const std::size_t index = completion.wr_id;
    std::uint32_t bits = ntohl(completion.imm_data);
    if ((completion.wc_flags & IBV_WC_WITH_IMM) == 0) {
        if (completion.byte_len != word_bytes || index >= settings_.receives) [[unlikely]] {
            violated("a message that is no word of 4 bytes");
            return;
        }
        std::memcpy(&bits, words() + index * word_bytes, word_bytes);
        bits = base::to_order(bits, peer_order_);
    }
    if (device_.is_iwarp()) {
        taken_[taken_count_] = receive_of(index);
    }
    ++taken_count_;
    const Word word = decode_word(bits);
    const bool is_data = static_cast<Op>(word.op) == Op::Data;
    if (!is_data || taken_count_ == taken_.size() || peer_ended_) [[unlikely]] {
        take_closely(bits);
    } else if (!unread_->arrived(word.value)) [[unlikely]] {
        violated(beyond_its_room);
    }
}

// It may be here before it is known whom it is from.
[[gnu::noinline]] void Connection::keep_early(const ibv_wc &completion) {
    if (phase_ == Phase::Connecting) {
        early_.push_back(completion);
    }
}

// Takes a word that is not data alone: receives are posted again, or it comes behind the peer's end.
[[gnu::noinline]] void Connection::take_closely(std::uint32_t bits) {
    const Word word = decode_word(bits);
    const bool is_data = static_cast<Op>(word.op) == Op::Data;
    if (!is_data || taken_count_ == taken_.size()) {
        post_receives();
    }
    // A peer goes on for as long as it does not know that both directions have ended.
    if (phase_ != Phase::Established || peer_left_) {
        return;
    }
    if (!is_data) {
        take_word(word);
    } else if (peer_ended_ || !unread_->arrived(word.value)) {
        violated(beyond_its_room);
    }
}

// Posts the receives of words that have come. The peer uses that of a message with bytes again when it has
// got the credit back: this is called before each update. The receives of other words have no credit, and are
// posted before the word is taken, of which the peer may learn at once.
[[gnu::noinline]] void Connection::post_receives() {
    const std::size_t count = std::exchange(taken_count_, 0);
    if (count != 0 && rpma_recv_many(conn_.get(), taken_.data(), count, nullptr) != 0) {
        fail(ECONNABORTED);
    }
}

// An event says why the connection has ended. On the kernel's devices it comes only when one side
// disconnects, and the side whose operation failed does so.
[[gnu::noinline]] void Connection::take_failure(ibv_wc_status status) {
    expect_event(true);
    if (!device_.is_of_kernel() || status == IBV_WC_WR_FLUSH_ERR) {
        return;
    }
    (void)rpma_conn_disconnect(conn_.get());
    if (peer_left_) {
        enter(Phase::Over);
    } else {
        fail(status == IBV_WC_RETRY_EXC_ERR ? ETIMEDOUT : ECONNRESET);
    }
}

void Connection::take_word(Word word) {
    switch (static_cast<Op>(word.op)) {
        case Op::Data:
            break;
        case Op::Window:
            if (!allowance_->extend(static_cast<std::uint16_t>(word.value)) || !take_windows()) {
                violated("credits or a window that it cannot give");
            }
            live_->granted_messages = live_->sent_messages + allowance_->credits();
            return;
        case Op::Control:
            switch (static_cast<Control>(word.value)) {
                case Control::Disconnect:
                    peer_ended_ = true;
                    peer_left_ = true;
                    return;
                case Control::Shutdown:
                    peer_ended_ = true;
                    peer_left_ = peer_left_ || !may_write_;
                    return;
                case Control::KeepAlive:
                    return;
            }
            break;
        case Op::Slot:
            if (!take_slot(word.value)) {
                violated("a mapping that cannot be, or without a credit");
            }
            return;
    }
    violated("a word that means nothing");
}

bool Connection::take_windows() {
    Target window;
    auto found = WindowList::Found::None;
    while ((found = granted_->take(list(), window)) == WindowList::Found::Window) {
        if (!allowance_->open(window)) {
            return false;
        }
        live_->granted_bytes += window.length;
    }
    return found == WindowList::Found::None;
}

void Connection::send_what_is_owed() {
    if (!unsent_.empty()) {
        send_unsent();
    }
    if (owed_ && unsent_.empty() && posted_->has_place(places_of(0))) {
        std::array<rpma_op, 1> ops{};
        const Control control = *std::exchange(owed_, std::nullopt);
        post(ops, 0, encode(Op::Control, static_cast<std::uint32_t>(control)));
    }
    // There is always a place left for the words that end both directions, one after the other.
    const std::uint32_t needed = places_of(1) + 2 * places_of(0);
    while (error_ == 0 && !peer_left_ && unread_->owes_update() && posted_->has_place(needed)) {
        if (!send_update()) {
            return;
        }
    }
    if (own_maps_->has_news()) {
        tell_mappings();
    }
}

bool Connection::send_update() {
    post_receives();
    if (error_ != 0) {
        return false;
    }
    const auto update = unread_->update();
    std::array<rpma_op, 2> ops{};
    if (!update.window) {
        return post(std::span{ops}.first(1), 0, encode(Op::Window, update.limit));
    }
    const auto bytes =
        encode_window({.address = reinterpret_cast<std::uintptr_t>(buffer()) + update.window->offset,
                       .key = shared_key_,
                       .length = static_cast<std::uint32_t>(update.window->size)},
                      peer_order_);
    ops[0].bytes = bytes.data();
    ops[0].len = bytes.size();
    ops[0].remote_addr = peer_list_.address + std::uint64_t{peer_window_} * window_bytes;
    ops[0].remote_key = peer_list_.key;
    peer_window_ = peer_window_ + 1 < peer_list_.length ? peer_window_ + 1 : 0;
    return post(ops, 0, encode(Op::Window, update.limit));
}

// Posts the writes, which are all elements but the last, and behind them the word, if there is one, in the
// last. They take `bytes` bytes of the send buffer.
bool Connection::post(std::span<rpma_op> writes_and_room, std::size_t bytes,
                      std::optional<std::uint32_t> word) {
    const auto writes = writes_and_room.first(writes_and_room.size() - 1);
    for (rpma_op &write : writes) {
        write.type = RPMA_OP_WRITE;
        write.flags = RPMA_F_COMPLETION_ON_ERROR;
    }
    rpma_op *last = &writes_and_room.back();
    std::size_t count = writes_and_room.size();
    if (!word) {
        last = &writes.back();
        --count;
    } else if (device_.is_iwarp()) {
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
    return hand_over(writes_and_room.first(count), bytes);
}

void Connection::enter(Phase phase) {
    phase_ = phase;
    live_->phase = phase == Phase::Over          ? registry::Phase::Over
                   : phase == Phase::Established ? registry::Phase::Established
                                                 : registry::Phase::Connecting;
    live_->error = error_;
}

void Connection::fail(int number) {
    error_ = error_ != 0 ? error_ : number;
    enter(Phase::Over);
    expect_event(false);
}

// Ends the stream, and tells the peer at once, not when the program closes.
void Connection::break_off(int number) {
    fail(number);
    if (conn_ != nullptr) {
        (void)rpma_conn_disconnect(conn_.get());
    }
}

[[gnu::noinline]] void Connection::violated(const char *what) {
    BASE_LOG(Error, "the peer sent %s: the stream ends", what);
    break_off(EPROTO);
}

}  // namespace stream
