// SPDX-License-Identifier: BSD-3-Clause
// stream/connection: message words, from the peer and to it.
#include <cerrno>
#include <utility>

#include "base/log.hpp"
#include "stream/connection.hpp"

namespace stream {

namespace {

constexpr const char *beyond_its_room = "data beyond its windows, its credits or its end";

}  // namespace

void Connection::go_on() {
    mutex().assert_held();
    if (life_.established() && owes()) [[unlikely]] {
        send_what_is_owed();
    }
    if (observer_ != nullptr) {
        observer_->changed();
    }
}

void Connection::take_completion(const ibv_wc &completion) {
    mutex().assert_held();
    if (!life_.established()) [[unlikely]] {
        keep_early(completion);
        return;
    }
    if (completion.status != IBV_WC_SUCCESS) [[unlikely]] {
        take_failure(completion.status);
        return;
    }
    if ((completion.opcode & IBV_WC_RECV) == 0) {
        outgoing_->completed();
        if (completion.wr_id == farewell) {
            life_.peer_leaves();
        }
        return;
    }
    const auto bits = incoming_->take_word(completion);
    if (!bits) [[unlikely]] {
        violated("a message that is no word of 4 bytes");
        return;
    }
    const Word word = decode_word(*bits);
    const bool is_data = static_cast<Op>(word.op) == Op::Data;
    if (!is_data || incoming_->must_post_receives() || life_.peer_ended()) [[unlikely]] {
        take_closely(*bits);
    } else if (!incoming_->arrived(word.value)) [[unlikely]] {
        violated(beyond_its_room);
    }
}

// It may be here before it is known whom it is from.
[[gnu::noinline]] void Connection::keep_early(const ibv_wc &completion) {
    if (life_.phase() == Phase::Connecting) {
        early_completions_.push_back(completion);
    }
}

// Takes a word that is not data alone: receives are posted again, or it comes behind the peer's end.
[[gnu::noinline]] void Connection::take_closely(std::uint32_t bits) {
    const Word word = decode_word(bits);
    const bool is_data = static_cast<Op>(word.op) == Op::Data;
    if (!is_data || incoming_->must_post_receives()) {
        (void)fail_if(incoming_->post_receives());
    }
    // A peer goes on for as long as it does not know that both directions have ended.
    if (!life_.established() || life_.peer_left()) {
        return;
    }
    if (!is_data) {
        take_word(word);
    } else if (life_.peer_ended() || !incoming_->arrived(word.value)) {
        violated(beyond_its_room);
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
    if (life_.peer_left()) {
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
            if (!outgoing_->take_update(static_cast<std::uint16_t>(word.value))) {
                violated("credits or a window that it cannot give");
            }
            return;
        case Op::Control:
            switch (static_cast<Control>(word.value)) {
                case Control::Disconnect:
                    life_.peer_leaves();
                    return;
                case Control::Shutdown:
                    life_.peer_ends();
                    return;
                case Control::KeepAlive:
                    return;
            }
            break;
        case Op::Slot:
            if (!incoming_->take_slot(word.value)) {
                violated("a mapping that cannot be, or without a credit");
            }
            return;
    }
    violated("a word that means nothing");
}

void Connection::send_what_is_owed() {
    if (!early_sends_.empty()) {
        send_early_sends();
    }
    if (life_.owes_word() && early_sends_.empty() && outgoing_->has_place_for_control() &&
        !fail_if(outgoing_->send_control(life_.take_word()))) {
        return;
    }
    while (life_.error() == 0 && !life_.peer_left() && incoming_->owes_update() &&
           outgoing_->has_place_for_update()) {
        if (!fail_if(incoming_->post_receives()) || !fail_if(outgoing_->send_update(incoming_->update()))) {
            return;
        }
    }
    if (outgoing_->has_news() && life_.error() == 0 && life_.may_write() && !life_.peer_left()) {
        (void)fail_if(outgoing_->tell_mappings());
    }
}

// Posts what was kept, as much as there is room for. The program may have ended this direction since: the
// word of that end goes behind the bytes.
void Connection::send_early_sends() {
    if (life_.peer_left()) {
        early_sends_.clear();
        return;
    }
    const iovec all = early_sends_.all();
    const auto [bytes, error] = outgoing_->send({&all, 1});
    early_sends_.sent(bytes);
    if (!fail_if(error)) {
        early_sends_.clear();
    }
}

void Connection::enter(Phase phase) {
    life_.enter(phase);
    report_->phase = phase == Phase::Over          ? registry::Phase::Over
                     : phase == Phase::Established ? registry::Phase::Established
                                                   : registry::Phase::Connecting;
    report_->error = life_.error();
}

void Connection::fail(int number) {
    life_.break_with(number);
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
