// SPDX-License-Identifier: BSD-3-Clause
// soft/qp: batches of whole segments into the link.
#include <cerrno>

#include "soft/connected/qp.hpp"

namespace soft {

namespace {

constexpr std::size_t bytes_in_a_turn = std::size_t{8} << 20;  // then others have theirs

}  // namespace

// A peer that reads as fast as this sends never fills the link: after its turn it waits as if it had.
void QueuePair::transmit() {
    sends();
    std::size_t bytes = 0;
    while (may_transmit_ && !link_broken_ && !full_) {
        if (bytes >= bytes_in_a_turn) {
            want_writable(true);
            return;
        }
        if (batch_.empty()) {
            build_batch();
            if (batch_.empty()) {
                if (!link_broken_) {
                    want_writable(false);
                }
                return;
            }
        } else if (!pin_again()) {
            break_link(EACCES);
            return;
        }
        const auto sent = batch_.send(*link_);
        pins_.clear();
        if (!sent) {
            break_link(sent.error().number);
            return;
        }
        if (!batch_.empty()) {
            full_ = true;
            want_writable(true);
            return;
        }
        bytes += batch_.bytes();
        batch_was_sent();
    }
}

// Memory that the peer still has to read may have been deregistered since the link was full.
bool QueuePair::pin_again() {
    for (const PeerRead &read : batch_reads_) {
        if (batch_.has_sent(read.piece)) {
            continue;
        }
        auto pin = Memory::instance().pin(read.access);
        if (!pin) {
            pins_.clear();  // nothing will be sent: who deregisters another of them need not wait
            return false;
        }
        pins_.push_back(std::move(*pin));
    }
    return true;
}

void QueuePair::batch_was_sent() {
    for (; first_uncommitted_ < first_unbuilt_; ++first_uncommitted_) {
        SendRequest &request = requests_.at(first_uncommitted_);
        if (request.state == SendRequest::State::Built) {
            request.state =
                is_answered(request.opcode) ? SendRequest::State::Awaiting : SendRequest::State::Done;
        }
    }
    batch_.clear();
    batch_reads_.clear();
    retire();
}

void QueuePair::want_writable(bool wanted) {
    set_interest({.readable = interest_.readable, .writable = wanted || all_sent_, .ended = interest_.ended});
}

// A stalled connection may be so for ever, and has to see, once, that the peer is gone. A parked one is read
// again soon, and until then misses nothing.
void QueuePair::want_readable(bool wanted) {
    const base::Lock lock{send_mutex_};
    set_interest({.readable = wanted, .writable = interest_.writable, .ended = stalled_ && !end_held_});
}

void QueuePair::set_interest(Interest interest) {
    sends();
    if (interest != interest_) {
        group_->change(*this, link_->descriptor(), interest_, interest);
        interest_ = interest;
    }
}

}  // namespace soft
