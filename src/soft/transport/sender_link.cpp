// SPDX-License-Identifier: BSD-3-Clause
// soft/transport/sender: sends batches of complete segments into the link.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/shared_value.hpp"
#include "soft/ground/limits.hpp"
#include "soft/transport/sender.hpp"

namespace soft {

namespace {

constexpr std::size_t bytes_in_a_turn = std::size_t{8} << 20;  // then other connections have their turn
constexpr std::uint32_t ready_to_receive_stag = 1;             // no key is checked for an empty write

}  // namespace

EndReason Sender::reason_of(Added added) {
    return added == Added::NotAllowed   ? EndReason::AccessLost
           : added == Added::MemoryGone ? EndReason::MemoryGone
                                        : EndReason::RequestFailed;
}

void Sender::drop_batch() {
    batch_.clear();
    responses_.batch_was_cleared();
    holds_ = false;
}

// Tells the peer what is placed, which is owed, before anything that the program may have posted because of
// it.
[[gnu::noinline]] void Sender::acknowledge() {
    if (batch_.has_room()) {
        told_ = placed_.now();
        responses_.add_acknowledgement(told_);
    }
}

// Requests and answers take turns by whole messages; a message's segments stay together. The program may post
// a message because it has one of the peer. The peer takes its own message for done when it has the answers
// that it asked for before, so these go before the program's message.
[[gnu::hot, gnu::always_inline]] inline void Sender::build_batch() {
    if (ready_to_receive_due_) {
        ready_to_receive_due_ = false;
        batch_.add_copied({.opcode = wire::Opcode::Write, .stag = ready_to_receive_stag}, {});
    }
    if (owes_acknowledgement()) {
        acknowledge();
    }
    while (!broken_) {
        const bool may_answer = !requests_.inside() && responses_.has_next();
        const bool may_ask =
            !responses_.inside() && requests_.has_next() && !(may_answer && message_waits_for_answer());
        if ((!may_ask && !may_answer) || !batch_.has_room() || requests_.has_copied_enough()) {
            return;
        }
        bool of_answers = may_answer && (response_turn_ || !may_ask);
        bool has_other = may_ask && may_answer;
        while (!add_segment(of_answers)) {
            if (!std::exchange(has_other, false)) {
                return;
            }
            of_answers = !of_answers;
        }
    }
}

// Gives the batch to the link, and adds the size of what the link took to `bytes`. Returns false when the
// link did not take all.
[[gnu::hot, gnu::noinline]] bool Sender::send_batch(std::size_t &bytes) {
    const auto sent = batch_.send(*link_);
    responses_.unpin();
    if (!sent) {
        // link.hpp: EFAULT tells that the memory is gone, another value that the link has failed.
        const int error = sent.error().number;
        break_link(error == EFAULT ? Cause{EndReason::MemoryGone} : Cause{EndReason::Link, error});
        return false;
    }
    if (!batch_.empty()) {
        queue_.sent_in_part(batch_.sent_bytes());
        after_retiring();
        full_ = true;
        want_writable(true);
        return false;
    }
    bytes += batch_.bytes();
    batch_.clear();
    responses_.batch_was_cleared();
    return true;
}

// This function and post() are flat, because a small request takes fewer instructions than to enter the
// functions that they call.
//
// A peer that reads as fast as this side sends never fills the link. After its turn the sender waits as if
// the link were full.
[[gnu::hot, gnu::flatten, gnu::noinline]] void Sender::transmit() {
    bool held = std::exchange(holds_, false);
    if (held) {
        tell_turn();
    }
    std::size_t bytes = 0;
    while (may_transmit_ && !broken_ && !full_) {
        if (bytes >= bytes_in_a_turn) {
            want_writable(true);
            return;
        }
        if (batch_.empty() || std::exchange(held, false)) {
            build_batch();
            const std::size_t copied = requests_.take_direct_bytes();
            bytes += copied;
            if (batch_.empty() && copied == 0 && !queue_.has_uncommitted()) {
                if (!broken_) {
                    want_writable(false);
                }
                return;
            }
        } else if (!responses_.pin_again()) {
            break_link({EndReason::AccessLost});
            return;
        }
        if (!batch_.empty() && !send_batch(bytes)) {
            return;
        }
        queue_.sent();
        after_retiring();
        if (!broken_ && !queue_.has_next() && !responses_.has_next() && !owes_acknowledgement()) {
            want_writable(false);  // as build_batch() would find, with more instructions for a request alone
            return;
        }
    }
}

[[gnu::noinline]] void Sender::end_of_queue() {
    if (queue_.overrun()) {
        break_link({EndReason::Overrun});
    } else {
        may_transmit_ = !batch_.empty();  // no request leaves that was posted later
        want_writable(true);              // the thread that serves the group ends the connection
    }
}

std::vector<std::byte> Sender::last_words(const Broken &broken) {
    const base::Lock lock{mutex_};
    may_transmit_ = false;  // no segment may follow it, because a thread may post before end() is called
    std::vector<std::byte> words;
    if (!responses_.pin_again() || !copy_out(words)) {
        return {};
    }
    if (owes_acknowledgement()) {
        acknowledge();
    }
    do {
        if (!copy_out(words)) {
            return {};
        }
    } while (parameters_.acknowledged && words.size() < limits::most_last_answer_bytes &&
             responses_.has_next() && responses_.add_next() == Added::Yes);
    batch_.clear();  // an answer that failed may have left its header
    responses_.batch_was_cleared();
    if (broken.by == EndReason::NotDurable) {
        requests_.add_last_flushes();
    } else {
        std::array<std::byte, wire::terminate_max_bytes> body;
        const std::size_t size =
            wire::encode(broken.violation.code, std::span{broken.header}.first(broken.header_bytes),
                         broken.read_request, body);
        batch_.add_copied({.opcode = wire::Opcode::Terminate,
                           .queue = wire::Queue::Terminate,
                           .msn = 1,
                           .payload_bytes = static_cast<std::uint16_t>(size)},
                          std::span{body}.first(size));
    }
    return batch_.copy_rest(words) ? words : std::vector<std::byte>{};
}

// Appends the rest of the batch to the words, and empties it.
bool Sender::copy_out(std::vector<std::byte> &words) {
    const bool copied = batch_.copy_rest(words).has_value();
    batch_.clear();
    responses_.batch_was_cleared();
    return copied;
}

// Keeps the error. The thread that serves the group finds it, and ends the connection.
[[gnu::noinline]] void Sender::break_link(Cause cause) {
    if (broken_ || state_ == State::Ended) {
        return;  // the connection has ended, and the peer may still have to read
    }
    broken_ = cause;
    holds_ = false;
    link_->abort();
    set_interest({.readable = true});
}

// Applies an injected fault: the network seems to have failed, but the peer still gets the bytes that the
// link has.
[[gnu::noinline]] void Sender::cut_link() {
    broken_ = {EndReason::Cut};
    link_->finish();
    set_interest({.readable = true, .writable = true});
}

void Sender::want_readable(bool wanted, bool ended) {
    const base::Lock lock{mutex_};
    set_interest({.readable = wanted, .writable = interest_.writable, .ended = ended});
}

void Sender::want_writable_alone(bool wanted) {
    const base::Lock lock{mutex_};
    set_interest({.readable = true, .writable = wanted});
}

[[gnu::noinline]] void Sender::set_interest(Interest interest) {
    if (interest != interest_) {
        group_.change(source_, link_->descriptor(), link_->watched(interest_), link_->watched(interest));
        interest_ = interest;
        if (!link_->want(interest)) {
            group_.nudge(source_);
        }
    }
    tell_turn();
}

// A full link, and a disconnect when everything is sent, want the link to be writable.
[[gnu::noinline]] void Sender::tell_turn() {
    const bool wants = interest_.writable || holds_ || broken_ || requests_.faults() != nullptr;
    if (wants != wants_turn_.load(std::memory_order_relaxed)) {
        base::set_shared(wants_turn_, wants, std::memory_order_release);
    }
}

}  // namespace soft
