// SPDX-License-Identifier: BSD-3-Clause
// stream/exchange: the messages of both ends of a stream, once they know each other's memory: bytes and
// words of the peer, and the words that this end owes to it.
//
// A function that may find that the stream cannot go on returns why. Its Connection ends the stream.
#pragma once

#include "stream/incoming.hpp"
#include "stream/life.hpp"
#include "stream/outgoing.hpp"

namespace stream {

// Why a stream cannot go on.
struct Trouble {
    int error = 0;                    // an errno value, 0 when it can
    const char *violation = nullptr;  // what the peer sent that the protocol does not allow
    explicit operator bool() const { return error != 0; }
};

// The lock of the shard guards it. The stream's Life is its Connection's.
class Exchange {
public:
    Exchange(const Common &common, const Hello &theirs, Life &life)
        : outgoing_{common, theirs}, incoming_{common, theirs}, life_{life} {}
    Exchange(const Exchange &) = delete;
    Exchange &operator=(const Exchange &) = delete;

    [[nodiscard]] Outgoing &outgoing() { return outgoing_; }
    [[nodiscard]] const Outgoing &outgoing() const { return outgoing_; }
    [[nodiscard]] Incoming &incoming() { return incoming_; }
    [[nodiscard]] const Incoming &incoming() const { return incoming_; }

    // Takes a completion that succeeded: a post of ours, or a word of the peer.
    [[nodiscard, gnu::always_inline]] Trouble take(const ibv_wc &completion) {
        if ((completion.opcode & IBV_WC_RECV) == 0) {
            take_post(completion);
            return {};
        }
        const auto bits = incoming_.take_word(completion);
        if (!bits) [[unlikely]] {
            return no_word();
        }
        const Word word = decode_word(*bits);
        if (static_cast<Op>(word.op) != Op::Data || incoming_.must_post_receives() || life_.peer_ended() ||
            !incoming_.arrived(word.value)) [[unlikely]] {
            return take_closely(*bits);
        }
        return {};
    }
    // Returns whether settle() may have something to send.
    [[nodiscard]] bool owes() const {
        return incoming_.owes_update() || life_.owes_word() || outgoing_.has_news();
    }
    // Sends all that this end owes: the word of our end, windows and credits, news of mappings.
    // Returns 0 or an errno value.
    [[nodiscard]] int settle();
    // Notes that the program has taken bytes, and tells the peer if that is due. Returns 0 or an errno value.
    [[nodiscard]] int consume(std::size_t bytes) {
        incoming_.consume(bytes);
        return incoming_.owes_update() && life_.established() ? settle() : 0;
    }

private:
    void take_post(const ibv_wc &completion);
    [[nodiscard]] static Trouble no_word();
    [[nodiscard]] Trouble take_closely(std::uint32_t bits);
    [[nodiscard]] Trouble take_word(Word word);

    Outgoing outgoing_;
    Incoming incoming_;
    Life &life_;
};

}  // namespace stream
