// SPDX-License-Identifier: BSD-3-Clause
// soft/transport/sender: a connection's sending side, with its lock: the send queue, the answers that are
// owed to the peer, and the batch of segments that goes into the link. Any thread posts; the thread that
// serves the group adds answers. The sender does not end the connection: it keeps a failure until that thread
// asks for it (broken()).
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.hpp"
#include "base/watched_mutex.hpp"
#include "soft/ground/tcp.hpp"
#include "soft/link/link.hpp"
#include "soft/progress/progress.hpp"
#include "soft/queues/placed.hpp"
#include "soft/queues/send_queue.hpp"
#include "soft/transport/batch.hpp"
#include "soft/transport/broken.hpp"
#include "soft/transport/parameters.hpp"
#include "soft/transport/request_segments.hpp"
#include "soft/transport/response_segments.hpp"

namespace soft {

// Its lock is taken after the group's, before a completion queue's.
class Sender {
public:
    // The sender belongs to the queue pair `qp` and keeps its state; the group serves `source`. `placed` is
    // what the peer is told.
    Sender(ibv_qp &qp, const ibv_qp_cap &cap, bool signal_all, const Asker &peer,
           CompletionQueue &completions, Completing &completing, Group &group, Source &source,
           DirectFlush &flush, const Placed &placed);

    // ---- verbs ----
    // Returns 0 or an errno value. With `all_or_nothing`, none of the requests is posted when one of them
    // cannot be.
    int post(ibv_send_wr *request, ibv_send_wr **bad, bool all_or_nothing) EXCLUDES(mutex_);
    // post() returns this for a request that changes a memory window, of which `bad` then tells; with
    // `all_or_nothing` it tells the first request of the chain. The caller changes the window without a lock.
    static constexpr int window_change_due = -1;
    // Returns 0 when post() and post_done() would take all of the chain now, or else an errno value. `open`
    // becomes false when they would flush it.
    [[nodiscard]] int would_take(const ibv_send_wr *chain, bool &open) const EXCLUDES(mutex_);
    // Posts a request that the caller has done already. Returns 0 or an errno value.
    [[nodiscard]] int post_done(const ibv_send_wr &request) EXCLUDES(mutex_);
    // Frees the places of requests whose completions were polled.
    void release(unsigned slots) {
        needs_no_lock();
        queue_.release(slots);
    }
    struct Queried {
        ibv_qp_state state;
        ConnectionParameters parameters;
    };
    [[nodiscard]] Queried query() const EXCLUDES(mutex_);
    // Returns the SOFTRDMA_OPERATION_ bits of the peer.
    [[nodiscard]] unsigned peer_operations() const {
        return peer_operations_.load(std::memory_order_acquire);
    }

    // ---- its life: the caller has the group's lock ----
    // Allocates the memory that the connection needs. Throws std::bad_alloc; then nothing has begun.
    void reserve(const ConnectionParameters &parameters) EXCLUDES(mutex_);
    // Begins to send into the link, which the group watches for reading. An initiator sends at once, a
    // responder after allow().
    void begin(Link &link, const tcp::Text &peer, const ConnectionParameters &parameters) EXCLUDES(mutex_);
    // Lets the sender transmit, because the peer is ready to receive.
    void allow() EXCLUDES(mutex_);
    // Ends the requests, and flushes all that are posted from now on, because there will be no connection.
    // The oldest one gets the status.
    void give_up(ibv_wc_status oldest) EXCLUDES(mutex_);

    // ---- the life of a queue pair that is connected by number: its states do not depend on its link ----
    void set_state(ibv_qp_state state) EXCLUDES(mutex_);
    // Makes it ready to send. Requests wait until there is a link. `most_awaiting` is how many may wait for
    // an answer at once.
    void open(std::uint16_t most_awaiting) EXCLUDES(mutex_);
    // Leaves the link, which has ended. Open requests wait; with `drops` they complete as sent.
    void lose_link(bool drops) EXCLUDES(mutex_);
    // Returns whether requests are posted that have no link.
    [[nodiscard]] bool waits_for_link() const EXCLUDES(mutex_);
    // Returns whether a request may have been posted that has no link. It needs no lock.
    [[nodiscard]] bool has_no_link() const { return has_no_link_.load(std::memory_order_relaxed); }
    // Completes the requests as sent, whatever became of them: nobody answers an unreliable queue pair.
    void drop_requests() EXCLUDES(mutex_);
    // Forgets all requests, without completions. There is no link.
    void reset() EXCLUDES(mutex_);
    // Ends the connection's requests: the oldest open one gets the status, the others are flushed.
    void end(ibv_wc_status oldest, bool reads_on) EXCLUDES(mutex_);
    // Is called before the link is destroyed.
    void leave_link() EXCLUDES(mutex_);

