// SPDX-License-Identifier: BSD-3-Clause
// soft/connected/queue_pair: a reliable-connected queue pair on one link. It connects these parts:
//   Sender      the send queue, and segments into the link         (transport/sender, with its own lock)
//   Receiver    segments from the link, and where payload goes     (transport/receiver)
//   Inbox       incoming messages and the receives posted for them (queues/inbox)
//   PeerAccess  what the peer may reach                            (memory/peer_access)
//   Durability  what it wrote that is not durable                  (memory/durability)
//   DirectFlush what this side wrote in its memory, during a flush (transport/direct_flush)
// The parts return the reason when the connection breaks; only the queue pair ends it.
//
// It has two locks. The group's lock guards receiving and the connection's life. The sender's lock, which is
// taken after it, guards sending.
//
// Its connection has one state (transport/connection_state), which the receiver changes too:
//     Idle ──start()──► with a link ──end()──► Draining ──finish_draining()──► Ended
//       │                   └──lose_link()──► Lost ──end_unanswered()─────────►│
//       └──give_up()──────────────────────────────────────────────────────────►┘
// Lost, and the way back from any state to Idle (reset()), are for queue pairs that a program connects by
// number (Connector): their ibv_qp.state is what the program has set, and the end of a link alone does not
// change it.
// A queue pair that was given up while the connection manager was connecting it gets its link all the same:
// start() ends that connection at once, which tells the peer.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "base/mutex.hpp"
#include "soft/connected/connector.hpp"
#include "soft/connected/ending.hpp"
#include "soft/connected/owner.hpp"
#include "soft/connected/set_attributes.hpp"
#include "soft/ground/tcp.hpp"
#include "soft/ground/unread_share.hpp"
#include "soft/link/link.hpp"
#include "soft/memory/durability.hpp"
#include "soft/memory/peer_access.hpp"
#include "soft/progress/progress.hpp"
#include "soft/queues/any_queue_pair.hpp"
#include "soft/queues/inbox.hpp"
#include "soft/queues/placed.hpp"
#include "soft/queues/xrc_domain.hpp"
#include "soft/transport/direct_flush.hpp"
#include "soft/transport/parameters.hpp"
#include "soft/transport/receiver.hpp"
#include "soft/transport/sender.hpp"

namespace soft {

class QueuePair final : public AnyQueuePair, public Source, public TakesReceives, public ReceiverOwner {
public:
    // `number` is as in AnyQueuePair's constructor. One of type XRC_RECV belongs to `xrcd`.
    [[nodiscard]] static base::Result<QueuePair *> create(ibv_pd &pd, ibv_qp_init_attr &attributes,
                                                          std::uint32_t number = 0,
                                                          XrcHandle *xrcd = nullptr);
    // Opens another handle of it, of type XRC_RECV. Returns false when its last handle is being closed.
    [[nodiscard]] bool open_again();
    // Lets the program connect it by number. It is called before show_number().
    void connect_by(std::unique_ptr<Connector> connector) {
        connector_ = std::move(connector);
        qp_base.state = IBV_QPS_RESET;
    }
    ~QueuePair() override;

    // ---- AnyQueuePair ----
    [[nodiscard]] unsigned peer_operations() const override { return sender_.peer_operations(); }
    [[nodiscard]] std::optional<std::size_t> paths() const override EXCLUDES(group_->mutex());
    [[nodiscard]] int end_error() const override { return end_error_.load(std::memory_order_acquire); }
    void release(CompletionQueue::WorkQueue queue, unsigned slots) override;

    // ---- TakesReceives ----
    void receives_posted() override;
    void receives_came() override;
    [[nodiscard]] const std::shared_ptr<Group> &group() const override { return group_; }

