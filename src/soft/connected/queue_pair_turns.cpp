// SPDX-License-Identifier: BSD-3-Clause
// soft/connected/queue_pair: the turns of a queue pair, in which its connection goes on: when its link is
// ready, when its deadline has passed, when receives were posted, or when a worker has finished.
#include "soft/connected/queue_pair.hpp"

#include <chrono>
#include <thread>

#include "base/shared_value.hpp"

namespace soft {

[[gnu::hot]] void QueuePair::progress() {
    group_->mutex().assert_held();
    if (!connected()) {
        drain();
        return;
    }
    if (receives_came_.load(std::memory_order_relaxed)) [[unlikely]] {
        base::set_shared(receives_came_, false);
        receives_posted();
        if (!connected()) {
            return;
        }
    }
    if (receiver_.parked()) {
        // A sender may have found the link broken, and asked for reading.
        sender_.want_readable(false, false);
    }
    if (!direct_flush_.go_on()) {
        flush_is_done();
        if (!connected()) {
            return;
        }
    }
    const Sender::Turn turn = sender_.serve();
    if (turn.all_sent) {
        end_here();
        return;
    }
    if (turn.broken) {
        // The receiver finds a failure of the link itself, behind the bytes that came before it: the peer may
        // have been told that their operations are done.
        if (const auto broken = sender_.broken(); broken && broken->by != EndReason::Link) {
            end(*broken);
            return;
        }
    }
    if (turn.gives_up_at != base::Clock::time_point::max()) {
        group_->set_deadline(patience_, turn.gives_up_at);
    }
    if (awaits_receive(state_.now()) && link_->ready().ended) {
        receiver_.link_ended();
    } else if (turn.readable) {
        go_on_or_end(receiver_.receive());
    }
}

Link *QueuePair::link_to_rest() {
    group_->mutex().assert_held();
    return link_.get();
}

// Is called when the time is over for the first FPDU that an initiator promised, for the rest of a segment,
// for receives for the last messages, for the tries of a request whose link is lost, or for the peer's end of
// a connection that ended.
void QueuePair::expire() {
    group_->mutex().assert_held();
    if (connected()) {
        go_on_or_end(receiver_.expire());
    } else if (state_.now() == ConnectionState::Lost) {
        if (waits_to_send()) {
            end_unanswered();
        }
    } else {
        leave_to_engine();
        finish_draining();
    }
}

void QueuePair::Patience::expire() {
    queue_pair_.group_->mutex().assert_held();
    if (queue_pair_.connected()) {
        queue_pair_.look_at_peer();
    }
    queue_pair_.progress();
    queue_pair_.group_->let_rest(queue_pair_);
}

void QueuePair::look_at_peer() {
    const auto next = link_->look_at_peer();
    if (next == base::Clock::time_point::max()) {
        return;  // the kernel looks, or the link has failed
    }
    group_->set_deadline(patience_, next);
    if (const auto paths = link_->paths(); paths && *paths != told_paths_) {
        told_paths_ = *paths;
        BASE_LOG_PEER(Info, "connection with %s: queue pair %u, MPTCP with %zu paths", access_.text().c_str(),
                      qp_base.qp_num, told_paths_);
    }
}

std::optional<std::size_t> QueuePair::paths() const {
    if (inherited()) {
        return std::nullopt;
    }
    const base::Lock lock{group_->mutex()};
    return link_ ? link_->paths() : std::nullopt;
}

bool QueuePair::look_for_first_fpdu(base::Clock::time_point until) {
    return look_for_first_fpdu(until, WithoutFpdu::Waits);
}

bool QueuePair::give_way(base::Clock::time_point until) {
    return look_for_first_fpdu(until, WithoutFpdu::Ends);
}

// The caller may serve others, and the thread that serves this group may wait for a page of memory.
bool QueuePair::look_for_first_fpdu(base::Clock::time_point until, WithoutFpdu then) {
    constexpr std::chrono::microseconds between_tries{50};
    while (state_.get() == ConnectionState::AwaitsPromised) {
        if (group_->mutex().try_lock()) {
            const base::Lock lock{group_->mutex(), base::adopt};
            if (state_.now() == ConnectionState::AwaitsPromised && link_->ready().readable) {
                go_on_or_end(receiver_.receive_empty_first());
                if (link_ != nullptr) {
                    group_->let_rest(*this);
                }
            } else if (state_.now() == ConnectionState::AwaitsPromised && then == WithoutFpdu::Ends) {
                BASE_LOG_PEER(Warning,
                              "no connection with %s: no first FPDU, and too many others wait with theirs",
                              access_.text().c_str());
                end(Broken{.by = EndReason::Silence});
            }
            return true;
        }
        if (base::Clock::now() >= until) {
            return false;
        }
        std::this_thread::sleep_for(between_tries);
    }
    return true;
}

void QueuePair::peer_began() {
    group_->mutex().assert_held();
    group_->clear_deadline(*this);
    if (owner_ != nullptr) {
        owner_->connection_established();
    }
}

void QueuePair::receives_posted() {
    group_->mutex().assert_held();
    if (connected()) {
        go_on_or_end(receiver_.receives_posted());
    } else {
        inbox_.leave_line();
    }
}

// The group has this as a source: a queue pair leaves the line first.
void QueuePair::receives_came() {
    base::set_shared(receives_came_, true);
    (void)group_->tell_held(*this);  // when the process ends, nobody waits for the receive
}

// Is called without a lock, by a worker or the thread that sleeps for a direct flush, when the bytes are
// durable for which the connection waits. Continues the connection.
void QueuePair::persisted(void *queue_pair, Durability &durability) {
    auto &self = *static_cast<QueuePair *>(queue_pair);
    const auto group = self.group_;  // it outlives the queue pair here
    {
        const base::Lock lock{self.group_->mutex()};
        durability.worker_is_back();
        if (&durability != &self.durability_) {
            self.flush_is_done();
        } else if (self.connected()) {
            self.go_on_or_end(self.receiver_.unpark());
        }
    }
    // Release pairs with the acquire of take_down(), which looks again under the lock.
    persists_returned.fetch_add(1, std::memory_order_release);
    persists_returned.notify_all();
}

void QueuePair::flush_is_done() {
    const int error = direct_flush_.ranges().error();  // read first: the next flush may begin after end()
    SendRequest *const request = direct_flush_.end();
    if (!connected()) {
        return;
    }
    if (error != 0) {
        end(Broken{.by = EndReason::NotDurable});
    } else {
        sender_.answered(*request);
    }
}

void QueuePair::go_on_or_end(const Outcome<> &outcome) {
    if (!outcome) {
        end(outcome.error());
    }
}

}  // namespace soft
