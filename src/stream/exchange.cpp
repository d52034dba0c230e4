// SPDX-License-Identifier: BSD-3-Clause
#include "stream/exchange.hpp"

#include <cerrno>

namespace stream {

namespace {

constexpr const char *beyond_its_room = "data beyond its windows, its credits or its end";

Trouble violated(const char *what) {
    return {.error = EPROTO, .violation = what};
}

Trouble failed(int error) {
    return {.error = error};
}

}  // namespace

void Exchange::take_post(const ibv_wc &completion) {
    outgoing_.completed();
    if (completion.wr_id == farewell) {
        life_.peer_leaves();
    }
}

[[gnu::cold, gnu::noinline]] Trouble Exchange::no_word() {
    return violated("a message that is no word of 4 bytes");
}

// Takes a word that is not data alone: receives are posted again, it comes behind the peer's end, or its
// bytes have no room.
[[gnu::noinline]] Trouble Exchange::take_closely(std::uint32_t bits) {
    const Word word = decode_word(bits);
    const bool is_data = static_cast<Op>(word.op) == Op::Data;
    if (!is_data || incoming_.must_post_receives()) {
        if (const int error = incoming_.post_receives(); error != 0) {
            return failed(error);
        }
    }
    // A peer goes on for as long as it does not know that both directions have ended.
    if (life_.peer_left()) {
        return {};
    }
    if (!is_data) {
        return take_word(word);
    }
    return !life_.peer_ended() && incoming_.arrived(word.value) ? Trouble{} : violated(beyond_its_room);
}

// Takes a word that tells of no bytes.
Trouble Exchange::take_word(Word word) {
    switch (static_cast<Op>(word.op)) {
        case Op::Data:
            break;
        case Op::Window:
            return outgoing_.take_update(static_cast<std::uint16_t>(word.value))
                       ? Trouble{}
                       : violated("credits or a window that it cannot give");
        case Op::Control:
            switch (static_cast<Control>(word.value)) {
                case Control::Disconnect:
                    life_.peer_leaves();
                    return {};
                case Control::Shutdown:
                    life_.peer_ends();
                    return {};
                case Control::KeepAlive:
                    return {};
            }
            break;
        case Op::Slot:
            return incoming_.take_slot(word.value)
                       ? Trouble{}
                       : violated("a mapping that cannot be, or without a credit");
    }
    return violated("a word that means nothing");
}

int Exchange::settle() {
    if (outgoing_.waits_for_peer() && incoming_.has_heard()) {
        outgoing_.begin();
    }
    if (life_.owes_word() && outgoing_.has_place_for_control()) {
        if (const int error = outgoing_.send_control(life_.take_word()); error != 0) {
            return error;
        }
    }
    while (!life_.peer_left() && incoming_.owes_update() && outgoing_.has_place_for_update()) {
        if (const int error = incoming_.post_receives(); error != 0) {
            return error;
        }
        if (const int error = outgoing_.send_update(incoming_.update()); error != 0) {
            return error;
        }
    }
    return outgoing_.has_news() && life_.may_write() && !life_.peer_left() ? outgoing_.tell_mappings() : 0;
}

}  // namespace stream