    // ---- connection manager ----
    // Returns whether an id can connect it.
    [[nodiscard]] bool idle() const {
        return state_.get() == ConnectionState::Idle && !by_number_.load(std::memory_order_relaxed);
    }
    // Takes the link over after the handshake. Throws std::bad_alloc; then nothing has begun.
    void start(std::unique_ptr<Link> link, const tcp::Address &peer, const ConnectionParameters &parameters,
               ConnectionOwner *owner) EXCLUDES(group_->mutex());
    // Takes the initiator's first FPDU, if it has come and is empty, in place of the thread that serves this
    // queue pair. Returns false when another thread serves the group until then.
    [[nodiscard]] bool look_for_first_fpdu(base::Clock::time_point until) EXCLUDES(group_->mutex());
    // Ends the connection, unless the first FPDU has come. Returns false as look_for_first_fpdu().
    [[nodiscard]] bool give_way(base::Clock::time_point until) EXCLUDES(group_->mutex());
    // Tells that owner nothing more.
    void forget_owner(const ConnectionOwner &owner) EXCLUDES(group_->mutex());
    // Flushes the open operations, tells the peer, and lets it read the completed ones. The owner is told
    // when that is done. Returns false when the connection never belonged to that owner.
    // With When::Sent, it begins to do that when the operations that are posted now are done.
    enum class When : std::uint8_t { Now, Sent };
    [[nodiscard]] bool disconnect(const ConnectionOwner &owner, When when = When::Now)
        EXCLUDES(group_->mutex());

    // ---- its connector ----
    [[nodiscard]] Connector *connector() const { return connector_.get(); }
    // Returns whether it may get a link by number now. It needs no lock.
    [[nodiscard]] bool wants_link() const {
        return state_.get() == ConnectionState::Idle && by_number_.load(std::memory_order_relaxed) &&
               !going_.load(std::memory_order_relaxed);
    }
    // Takes the link over after the handshake, as start(), or drops it when it does not want one any more.
    // Returns false, and takes nothing, when another thread serves the group until then.
    [[nodiscard]] bool start_by_number(std::unique_ptr<Link> &link, const tcp::Address &peer,
                                       const ConnectionParameters &parameters, base::Clock::time_point until)
        EXCLUDES(group_->mutex());
    // Returns whether requests wait for a link. It needs no lock.
    [[nodiscard]] bool waits_to_send() const { return sender_.waits_for_link(); }
    // Ends the requests that wait for a link, because nobody has answered. Returns false when another thread
    // serves the group.
    [[nodiscard]] bool nobody_answers() EXCLUDES(group_->mutex());

    // ---- Source ----
    void progress() override;
    void expire() override;
    [[nodiscard]] bool is_awaited() const override {
        return !sender_.all_acknowledged() || inbox_.has_receives();
    }
    [[nodiscard]] Link *link_to_rest() override;

private:
    // Makes the queue pair look at its link again: at a full one when it gives its peer up, and at one of
    // MPTCP, whose peer may be silent. It has a deadline, and no socket.
    class Patience final : public Source {
    public:
        explicit Patience(QueuePair &queue_pair) : queue_pair_{queue_pair} {}
        void progress() override {}
        void expire() override;

    private:
        QueuePair &queue_pair_;
    };

    QueuePair(ibv_pd &domain, const ibv_qp_init_attr &attributes, std::uint32_t number,
              std::shared_ptr<Group> group, XrcHandle *xrcd);

    bool close() override { return handles_.fetch_sub(1, std::memory_order_acq_rel) == 1; }
    void leave() override;
    int post_sends(ibv_send_wr *request, ibv_send_wr **bad, ChainPart when_bad) override;
    int post_receives(ibv_recv_wr *request, ibv_recv_wr **bad) override;
    int change_state(const ibv_qp_attr &attributes, int mask) override;
    void query_state(ibv_qp_attr &attributes) const override;
    void peer_began() override;
    [[nodiscard]] int post_window_changes(ibv_send_wr **bad, ChainPart when_bad);
    [[nodiscard]] int post_window_change(const ibv_send_wr &request);

    [[nodiscard]] bool connected() const { return is_linked(state_.now()); }
    [[nodiscard]] bool is_reliable() const { return soft::is_reliable(qp_base.qp_type); }
    // Returns the rights that its peer can have: an XRC queue pair that sends is no target.
    [[nodiscard]] unsigned most_access() const {
        return qp_base.qp_type == IBV_QPT_XRC_SEND ? 0 : governed_access;
    }
    void take_down(bool going) EXCLUDES(group_->mutex());

