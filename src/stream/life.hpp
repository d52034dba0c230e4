// SPDX-License-Identifier: BSD-3-Clause
// stream/life: how far a stream has come, which of its directions have ended, and why it broke.
//
//                        reply, or first message             both directions ended, or broken
//      Asking ──────► Connecting ─────────► Established ─────────────────────────► Over
//         request came, or none is needed
#pragma once

#include <cerrno>
#include <optional>
#include <utility>

#include "stream/report.hpp"
#include "stream/wire.hpp"

namespace stream {

enum class Phase { Asking, Connecting, Established, Over };

class Life {
public:
    // The report is told of each phase.
    explicit Life(Report &report) : report_{report} {}

    [[nodiscard]] Phase phase() const { return phase_; }
    // Returns whether the request has been sent, or the peer's has been answered.
    [[nodiscard]] bool answered() const { return phase_ != Phase::Asking; }
    [[nodiscard]] bool established() const { return phase_ == Phase::Established; }
    [[nodiscard]] bool was_established() const { return was_established_; }
    // Returns whether a device has accepted the request, even if there is no stream because of what it said.
    [[nodiscard]] bool was_accepted() const { return was_accepted_; }
    // Returns the errno value that says why the stream broke, or never began; 0: it did neither.
    [[nodiscard]] int error() const { return error_; }
    // Returns whether the peer sends no more.
    [[nodiscard]] bool peer_ended() const { return peer_ended_; }
    // Returns whether the peer neither sends nor receives any more.
    [[nodiscard]] bool peer_left() const { return peer_left_; }
    // Returns whether nothing can be sent any more, and nothing received but the bytes that have come.
    [[nodiscard]] bool is_over() const { return phase_ == Phase::Over || peer_left_; }
    // Returns whether the program has not ended the direction.
    [[nodiscard]] bool may_read() const { return may_read_; }
    [[nodiscard]] bool may_write() const { return may_write_; }
    [[nodiscard]] bool may_send() const { return phase_ == Phase::Established && may_write_ && !peer_left_; }
    // Returns an errno value.
    [[nodiscard]] int why_not_send() const {
        if (error_ != 0 && may_write_ && !peer_left_) {
            return error_;
        }
        return !may_write_ || peer_left_ || phase_ == Phase::Over ? EPIPE : EAGAIN;
    }

    void enter(Phase phase) {
        phase_ = phase;
        was_established_ = was_established_ || phase == Phase::Established;
        report_->phase = phase == Phase::Over          ? registry::Phase::Over
                         : phase == Phase::Established ? registry::Phase::Established
                                                       : registry::Phase::Connecting;
        report_->error = error_;
    }
    void accepted() { was_accepted_ = true; }
    // The stream is over. The first error is the reason.
    void fail(int number) {
        error_ = error_ != 0 ? error_ : number;
        enter(Phase::Over);
    }
    // The program ends one direction or both. Returns whether there is news for the peer.
    bool shut(bool receiving, bool sending) {
        const bool could_read = may_read_ && !peer_ended_;
        const bool could_write = may_write_;
        may_read_ = may_read_ && !receiving;
        may_write_ = may_write_ && !sending;
        if (!could_write && !(could_read && receiving)) {
            return false;  // it was said
        }
        if (!may_write_ && !peer_left_) {
            owed_ = could_read && may_read_ ? Control::Shutdown : Control::Disconnect;
        }
        return true;
    }
    // The program gives both directions up, and the peer is told nothing.
    void abort() {
        may_read_ = false;
        may_write_ = false;
    }
    // The peer sends no more.
    void peer_ends() {
        peer_ended_ = true;
        peer_left_ = peer_left_ || !may_write_;
    }
    void peer_leaves() {
        peer_ended_ = true;
        peer_left_ = true;
    }
    // The word that tells the peer of our end, until it is sent.
    [[nodiscard]] bool owes_word() const { return owed_.has_value(); }
    [[nodiscard]] Control take_word() { return *std::exchange(owed_, std::nullopt); }

private:
    Report &report_;
    Phase phase_ = Phase::Asking;
    int error_ = 0;
    bool was_accepted_ = false;
    bool was_established_ = false;
    bool may_read_ = true;
    bool may_write_ = true;
    bool peer_ended_ = false;
    bool peer_left_ = false;
    std::optional<Control> owed_;
};

}  // namespace stream
