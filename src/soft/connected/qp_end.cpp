// SPDX-License-Identifier: BSD-3-Clause
// soft/qp: how a connection ends, and who is told.
#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstring>

#include "base/log.hpp"
#include "base/shared_value.hpp"
#include "soft/connected/qp.hpp"
#include "soft/device/device.hpp"
#include "soft/ground/limits.hpp"

namespace soft {

namespace {

// break_link() is called with these when neither the network nor the peer is the cause: a request fails,
// memory is gone, a completion queue is full.
constexpr bool is_ours(int error) {
    return error == 0 || error == EACCES || error == EFAULT || error == ENOBUFS;
}

}  // namespace

void QueuePair::log_end(const char *text, int level) const {
    serves();
    BASE_LOG_PEER_AT(level, "connection with %s ends: %s", peer_.c_str(), text);
}

void QueuePair::end(const End &how) {
    serves();
    end_error_.store(how.error, std::memory_order_release);
    log_end(how.text, how.level);
    {
        const base::Lock lock{send_mutex_};
        // With the lock: who posts and sees it flushes, and the oldest request has its status by then.
        base::set_shared(phase_, Phase::Draining, std::memory_order_release);
        qp_base.state = IBV_QPS_ERR;
        may_transmit_ = false;
        batch_.clear();
        pins_.clear();
        batch_reads_.clear();
        if (faults_ != nullptr) {
            faults_->stop();
        }
        flush_requests(how.oldest);
        set_interest({.readable = how.drain});
    }
    flush_receives();
    if (shared_receives_ != nullptr) {
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

// The link gets as many of them as it takes now; the end of the bytes follows the last.
void QueuePair::send_last_words() {
    const base::Lock lock{send_mutex_};
    changes();
    while (!last_words_.empty()) {
        const iovec rest{.iov_base = last_words_.data(), .iov_len = last_words_.size()};
        const Link::Sent sent = link_->send({&rest, 1});
        if (sent.error != 0) {
            break;
        }
        if (sent.bytes == 0) {
            set_interest({.readable = true, .writable = true});
            return;
        }
        last_words_.erase(last_words_.begin(), last_words_.begin() + static_cast<std::ptrdiff_t>(sent.bytes));
    }
    last_words_.clear();
    set_interest({.readable = true});
    link_->finish();
}

void QueuePair::finish_draining() {
    {
        const base::Lock lock{send_mutex_};
        changes();
        leave_group();
        if (link_) {
            link_->abort();  // to destroy it is not enough where a child has its descriptor too
            link_.reset();
        }
        allowance_ = {};
    }
    base::set_shared(phase_, Phase::Ended, std::memory_order_release);
    if (ending_locally_ && owner_ != nullptr) {
        owner_->connection_ended();
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
        const base::Lock sending{send_mutex_};
        if (!requests_.empty()) {
            last_left_ = requests_.size();
            return true;
        }
    }
    disconnect();
    return true;
}

// Whether the connection ends as soon as what was posted has left, and needs nothing of the peer for that.
bool QueuePair::only_has_to_send() {
    const base::Lock lock{send_mutex_};
    for (std::size_t i = 0; i < last_left_; ++i) {
        if (is_answered(requests_.at(i).opcode)) {
            return false;
        }
    }
    return last_left_ != 0 || all_sent_;
}

void QueuePair::disconnect() {
    const base::Lock lock{group_->mutex()};
    end_here();
}

void QueuePair::end_here() {
    if (phase_.load(std::memory_order_relaxed) == Phase::Connected) {
        ending_locally_ = true;
        end({.text = "disconnected here",
             .level = static_cast<int>(base::LogLevel::Info),
             .oldest = IBV_WC_WR_FLUSH_ERR,
             .drain = true});
    }
}

// As disconnect(), and of a queue pair that was never connected what was posted is flushed.
void QueuePair::give_up() {
    {
        const base::Lock lock{group_->mutex()};
        if (idle()) {
            {
                const base::Lock sending{send_mutex_};
                qp_base.state = IBV_QPS_ERR;
            }
            base::set_shared(phase_, Phase::Ended, std::memory_order_release);
            flush_receives();
            return;
        }
    }
    disconnect();
}

// The program need not wait any longer. But a reset would destroy what it was told is done and the link has.
void QueuePair::leave_to_engine() {
    const base::Lock lock{send_mutex_};
    changes();
    if (last_words_.empty() && link_->undelivered()) {
        leave_group();
        Engine::instance().drain(std::move(link_), origin_, std::move(allowance_));
    }
}

// The time is over for the first FPDU of an initiator that promised it, for the rest of a segment, for
// receives for the last messages, or for the end of a connection that ended.
void QueuePair::expire() {
    group_->mutex().assert_held();
    if (!connected()) {
        leave_to_engine();
        finish_draining();
        return;
    }
    if (end_held_) {
        peer_closed();
        return;
    }
    // The link may still have bytes that the peer sent in time, when this process or its thread did not run
    // meanwhile.
    if (!stalled_ && !parked_) {
        receive();
        if (!connected()) {
            return;
        }
    }
    const bool ours_to_go_on = stalled_ || parked_;
    const bool late = message_watched_
                          ? holds_shared_receive() && next_send_msn_ == watched_msn_ &&
                                arrived_of_message() - watched_bytes_ < limits::shared_message_pace_bytes
                          : inside_segment() && segments_ == watched_segment_;
    if (!established_ || (late && !ours_to_go_on)) {
        link_lost(ETIMEDOUT);
        return;
    }
    segment_watched_ = message_watched_ = false;
    watch_segment();
}

void QueuePair::violate(const wire::Violation &violation, std::span<const std::byte> read_request) {
    std::array<std::byte, wire::untagged_bytes> header;
    terminate(violation, std::span{header}.first(wire::encode_header(segment_, header)), read_request);
}

// The program has unmapped memory that is registered, or has cut its file.
void QueuePair::memory_vanished(const MemoryRegion &region, const void *place) {
    serves();
    BASE_LOG_PEER(Error,
                  "%s: nothing is mapped any more at offset %td of the %zu bytes at %p that were registered "
                  "with key 0x%" PRIx32 ": the connection ends",
                  peer_.c_str(), static_cast<const char *>(place) - static_cast<const char *>(region.addr),
                  region.length, region.addr, region.rkey);
    violate({"the memory of a region has vanished", wire::terminate::local_catastrophic});
}

// False when what is before them cannot be read any more, or there is no memory for them.
bool QueuePair::add_last_words(const wire::Violation &violation, std::span<const std::byte> header,
                               std::span<const std::byte> read_request) {
    changes();
    if (!batch_.copy_rest(last_words_)) {
        return false;
    }
    std::array<std::byte, wire::terminate_max_bytes> body;
    const std::size_t size = wire::encode(violation.code, header, read_request, body);
    batch_.clear();
    batch_.add_copied({.opcode = wire::Opcode::Terminate,
                       .queue = wire::Queue::Terminate,
                       .msn = 1,
                       .payload_bytes = static_cast<std::uint16_t>(size)},
                      std::span{body}.first(size));
    return batch_.copy_rest(last_words_).has_value();
}

void QueuePair::terminate(const wire::Violation &violation, std::span<const std::byte> header,
                          std::span<const std::byte> read_request) {
    {
        // It goes behind what the link has not taken yet of the FPDUs before it, which is copied: those whose
        // memory it is are told that all is over.
        const base::Lock lock{send_mutex_};
        changes();
        may_transmit_ = false;  // nothing comes behind it: somebody may post before end() has the lock
        if (!pin_again() || !add_last_words(violation, header, read_request)) {
            last_words_.clear();
        }
    }
    end({.text = violation.text,
         .level = static_cast<int>(base::LogLevel::Warning),
         .oldest = IBV_WC_WR_FLUSH_ERR,
         .drain = true,
         .error = EPROTO});
}

// While sending: the thread that serves the group sees it, and ends the connection.
void QueuePair::break_link(int error) {
    sends();
    if (link_broken_ || !connected()) {
        return;  // of a connection that has ended the peer may still have to read
    }
    link_broken_ = true;
    link_error_ = error;
    link_->abort();
    set_interest({.readable = true});
}

// A fault on purpose: as if the network had gone, but what the link has still reaches the peer.
void QueuePair::cut_link() {
    sends();
    link_broken_ = link_cut_ = true;
    link_error_ = ECONNRESET;
    link_->finish();
    set_interest({.readable = true, .writable = true});
}

// A thread that sends has broken the link: the connection ends with it. Where the network or the peer is the
// cause, only `at_end` of what had come before: the peer may have been told that it was done.
bool QueuePair::found_broken(bool at_end) {
    base::Lock lock{send_mutex_};
    if (!link_broken_ || (!at_end && !link_cut_ && !is_ours(link_error_))) {
        return false;
    }
    const int error = link_error_;
    const bool cut = link_cut_;
    lock.unlock();
    link_lost(error, cut);
    return true;
}

void QueuePair::link_lost(int error, bool drain) {
    end({.text = error != 0 ? std::strerror(error) : "a request failed here",
         .level = static_cast<int>(base::LogLevel::Warning),
         .oldest = error != 0 ? IBV_WC_RETRY_EXC_ERR : IBV_WC_WR_FLUSH_ERR,
         .drain = drain,
         .error = error == 0       ? ECONNABORTED
                  : error == EPIPE ? ECONNRESET
                                   : error});
}

void QueuePair::peer_closed() {
    if (found_broken(true)) {
        return;
    }
    const bool unclaimed = !unexpected_.empty() && unexpected_.front().complete;
    const bool inside = inside_segment() || message_ != Message::None;
    end({.text = unclaimed ? "closed by the peer; messages that found no receive are lost"
                 : inside  ? "the peer closed it inside a message"
                           : "closed by the peer",
         .level = static_cast<int>(unclaimed || inside ? base::LogLevel::Warning : base::LogLevel::Info),
         .oldest = IBV_WC_WR_FLUSH_ERR,
         .drain = false,
         .error = unclaimed || inside ? ECONNRESET : 0});
}

}  // namespace soft