    // queue_pair_states.cpp
    [[nodiscard]] int enter_state(const ibv_qp_attr &attributes, int mask) REQUIRES(changes_);
    [[nodiscard]] int keep_state(const ibv_qp_attr &attributes, int mask) const REQUIRES(changes_);
    [[nodiscard]] int enter_first_state(const ibv_qp_attr &attributes, int mask) REQUIRES(changes_);
    [[nodiscard]] int become_ready_to_receive(const ibv_qp_attr &attributes, int mask) REQUIRES(changes_);
    [[nodiscard]] int become_ready_to_send(const ibv_qp_attr &attributes, int mask) REQUIRES(changes_);
    void reset() REQUIRES(changes_);
    void requests_wait();
    void fail_after_tries() REQUIRES(group_->mutex());
    void end_unanswered() REQUIRES(group_->mutex());
    void begin_connection(std::unique_ptr<Link> link, const tcp::Address &peer,
                          const ConnectionParameters &parameters, ConnectionOwner *owner)
        REQUIRES(group_->mutex());
    void await_or_tell_first_fpdu() REQUIRES(group_->mutex());
    [[nodiscard]] std::unique_ptr<Link> take_link() REQUIRES(group_->mutex());

    // queue_pair_end.cpp
    void give_up() EXCLUDES(group_->mutex());
    void end_here() REQUIRES(group_->mutex());
    void end(Broken broken) REQUIRES(group_->mutex());
    void end(const Ending &how, ConnectionEvent event = ConnectionEvent::Breaks) REQUIRES(group_->mutex());
    void lose_link(const Ending &how) REQUIRES(group_->mutex());
    [[nodiscard]] EndReason how_peer_closed() const REQUIRES(group_->mutex());
    void drain() REQUIRES(group_->mutex());
    void send_last_words() REQUIRES(group_->mutex());
    void leave_to_engine() REQUIRES(group_->mutex());
    void finish_draining() REQUIRES(group_->mutex());

    // queue_pair_turns.cpp
    enum class WithoutFpdu : std::uint8_t { Waits, Ends };
    [[nodiscard]] bool look_for_first_fpdu(base::Clock::time_point until, WithoutFpdu then)
        EXCLUDES(group_->mutex());
    void go_on_or_end(const Outcome<> &outcome) REQUIRES(group_->mutex());
    void look_at_peer() REQUIRES(group_->mutex());
    static void persisted(void *queue_pair, Durability &durability);
    void flush_is_done() REQUIRES(group_->mutex());

    // Counts the workers that returned to their queue pair. A thread that destroys a queue pair waits for a
    // change.
    static std::atomic<unsigned> persists_returned;

    const std::shared_ptr<Group> group_;
    // It is taken before any group's lock: one thread at a time changes the state.
    mutable base::Mutex changes_;
    SetAttributes set_ GUARDED_BY(changes_);
    std::unique_ptr<Connector> connector_;  // null when only an id can connect it
    std::atomic<bool> by_number_{false};    // the program connects it by number; changed with changes_
    std::atomic<int> handles_{1};
    ConnectionStateCell state_;
    std::atomic<bool> receives_came_{false};  // of the shared queue
    std::atomic<int> end_error_{0};

    Placed placed_;
    // The sender has its own lock.
    DirectFlush direct_flush_;
    Sender sender_;
    // For these parts the group's lock is their owner's. Some of their functions need no lock, and say so.
    PeerAccess access_;
    Inbox inbox_;
    Durability durability_;
    Receiver receiver_;

    std::unique_ptr<Link> link_ GUARDED_BY(group_->mutex());
    UnreadShare unread_share_ GUARDED_BY(group_->mutex());
    // How long a request is sent again and again that nobody acknowledges.
    base::Clock::duration tries_ GUARDED_BY(group_->mutex()){};
    ConnectionOwner *owner_ GUARDED_BY(group_->mutex()) = nullptr;
    Patience patience_ GUARDED_BY(group_->mutex()){*this};
    std::size_t told_paths_ GUARDED_BY(group_->mutex()) = 0;         // to the log
    std::vector<std::byte> last_words_ GUARDED_BY(group_->mutex());  // up to and with a TERMINATE
    bool end_is_due_ GUARDED_BY(group_->mutex()) = false;            // the link was full when it was finished
    std::atomic<bool> going_{false};  // it is being destroyed; changed with the group's lock
};

}  // namespace soft