    // ---- its turns: the caller has the group's lock ----
    struct Turn {
        bool readable;  // the receiver may have something to do
        bool broken = false;
        bool all_sent = false;  // finish_when_sent() was called, and all of it is done
        // When a full link gives its peer up (Link::gives_up_at()); time_point::max() while the link is not
        // full.
        base::Clock::time_point gives_up_at = base::Clock::time_point::max();
    };
    // Sends the segments that can be sent now. A poller that spins does not take the lock in vain.
    [[nodiscard]] Turn serve() EXCLUDES(mutex_) {
        return wants_turn_.load(std::memory_order_acquire) ? take_turn() : Turn{.readable = true};
    }
    // Sends the segments that can be sent now, answers that are owed among them.
    void transmit_ready() EXCLUDES(mutex_);
    // Sends the requests that it holds back for later ones, before the connection ends.
    void send_held() EXCLUDES(mutex_);
    // Watches the link for reading, or not. With `ended`, the peer's end wakes the group while the link is
    // not read.
    void want_readable(bool wanted, bool ended) EXCLUDES(mutex_);
    // Watches the link for writing only, when the end of the bytes waits for room.
    void want_writable_alone(bool wanted) EXCLUDES(mutex_);
    // Returns the failure that was kept.
    [[nodiscard]] std::optional<Broken> broken() EXCLUDES(mutex_);
    // Notes that the receiver found the link failed.
    void fail(int error) EXCLUDES(mutex_);

    // Returns when the completions are there of the requests whose bytes the peer may have. Another thread
    // may be in post(): the link has taken its bytes, and the thread has not pushed the completions yet.
    void wait_for_posts() const EXCLUDES(mutex_);

    // ---- answers ----
    [[nodiscard]] bool owes_all_it_may() const EXCLUDES(mutex_);
    // Adds an answer, which the next transmit_ready() sends.
    void owe(Response response) EXCLUDES(mutex_);
    // Returns the request whose answer comes next; null when none is due. Only the thread that serves the
    // group retires it, so the pointer is valid as long as that thread has the group's lock.
    [[nodiscard]] SendRequest *oldest_awaiting() EXCLUDES(mutex_);
    [[nodiscard]] std::span<const ibv_sge> sges_of(const SendRequest &request) const {
        needs_no_lock();
        return queue_.sges_of(request);
    }
    void answered(SendRequest &request) EXCLUDES(mutex_);
    // Returns whether the peer acknowledges requests, and has acknowledged all.
    [[nodiscard]] bool all_acknowledged() const EXCLUDES(mutex_);
    // Takes what the peer has placed. Returns false when that was not sent.
    [[nodiscard]] bool acknowledged(const wire::Acknowledgement &placed) EXCLUDES(mutex_);

    // ---- a disconnect after the posted requests ----
    // Returns false when no request is open.
    [[nodiscard]] bool finish_when_sent() EXCLUDES(mutex_);
    [[nodiscard]] bool only_has_to_send() const EXCLUDES(mutex_);

    // Stops sending, and composes a TERMINATE after the bytes of earlier segments that the link has not taken
    // yet. When memory of the peer is not durable, flushes take its place, which fail there too, so that the
    // peer knows. A peer that has acknowledgements gets the answers that it is owed before, at most
    // limits::most_last_answer_bytes of them. All is copied, because the programs that own the memory are
    // then told that the operations are over. Returns nothing when those bytes cannot be read any more, or
    // when there is no memory.
    [[nodiscard]] std::vector<std::byte> last_words(const Broken &broken) EXCLUDES(mutex_);

    // Returns the timer of injected faults; -1 when there are none, or the process had no more descriptors.
    [[nodiscard]] int faults_timer() const {
        needs_no_lock();
        return requests_.faults() != nullptr ? requests_.faults()->timer() : -1;
    }

private:
    enum class State : std::uint8_t { Idle, Open, Ended };
    struct Cause {
        EndReason by;
        int error = 0;  // Link: an errno value
    };

