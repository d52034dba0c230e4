// SPDX-License-Identifier: BSD-3-Clause
// soft/connected/queue_pair: the end of the connection.
#include <utility>

#include "base/log.hpp"
#include "base/shared_value.hpp"
#include "soft/connected/queue_pair.hpp"
#include "soft/device/device.hpp"
#include "soft/ground/limits.hpp"
#include "soft/progress/engines.hpp"

namespace soft {

void QueuePair::end(Broken broken) {
    if (broken.by == EndReason::Closed) {
        // A thread that sends may have found the cause earlier.
        broken = sender_.broken().value_or(Broken{.by = how_peer_closed()});
    }
    if (broken.by == EndReason::Violation || broken.by == EndReason::NotDurable) {
        last_words_ = sender_.last_words(broken);
    }
    const Ending how = ending_of(broken);
    // A queue pair without acknowledgements learns of no other end of the peer either.
    const bool only_link = how.is_of_link || (broken.by == EndReason::Terminated && !is_reliable());
    if (only_link && by_number_.load(std::memory_order_relaxed)) {
        lose_link(how);
    } else {
        end(how);
    }
}

// On InfiniBand the end of a peer moves nothing here. Only a request learns of it, because nobody
// acknowledges it as often as it is sent. So the queue pair keeps its state and its receives. It leaves the
// line for a shared receive, and flushes the one that a message without an end had taken: other connections
// and the program wait for both, and the message cannot go on.
void QueuePair::lose_link(const Ending &how) {
    sender_.lose_link(!is_reliable());
    BASE_LOG_PEER(Info, "queue pair 0x%06x has lost its link with %s: %s", qp_base.qp_num,
                  access_.text().c_str(), how.text);
    direct_flush_.cancel();
    receiver_.stop();
    if (inbox_.shares()) {
        inbox_.flush();
    }
    take_link()->abort();
    unread_share_ = {};
    state_.on(ConnectionEvent::LosesLink);
    if (waits_to_send()) {
        fail_after_tries();
    }
}

EndReason QueuePair::how_peer_closed() const {
    return inbox_.keeps_whole() ? EndReason::ClosedUnclaimed
           : receiver_.inside() ? EndReason::ClosedInside
                                : EndReason::Closed;
}

void QueuePair::end(const Ending &how, ConnectionEvent event) {
    end_error_.store(how.error, std::memory_order_release);
    BASE_LOG_PEER_AT(static_cast<int>(how.level), "connection with %s ends: %s", access_.text().c_str(),
                     how.text);
    state_.on(event);
    access_.withdraw();
    sender_.end(how.oldest, how.drain);
    direct_flush_.cancel();
    receiver_.stop();
    inbox_.flush();
    if (inbox_.shares()) {
        async_events_of(*qp_base.context).push(IBV_EVENT_QP_LAST_WQE_REACHED, &qp_base);
    }
    if (how.drain) {
        send_last_words();
        const auto most = last_words_.empty() ? limits::in_force().drain_timeout : limits::last_words_timeout;
        group_->set_deadline(*this, base::Clock::now() + most);
    }
    if (event == ConnectionEvent::Breaks && owner_ != nullptr) {
        owner_->connection_ended();
    }
    if (!how.drain) {
        finish_draining();
    }
}

// Continues the end of a connection: first its last words, then the peer's last bytes.
void QueuePair::drain() {
    if (const bool had_words = !last_words_.empty(); had_words || end_is_due_) {
        send_last_words();
        if (had_words && last_words_.empty()) {
            group_->set_deadline(*this, base::Clock::now() + limits::in_force().drain_timeout);
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
    end_is_due_ = !link_->finish();
    sender_.want_writable_alone(end_is_due_);
}

void QueuePair::finish_draining() {
    if (link_) {
        take_link()->abort();  // destroying it is not enough when a child has its descriptor too
    }
    unread_share_ = {};
    BASE_LOG_PEER(Debug, "connection with %s: queue pair %u has ended, its link is closed",
                  access_.text().c_str(), qp_base.qp_num);
    const bool owner_waits = state_.now() == ConnectionState::Disconnecting;
    state_.on(ConnectionEvent::Ends);
    if (owner_waits && owner_ != nullptr) {
        owner_->connection_ended();
    }
}

// The program need not wait any longer. But a reset would destroy completed operations whose bytes the link
// still has.
void QueuePair::leave_to_engine() {
    if (last_words_.empty() && link_->undelivered()) {
        Engines::instance().drains().add(take_link(), access_.origin(), std::move(unread_share_));
    }
}

bool QueuePair::disconnect(const ConnectionOwner &owner, When when) {
    if (inherited()) {
        return false;
    }
    const base::Lock lock{group_->mutex()};
    if (owner_ != &owner) {
        return false;
    }
    if (when == When::Now || !sender_.finish_when_sent()) {
        end_here();
    }
    return true;
}

void QueuePair::end_here() {
    if (connected()) {
        sender_.send_held();
        end(ending_of({.by = EndReason::DisconnectedHere}), ConnectionEvent::Disconnects);
    }
}

// Disconnects. On a queue pair that was never connected it flushes the posted requests.
void QueuePair::give_up() {
    const base::Lock lock{group_->mutex()};
    if (const ConnectionState now = state_.now();
        now != ConnectionState::Idle && now != ConnectionState::Lost) {
        end_here();
        return;
    }
    group_->clear_deadline(*this);
    sender_.give_up(IBV_WC_WR_FLUSH_ERR);
    state_.on(ConnectionEvent::Ends);
    inbox_.flush();
}

}  // namespace soft
