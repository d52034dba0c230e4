// SPDX-License-Identifier: BSD-3-Clause
// soft/connected/queue_pair: the turns of a queue pair, and the end of its connection.
#include <utility>

#include "base/log.hpp"
#include "base/shared_value.hpp"
#include "soft/connected/queue_pair.hpp"
#include "soft/device/device.hpp"
#include "soft/ground/limits.hpp"

namespace soft {

void QueuePair::progress() {
    group_->mutex().assert_held();
    if (!connected()) {
        drain();
        return;
    }
    if (receiver_.parked()) {
        // A sender may have found the link broken, and asked for reading.
        sender_.want_readable(false, false);
    }
    const Sender::Turn turn = sender_.serve();
    if (turn.all_sent) {
        end_here();
        return;
    }
    if (turn.broken) {
        if (const auto broken = sender_.broken(false)) {
            end(*broken);
            return;
        }
    }
    if (turn.gives_up_at != base::Clock::time_point::max()) {
        group_->set_deadline(patience_, turn.gives_up_at);
    }
    if (receiver_.stalled() && link_->ready().ended) {
        receiver_.link_ended();
    } else if (turn.readable) {
        go_on_or_end(receiver_.receive());
    }
}

bool QueuePair::rest() {
    group_->mutex().assert_held();
    return !link_ || link_->rest();
}

// Is called when the time is over for the first FPDU that an initiator promised, for the rest of a segment,
// for receives for the last messages, or for the peer's end of a connection that ended.
void QueuePair::expire() {
    group_->mutex().assert_held();
    if (connected()) {
        go_on_or_end(receiver_.expire());
    } else {
        leave_to_engine();
        finish_draining();
    }
}

void QueuePair::go_on_or_end(const Outcome<> &outcome) {
    if (!outcome) {
        end(outcome.error());
    }
}

void QueuePair::end(const Broken &broken) {
    if (broken.by == Broken::By::Violation) {
        last_words_ = sender_.last_words(broken);
    }
    if (broken.by == Broken::By::End) {
        // A thread that sends may have found the cause earlier.
        if (const auto cause = sender_.broken(true)) {
            end(ending_of(*cause, EndReason::Closed));
            return;
        }
    }
    end(ending_of(broken, how_peer_closed()));
}

EndReason QueuePair::how_peer_closed() const {
    return inbox_.keeps_whole() ? EndReason::ClosedUnclaimed
           : receiver_.inside() ? EndReason::ClosedInside
                                : EndReason::Closed;
}

void QueuePair::end(const Ending &how) {
    end_error_.store(how.error, std::memory_order_release);
    BASE_LOG_PEER_AT(static_cast<int>(how.level), "connection with %s ends: %s", access_.text().c_str(),
                     how.text);
    base::set_shared(phase_, Phase::Draining, std::memory_order_release);
    sender_.end(how.oldest, how.drain);
    receiver_.stop();
    inbox_.flush();
    if (inbox_.shared() != nullptr) {
        async_events_of(*qp_base.context).push(IBV_EVENT_QP_LAST_WQE_REACHED, &qp_base);
    }
    if (how.drain) {
        send_last_words();
        const auto most = last_words_.empty() ? limits::drain_timeout : limits::last_words_timeout;
        group_->set_deadline(*this, base::Clock::now() + most);
    }
    if (!ending_locally_ && owner_ != nullptr) {
        owner_->connection_ended();
    }
    if (!how.drain) {
        finish_draining();
    }
}

// Continues the end of a connection: first its last words, then the peer's last bytes.
void QueuePair::drain() {
    if (!last_words_.empty()) {
        send_last_words();
        if (last_words_.empty()) {
            group_->set_deadline(*this, base::Clock::now() + limits::drain_timeout);
        }
    }
    if (link_ && link_->discard()) {
        finish_draining();
    }
}

// Sends as many of the last words as the link takes now. The end of the bytes follows the last one. Nothing
// else is sent, because the sender has ended.
void QueuePair::send_last_words() {
    while (!last_words_.empty()) {
        const iovec rest{.iov_base = last_words_.data(), .iov_len = last_words_.size()};
        const Link::Sent sent = link_->send({&rest, 1});
        if (sent.error != 0) {
            break;
        }
        if (sent.bytes == 0) {
            sender_.want_writable_alone(true);
            return;
        }
        last_words_.erase(last_words_.begin(), last_words_.begin() + static_cast<std::ptrdiff_t>(sent.bytes));
    }
    last_words_.clear();
    sender_.want_writable_alone(false);
    link_->finish();
}

void QueuePair::finish_draining() {
    if (link_) {
        leave_group();
        link_->abort();  // destroying it is not enough when a child has its descriptor too
        take_link().reset();
    }
    allowance_ = {};
    base::set_shared(phase_, Phase::Ended, std::memory_order_release);
    if (ending_locally_ && owner_ != nullptr) {
        owner_->connection_ended();
    }
}

// The program need not wait any longer. But a reset would destroy completed operations whose bytes the link
// still has.
void QueuePair::leave_to_engine() {
    if (last_words_.empty() && link_->undelivered()) {
        leave_group();
        Engine::instance().drain(take_link(), access_.origin(), std::move(allowance_));
    }
}

bool QueuePair::disconnect(const ConnectionOwner &owner) {
    if (inherited()) {
        return false;
    }
    {
        const base::Lock lock{group_->mutex()};
        if (owner_ != &owner) {
            return false;
        }
    }
    disconnect();
    return true;
}

bool QueuePair::disconnect_when_sent(const ConnectionOwner &owner) {
    if (inherited()) {
        return false;
    }
    {
        const base::Lock lock{group_->mutex()};
        if (owner_ != &owner) {
            return false;
        }
        if (sender_.finish_when_sent()) {
            return true;
        }
    }
    disconnect();
    return true;
}

void QueuePair::disconnect() {
    const base::Lock lock{group_->mutex()};
    end_here();
}

void QueuePair::end_here() {
    if (connected()) {
        ending_locally_ = true;
        end(ending_of(EndReason::DisconnectedHere));
    }
}

// Works as disconnect(). On a queue pair that was never connected it flushes the posted requests.
void QueuePair::give_up() {
    const base::Lock lock{group_->mutex()};
    if (!idle()) {
        end_here();
        return;
    }
    sender_.give_up();
    base::set_shared(phase_, Phase::Ended, std::memory_order_release);
    inbox_.flush();
}

// A worker calls this, without a lock. It makes the bytes durable for which the connection waits, and then
// continues the connection.
void QueuePair::back_from_worker(void *queue_pair) {
    auto &self = *static_cast<QueuePair *>(queue_pair);
    const auto group = self.group_;  // it outlives the queue pair here
    if (self.durability_.run_on_worker()) {
        return;
    }
    {
        const base::Lock lock{self.group_->mutex()};
        self.durability_.worker_is_back();
        if (self.connected()) {
            self.go_on_or_end(self.receiver_.unpark());
        }
    }
    // Release pairs with the destructor's acquire, which looks again under the lock.
    persists_returned.fetch_add(1, std::memory_order_release);
    persists_returned.notify_all();
}

}  // namespace soft
