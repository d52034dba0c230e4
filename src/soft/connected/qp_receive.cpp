// SPDX-License-Identifier: BSD-3-Clause
// soft/qp: what the link has: headers and small payload come through one buffer, large payload is received
// where it belongs.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "soft/connected/qp.hpp"
#include "soft/ground/limits.hpp"

namespace soft {

namespace {

// Reads in one turn, so that others of the group have theirs.
constexpr int rounds_in_a_turn = 32;
// So much is received behind a segment's payload.
constexpr std::size_t bytes_ahead = 256;

using State = Link::Received::State;

}  // namespace

void QueuePair::progress() {
    group_->mutex().assert_held();
    serves();
    if (!connected()) {
        if (!last_words_.empty()) {
            send_last_words();
            if (last_words_.empty()) {
                group_->set_deadline(*this, base::Clock::now() + limits::drain_timeout);
            }
        }
        if (link_ && link_->discard()) {
            finish_draining();
        }
        return;
    }
    if (parked_) {
        want_readable(false);  // a sender may have broken the link, and wants a look at it
    }
    bool readable = true;
    bool broken = false;
    bool all_sent = false;
    {
        const base::Lock lock{send_mutex_};
        broken = link_broken_;
        if (full_) {
            const Link::Ready ready = link_->ready();
            full_ = !ready.writable;
            readable = ready.readable;
        }
        const bool delay_is_over = faults_ != nullptr && faults_->delay_is_over();
        if (interest_.writable || delay_is_over) {
            transmit();
        }
        all_sent = all_sent_ && !link_broken_;
    }
    if (all_sent) {
        end_here();
        return;
    }
    if (broken && found_broken(false)) {
        return;
    }
    if (stalled_ && link_->ready().ended) {
        if (const int error = link_->failure()) {
            const base::Lock lock{send_mutex_};
            break_link(error);
        }
        hold_end();
        return;
    }
    if (readable) {
        receive();
    }
}

void QueuePair::receive() {
    serves();
    if (ignores_peer_) {
        if (link_->discard()) {
            peer_closed();
        }
        return;
    }
    if (!buffer_.bytes) {
        buffer_ = group_->borrow_buffer(buffer_bytes_);
        if (!buffer_.bytes) {
            link_lost(ENOMEM);
            return;
        }
    }
    for (int round = 0; round < rounds_in_a_turn && connected() && !parked_ && !stalled_ && !ignores_peer_;
         ++round) {
        const Link::Received got = fill();
        if (got.bytes > 0) {
            parse();
        }
        if (got.state == State::More) {
            continue;
        }
        if (got.state == State::Failed) {
            const base::Lock lock{send_mutex_};
            break_link(got.error);
        }
        if (got.state != State::Drained) {
            stream_ended();
        }
        break;
    }
    answer();
    watch_segment();
    return_empty_buffer();
}

// A peer that has begun a segment has to end it, and a message that others could use the receive of has to go
// on. Nothing is timed while segments come whole, and what is timed is not looked at again before its time is
// over.
void QueuePair::watch_segment() {
    if (!connected() || !established_ || ignores_peer_) {
        return;
    }
    const bool shared = holds_shared_receive();
    if ((shared && !message_watched_) || (inside_segment() && !segment_watched_)) {
        segment_watched_ = true;
        watched_segment_ = segments_;
        message_watched_ = shared;
        watched_msn_ = next_send_msn_;
        watched_bytes_ = arrived_of_message();
        group_->set_deadline(
            *this, base::Clock::now() + (shared ? limits::shared_message_timeout : limits::segment_timeout));
    }
}

void QueuePair::return_empty_buffer() {
    if (buffer_.bytes && (buffer_begin_ == buffer_end_ || !connected())) {
        buffer_begin_ = buffer_end_ = 0;
        group_->give_back(std::move(buffer_));
    }
}

// Sends the responses that parsing added.
void QueuePair::answer() {
    if (answer_due_ && connected()) {
        answer_due_ = false;
        const base::Lock lock{send_mutex_};
        transmit();
    }
}

// Takes what the link has, or nothing when the connection has ended over it.
Link::Received QueuePair::fill() {
    serves();
    if (buffer_begin_ == buffer_end_) {
        buffer_begin_ = buffer_end_ = 0;
    } else if (buffer_begin_ != 0) {
        std::memmove(buffer_.bytes.get(), buffer_.bytes.get() + buffer_begin_, buffer_end_ - buffer_begin_);
        buffer_end_ -= buffer_begin_;
        buffer_begin_ = 0;
    }
    if (in_segment_ && payload_left_ != 0 && buffer_end_ == 0 && !parameters_.crc &&
        message_ != Message::Kept) {
        Target target;
        return aim(target, payload_left_) ? fill_target(target) : Link::Received{};
    }
    const iovec room{.iov_base = buffer_.bytes.get() + buffer_end_, .iov_len = buffer_bytes_ - buffer_end_};
    const Link::Received got = link_->receive({&room, 1});
    buffer_end_ += got.bytes;
    return got;
}

// Payload to where it belongs, and into the buffer little of what follows: the trailer and the next header,
// and a short segment behind a long one. More would be copied twice.
Link::Received QueuePair::fill_target(Target &target) {
    serves();
    if (target.bytes == payload_left_) {
        target.pieces[target.count++] = {.iov_base = buffer_.bytes.get(), .iov_len = bytes_ahead};
    }
    const Link::Received got = link_->receive(std::span{target.pieces}.first(target.count));
    if (got.bytes > 0) {
        const std::size_t payload = std::min(got.bytes, target.bytes);
        buffer_end_ = got.bytes - payload;
        try {
            placed(payload, target.durable);
        } catch (const std::bad_alloc &) {
            link_lost(ENOMEM);
            return {};
        }
    } else if (got.error == EFAULT) {
        memory_vanished(target.pins[0].region(), target.pieces[0].iov_base);
        return {};
    }
    return got;
}

}  // namespace soft
