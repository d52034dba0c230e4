// SPDX-License-Identifier: BSD-3-Clause
// soft/queues/send_queue: the requests of one queue pair, from ibv_post_send to a work completion. A write or
// send is done when the link has all its bytes, or when the peer has acknowledged it, if both agreed on that;
// a read, flush or atomic operation is done when its answer has come. Completions come in the order of
// posting.
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "soft/queues/completion_queue.hpp"
#include "soft/queues/posted_sends.hpp"
#include "soft/queues/send_request.hpp"
#include "soft/wire/rdmap.hpp"

namespace soft {

// It is not thread-safe: its owner locks. release() needs no lock.
class SendQueue {
public:
    // `completing` is the queue pair, whose completions free places here.
    SendQueue(const ibv_qp_cap &cap, bool signal_all, CompletionQueue &completions, Completing &completing,
              std::uint32_t queue_pair_number);

    [[nodiscard]] bool empty() const { return requests_.empty(); }
    [[nodiscard]] std::size_t size() const { return requests_.size(); }
    [[nodiscard]] bool full() const { return requests_.full(); }
    [[nodiscard]] bool has_room_for(std::size_t count) const { return requests_.has_room_for(count); }
    // Returns whether the completions of all requests were polled.
    [[nodiscard]] bool is_unused() const { return requests_.is_unused(); }

    // ---- posting ----
    // The caller has checked that the queue is not full(), and that the request's `bytes` are right.
    [[gnu::always_inline]] SendRequest &push(const ibv_send_wr &posted, std::uint32_t bytes) {
        const auto opcode = static_cast<std::uint8_t>(posted.opcode);
        SendRequest &request = requests_.push(posted, [&] {
            return SendRequest{
                .flags = static_cast<std::uint8_t>(posted.send_flags | flags_of_all_),
                .needs_answer = opcode != IBV_WR_RDMA_WRITE && is_answered(opcode),
                .sges = static_cast<std::uint8_t>(opcode == SOFTRDMA_WR_FLUSH ? 0 : posted.num_sge),
                .opcode = opcode,
                .length = bytes,
                .rkey = posted.wr.rdma.rkey,
                .immediate = posted.imm_data,
                .wr_id = posted.wr_id,
                .remote_address = posted.wr.rdma.remote_addr,
            };
        });
        if (is_atomic(opcode)) [[unlikely]] {
            request.rkey = posted.wr.atomic.rkey;
            request.compare_add = posted.wr.atomic.compare_add;
            request.swap = posted.wr.atomic.swap;
        }
        return request;
    }
    // Copies the inline data of a request. Returns false when there is no memory for it.
    [[nodiscard]] bool keep(SendRequest &request) { return requests_.keep(request); }
    // Removes the youngest `count` requests, none of which is in a batch.
    void take_back(std::size_t count) { requests_.take_back(count); }
    // Works as PostedSends::keep_waiting, with the requests that are not built yet.
    [[nodiscard]] ibv_send_wr *keep_waiting(ibv_send_wr *chain, std::size_t posted) {
        const std::size_t waiting = std::min(posted, requests_.size() - first_unbuilt_);
        return waiting == 0 ? nullptr : requests_.keep_waiting(chain, posted, waiting);
    }
    void release(unsigned slots) { requests_.release(slots); }
    [[nodiscard]] static std::span<const ibv_sge> sges_of(const SendRequest &request) {
        return PostedSends<SendRequest>::sges_of(request);
    }
    [[nodiscard]] static std::byte *address_of(const ibv_sge &sge) {
        return PostedSends<SendRequest>::address_of(sge);
    }