    // Tells the analysis that the caller reads only members that do not change meanwhile: a request as it was
    // posted, the count of free places, the faults.
    void needs_no_lock() const ASSERT_SHARED_CAPABILITY(mutex_) {}
    [[nodiscard]] int check(const ibv_send_wr &request, std::uint64_t &bytes) const REQUIRES(mutex_);
    [[nodiscard]] bool require_agreed(unsigned operation, const char *name) const REQUIRES(mutex_);
    [[nodiscard]] int enqueue(const ibv_send_wr &request, std::uint32_t bytes, bool all_or_nothing,
                              bool &may_wait) REQUIRES(mutex_);
    [[nodiscard]] bool count_post() REQUIRES(mutex_);
    [[nodiscard]] bool hold() REQUIRES(mutex_);
    [[nodiscard]] bool prepare_to_hold() REQUIRES(mutex_);
    void drop_batch() REQUIRES(mutex_);
    void transmit() REQUIRES(mutex_);
    [[nodiscard]] bool send_batch(std::size_t &bytes) REQUIRES(mutex_);
    void build_batch() REQUIRES(mutex_);
    // Returns whether the next request is a message that was posted after the peer asked for the next answer.
    // There are both.
    [[nodiscard]] bool message_waits_for_answer() REQUIRES(mutex_) {
        return takes_receive(queue_.next().opcode) &&
               static_cast<std::int32_t>(queue_.posted_before_next() - responses_.next().posted) >= 0;
    }
    [[nodiscard]] bool owes_acknowledgement() const REQUIRES(mutex_) {
        return parameters_.acknowledged && placed_.now() != told_;
    }
    [[nodiscard]] bool may_wait_for_peer() REQUIRES(mutex_);
    void acknowledge() REQUIRES(mutex_);
    [[nodiscard]] bool copy_out(std::vector<std::byte> &words) REQUIRES(mutex_);
    [[nodiscard]] bool add_segment(bool of_answers) REQUIRES(mutex_);
    [[nodiscard]] static EndReason reason_of(Added added);
    void after_retiring() REQUIRES(mutex_) {
        if (queue_.overrun() || queue_.all_sent()) [[unlikely]] {
            end_of_queue();
        }
    }
    void end_of_queue() REQUIRES(mutex_);
    void break_link(Cause cause) REQUIRES(mutex_);
    void cut_link() REQUIRES(mutex_);
    void want_writable(bool wanted) REQUIRES(mutex_) {
        if (const bool writable = wanted || queue_.all_sent(); writable != interest_.writable) [[unlikely]] {
            set_interest({.readable = interest_.readable, .writable = writable, .ended = interest_.ended});
        }
    }
    void set_interest(Interest interest) REQUIRES(mutex_);
    void tell_turn() REQUIRES(mutex_);
    [[nodiscard]] Turn take_turn() EXCLUDES(mutex_);

    ibv_qp &qp_;  // its state is guarded by mutex_
    const ibv_qp_cap cap_;
    Group &group_;
    Source &source_;
    const Placed &placed_;
    std::atomic<unsigned> peer_operations_{0};
    std::atomic<bool> wants_turn_{false};   // serve() has something to do; changed with the lock
    std::atomic<bool> has_no_link_{false};  // it is open, and has no link; changed with the lock

    mutable base::WatchedMutex mutex_;
    State state_ GUARDED_BY(mutex_) = State::Idle;
    SendQueue queue_ GUARDED_BY(mutex_);
    Batch batch_ GUARDED_BY(mutex_);
    RequestSegments requests_ GUARDED_BY(mutex_);
    ResponseSegments responses_ GUARDED_BY(mutex_);
    Link *link_ GUARDED_BY(mutex_) = nullptr;
    tcp::Text peer_ GUARDED_BY(mutex_);
    ConnectionParameters parameters_ GUARDED_BY(mutex_);
    Interest interest_ GUARDED_BY(mutex_);
    bool may_transmit_ GUARDED_BY(mutex_) = false;
    bool ready_to_receive_due_ GUARDED_BY(mutex_) = false;
    bool response_turn_ GUARDED_BY(mutex_) = false;
    wire::Acknowledgement told_ GUARDED_BY(mutex_);           // to the peer
    wire::Acknowledgement placed_at_end_ GUARDED_BY(mutex_);  // when all requests were acknowledged last
    unsigned rounds_of_taker_ GUARDED_BY(mutex_) = 0;         // such times since the peer had placed anything
    bool full_ GUARDED_BY(mutex_) =
        false;  // the link took no more; the sender does not try again until the link is writable
    bool may_hold_ GUARDED_BY(mutex_) = false;    // the link gains by batches
    bool holds_ GUARDED_BY(mutex_) = false;       // the batch waits for later requests, a look, or the engine
    unsigned looks_seen_ GUARDED_BY(mutex_) = 0;  // Group::looks() at the last post
    unsigned posts_since_look_ GUARDED_BY(mutex_) = 0;   // since that number has changed
    unsigned posts_before_look_ GUARDED_BY(mutex_) = 0;  // between the two changes before
    std::optional<Cause> broken_ GUARDED_BY(mutex_);     // why it sends no more
};

// Adds the next segment of the requests or of the answers to the batch; there is one. Returns false when it
// cannot be added now, or the link is broken.
[[gnu::hot, gnu::always_inline]] inline bool Sender::add_segment(bool of_answers) {
    const Added added = of_answers ? responses_.add_next() : requests_.add_next();
    if (added == Added::Yes) {
        if (of_answers ? !responses_.inside() : !requests_.inside()) {
            response_turn_ = !of_answers;
        }
        return true;
    }
    if (added == Added::Cut) {
        cut_link();
    } else if (added != Added::No) {
        break_link({reason_of(added)});
    }
    return false;
}

}  // namespace soft