    // ---- sending ----
    // Begins a connection, on which the peer acknowledges requests or not.
    void begin(bool acknowledged) {
        acknowledged_ = acknowledged;
        numbers_ = acknowledged_numbers_ = {};
    }
    // has_next() tells whether a request is not wholly in a batch; next() returns the oldest of these.
    [[nodiscard]] bool has_next() const { return first_unbuilt_ != requests_.size(); }
    [[nodiscard]] SendRequest &next() { return requests_.at(first_unbuilt_); }
    // These return how many requests were posted so far, and how many of them before next(). Both counts go
    // around.
    [[nodiscard]] std::uint32_t posted() const {
        return removed_ + static_cast<std::uint32_t>(requests_.size());
    }
    [[nodiscard]] std::uint32_t posted_before_next() const {
        return removed_ + static_cast<std::uint32_t>(first_unbuilt_);
    }
    // Returns whether next() is the request that was posted last; youngest() returns that, when has_next().
    [[nodiscard]] bool next_is_youngest() const { return first_unbuilt_ + 1 == requests_.size(); }
    [[nodiscard]] const SendRequest &youngest() const { return requests_.at(requests_.size() - 1); }
    // Returns whether a request may begin. After a fence nothing begins before the answers to earlier
    // requests have come, and at most `most_awaiting` requests wait for an answer.
    [[nodiscard]] bool may_begin(const SendRequest &request, unsigned most_awaiting) const {
        return !(request.is(IBV_SEND_FENCE) && awaiting_ + persisting_ != 0) &&
               !(request.needs_answer && awaiting_ >= most_awaiting);
    }
    // Returns whether all requests before next() are done.
    [[nodiscard]] bool next_is_oldest() const { return first_unbuilt_ == 0; }
    // Notes that a segment that asks for next()'s answer is in a batch.
    void awaits_answer() { ++awaiting_; }
    // Notes that the request, which is next(), was done without the link.
    void done(SendRequest &request) {
        request.state = SendRequest::State::Done;
        ++first_unbuilt_;
    }
    // Notes that this process makes the memory durable that the request, a flush and next(), names. It is
    // answered() then.
    void persists(SendRequest &request) {
        request.state = SendRequest::State::Persisting;
        ++first_unbuilt_;
        ++persisting_;
    }
    [[nodiscard]] bool expects_sleeper() const { return completions_.expects_sleeper(); }
    // Returns whether requests were done, or begun, without the link since sent().
    [[nodiscard]] bool has_uncommitted() const { return first_uncommitted_ != first_unbuilt_; }
    // Returns how many requests are in a batch of which the link has not taken all.
    [[nodiscard]] std::size_t unsent() const { return first_unbuilt_ - first_uncommitted_; }
    // Returns whether no request waits for an answer of the peer.
    [[nodiscard]] bool nothing_awaits() const { return awaiting_ == 0; }
    // Notes that the request, which is next(), is wholly in a batch, in its first `batch_bytes` bytes.
    void built(SendRequest &request, std::size_t batch_bytes) {
        request.state = SendRequest::State::Built;
        request.batch_bytes = static_cast<std::uint32_t>(batch_bytes);
        ++first_unbuilt_;
        if (acknowledged_ && is_acknowledged(request)) {
            numbers_.writes += is_message(request.opcode) ? 0 : 1;
            numbers_.messages += takes_receive(request.opcode) ? 1 : 0;
            request.number = takes_receive(request.opcode) ? numbers_.messages : numbers_.writes;
        }
    }
    // Is called when the link has taken all that was built.
    void sent();
    // Is called when the link has taken so many bytes of the batch, and not all.
    void sent_in_part(std::size_t batch_bytes);

    // ---- answers ----
    // Returns the request whose answer comes next; null when none is due.
    [[nodiscard]] SendRequest *oldest_awaiting();
    void answered(SendRequest &request);
    // Returns whether the peer's counts are those of all requests.
    [[nodiscard]] bool ends_with(const wire::Acknowledgement &placed) const {
        return placed == numbers_ && !has_next();
    }
    // Takes the peer's counts. Returns false when they are not between the last ones and those of what was
    // sent.
    [[nodiscard]] bool acknowledge(const wire::Acknowledgement &placed);

    // ---- the end ----
    // Gives the oldest open request the status and flushes all later ones, also a write that the link has:
    // the target did nothing after the request that failed.
    void flush(ibv_wc_status oldest);
    // Completes all requests as done.
    void drop();
    // Forgets all requests, and frees every place.
    void reset();
    // Makes all_sent() true for ever as soon as the requests that are posted now are done.
    void finish_when_sent() { last_left_ = requests_.size(); }
    [[nodiscard]] bool all_sent() const { return all_sent_; }
    // Returns whether the connection ends as soon as the posted requests have left, and none of them needs an
    // answer.
    [[nodiscard]] bool only_has_to_send() const;
    // Returns whether a completion was lost because the completion queue had no room.
    [[nodiscard]] bool overrun() const { return overrun_; }

private:
    void commit(std::size_t end);
    void retire();
    void remove(std::size_t count);
    [[nodiscard]] static bool is_acknowledged(const SendRequest &request) {
        return !request.needs_answer && !changes_window(request.opcode);
    }
    [[nodiscard]] static bool makes_completion(const SendRequest &request) {
        return request.is(IBV_SEND_SIGNALED) || request.status != IBV_WC_SUCCESS;
    }
    template <typename Push>
    void complete(const SendRequest &request, const Push &push);

    PostedSends<SendRequest> requests_;
    const unsigned flags_of_all_;  // IBV_SEND_, of every request
    CompletionQueue &completions_;
    Completing &completing_;
    const std::uint32_t queue_pair_number_;
    std::uint32_t removed_ = 0;          // requests that were removed from the queue so far
    std::size_t first_unbuilt_ = 0;      // index of the first that is not wholly in a batch
    std::size_t first_uncommitted_ = 0;  // index of the first that the link has not taken wholly
    // Before these indexes no request is Sent, and none waits for an answer. So a peer that acknowledges or
    // answers in many small pieces does not have all requests looked at for each piece.
    std::size_t first_sent_ = 0;
    std::size_t first_awaiting_ = 0;
    unsigned awaiting_ = 0;  // requests whose answer is due
    bool acknowledged_ = false;
    wire::Acknowledgement numbers_;  // of the last requests that were built
    wire::Acknowledgement acknowledged_numbers_;
    unsigned persisting_ = 0;    // requests for which persists() was called, and that are not answered
    unsigned unsignaled_ = 0;    // completed since the last completion entry; the next one frees them
    std::size_t last_left_ = 0;  // requests that are still to be done before a disconnect; then all_sent_
    bool all_sent_ = false;
    bool overrun_ = false;
};

}  // namespace soft
