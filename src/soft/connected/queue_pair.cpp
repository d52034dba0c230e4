// SPDX-License-Identifier: BSD-3-Clause
// soft/connected/queue_pair: the life of a queue pair up to the end of its connection, and posting.
#include "soft/connected/queue_pair.hpp"

#include <cerrno>
#include <new>
#include <utility>

#include "base/log.hpp"
#include "base/shared_value.hpp"
#include "soft/device/device.hpp"
#include "soft/ground/environment.hpp"
#include "soft/ground/limits.hpp"
#include "soft/memory/window.hpp"
#include "soft/progress/engines.hpp"

namespace soft {

std::atomic<unsigned> QueuePair::persists_returned{0};

base::Result<QueuePair *> QueuePair::create(ibv_pd &pd, ibv_qp_init_attr &attributes, std::uint32_t number,
                                            XrcHandle *xrcd) {
    const auto cap = granted_sizes(attributes);
    if (!cap) {
        return std::unexpected{cap.error()};
    }
    attributes.cap = *cap;
    auto *const made =
        new QueuePair{pd, attributes, number, CompletionQueue::of(attributes.send_cq)->group(), xrcd};
    if (Faults::active() != nullptr && made->sender_.faults_timer() < 0) {
        destroy(made);
        return base::failure(EMFILE);
    }
    return made;
}

QueuePair::QueuePair(ibv_pd &domain, const ibv_qp_init_attr &attributes, std::uint32_t number,
                     std::shared_ptr<Group> group, XrcHandle *xrcd)
    : AnyQueuePair{domain, attributes, number, xrcd},
      group_{std::move(group)},
      state_{qp_base.qp_num},
      direct_flush_{persisted, this, *group_, *this},
      sender_{qp_base,        cap_,   signal_all_, {.pd = &domain_of(domain), .queue_pair = creation()},
              send_queue_cq_, *this,  *group_,     *this,
              direct_flush_,  placed_},
      access_{{.pd = &domain_of(domain), .queue_pair = creation()}},
      inbox_{qp_base,
             cap_,
             receive_queue_cq_,
             *this,
             *this,
             placed_,
             xrcd != nullptr ? &xrcd->domain() : nullptr},
      durability_{persisted, this},
      receiver_{{.qp = qp_base,
                 .group = *group_,
                 .source = *this,
                 .sender = sender_,
                 .access = access_,
                 .inbox = inbox_,
                 .durability = durability_,
                 .placed = placed_,
                 .state = state_,
                 .owner = *this}} {
    access_.grant(most_access());
    if (inbox_.shared() != nullptr) {
        inbox_.shared()->attach();
    }
    try {
        if (receive_queue_cq_.group() != group_) {
            receive_queue_cq_.serve_also(group_);
        }
    } catch (const std::bad_alloc &) {
        if (inbox_.shared() != nullptr) {
            inbox_.shared()->detach();
        }
        throw;
    }
}

// Ends the connection at once, and waits for the workers that make bytes durable. The queue pair is used
// again only by reset().
void QueuePair::take_down(bool going) {
    std::unique_ptr<Link> link;
    UnreadShare unread_share;
    while (true) {
        const unsigned returned = persists_returned.load(std::memory_order_acquire);
        {
            const base::Lock lock{group_->mutex()};
            base::set_shared(going_, going);
            group_->clear_deadline(*this);
            if (link_) {
                sender_.send_held();
                link = take_link();
                unread_share = std::move(unread_share_);
            }
            if (state_.now() == ConnectionState::Disconnecting && owner_ != nullptr) {
                std::exchange(owner_, nullptr)->connection_ended();  // the owner waits for this call
            }
            state_.on(ConnectionEvent::Ends);
            inbox_.leave_line();
            direct_flush_.cancel();
            if (!durability_.persisting() && !direct_flush_.under_way()) {
                break;
            }
        }
        persists_returned.wait(returned, std::memory_order_acquire);
    }
    if (link) {
        link->finish();
        Engines::instance().drains().add(std::move(link), access_.origin(), std::move(unread_share));
    }
    if (inbox_.shares()) {
        async_events_of(*qp_base.context).forget(&qp_base);
    }
}

void QueuePair::leave() {
    if (connector_ != nullptr) {
        connector_->stop();
    }
    take_down(true);
    forget_completions();
    if (receive_queue_cq_.group() != group_) {
        receive_queue_cq_.stop_serving(group_);
    }
    forget_number();
}

QueuePair::~QueuePair() {
    if (inbox_.shared() != nullptr) {
        inbox_.shared()->detach();
    }
}

bool QueuePair::open_again() {
    int handles = handles_.load(std::memory_order_relaxed);
    while (handles != 0 && !handles_.compare_exchange_weak(handles, handles + 1, std::memory_order_relaxed)) {
    }
    return handles != 0;
}

[[gnu::hot]] int QueuePair::post_sends(ibv_send_wr *request, ibv_send_wr **bad, ChainPart when_bad) {
    int error = sender_.post(request, bad, when_bad == ChainPart::Nothing);
    if (error == Sender::window_change_due) [[unlikely]] {
        error = post_window_changes(bad, when_bad);
    }
    if (sender_.has_no_link()) [[unlikely]] {
        requests_wait();
    }
    return error;
}

// Posts the rest of a chain, from *bad on, whose first request that changes a window is due. A window changes
// when its request is posted, before the earlier ones leave: an access to it needs a key that no message has
// told yet. Its request completes in its turn.
int QueuePair::post_window_changes(ibv_send_wr **bad, ChainPart when_bad) {
    bool open = false;
    if (when_bad == ChainPart::Nothing) {
        if (const int error = sender_.would_take(*bad, open); error != 0) {
            return error;
        }
    }
    for (ibv_send_wr *request = *bad; request != nullptr;) {
        if (!changes_window(static_cast<int>(request->opcode))) {
            const int error = sender_.post(request, bad, false);
            if (error != Sender::window_change_due) {
                return error;
            }
            request = *bad;
        }
        if (const int error = post_window_change(*request); error != 0) {
            *bad = request;
            return error;
        }
        request = request->next;
    }
    return 0;
}

// A request that the queue has no room for, or that is only flushed, changes nothing.
int QueuePair::post_window_change(const ibv_send_wr &request) {
    bool open = false;
    ibv_send_wr alone = request;
    alone.next = nullptr;
    if (const int error = sender_.would_take(&alone, open); error != 0) {
        return error;
    }
    if (open) {
        try {
            const Asker by{.pd = &domain_of(*qp_base.pd), .queue_pair = creation()};
            const auto &wanted = request.bind_mw;
            if (request.opcode == IBV_WR_BIND_MW && wanted.mw == nullptr) {
                return EINVAL;
            }
            const auto changed =
                request.opcode == IBV_WR_BIND_MW
                    ? static_cast<MemoryWindow *>(wanted.mw)->bind(by, wanted.bind_info, wanted.rkey)
                    : MemoryWindow::invalidate(by, request.invalidate_rkey);
            if (!changed) {
                return changed.error().number;
            }
        } catch (const std::bad_alloc &) {
            return ENOMEM;
        }
    }
    return sender_.post_done(request);
}

[[gnu::hot]] int QueuePair::post_receives(ibv_recv_wr *request, ibv_recv_wr **bad) {
    bool starved = false;
    const int error = inbox_.post(request, bad, starved);
    if (starved || is_over(state_.get())) {
        const base::Lock lock{group_->mutex()};
        if (connected()) {
            go_on_or_end(receiver_.receives_posted());
        } else if (is_over(state_.now())) {
            inbox_.flush();
        }
    }
    return error;
}

[[gnu::hot]] void QueuePair::release(CompletionQueue::WorkQueue queue, unsigned slots) {
    if (queue == CompletionQueue::WorkQueue::Receive) {
        inbox_.release(slots);
    } else {
        sender_.release(slots);
    }
}

void QueuePair::start(std::unique_ptr<Link> link, const tcp::Address &peer,
                      const ConnectionParameters &parameters, ConnectionOwner *owner) {
    // The group's lock is released last, because a thread that waits for it may then destroy this queue pair.
    const auto keeps_group = group_;
    const base::Lock lock{group_->mutex()};
    if (going_.load(std::memory_order_relaxed)) {
        owner->connection_ended();  // the thread that destroys it only waits until every Hold is gone
        return;
    }
    const bool given_up = state_.now() != ConnectionState::Idle;
    begin_connection(std::move(link), peer, parameters, owner);
    await_or_tell_first_fpdu();
    if (given_up) {
        end(ending_of({.by = EndReason::GivenUp}));
    }
    group_->let_rest(*this);
}

bool QueuePair::start_by_number(std::unique_ptr<Link> &link, const tcp::Address &peer,
                                const ConnectionParameters &parameters, base::Clock::time_point until) {
    const auto keeps_group = group_;
    if (!group_->mutex().try_lock_until(until)) {
        return false;
    }
    const base::Lock lock{group_->mutex(), base::adopt};
    if (!wants_link()) {
        link.reset();
        return true;
    }
    begin_connection(std::move(link), peer, parameters, nullptr);
    await_or_tell_first_fpdu();
    group_->let_rest(*this);
    return true;
}

// The responder sends nothing before the initiator's first FPDU (RFC 5044 section 7.1.2). When that FPDU is
// promised, ESTABLISHED waits for it too, within a time limit. An initiator that promised none may be one
// that only receives, and both programs would wait for each other.
void QueuePair::await_or_tell_first_fpdu() {
    if (state_.now() == ConnectionState::AwaitsPromised) {
        group_->set_deadline(*this, base::Clock::now() + limits::handshake_timeout);
    } else if (owner_ != nullptr) {
        owner_->connection_established();
    }
}

void QueuePair::begin_connection(std::unique_ptr<Link> link, const tcp::Address &peer,
                                 const ConnectionParameters &parameters, ConnectionOwner *owner) {
    // The steps that need memory come first; when one fails, nothing has begun.
    sender_.reserve(parameters);
    UnreadShare unread_share{base::origin_of(peer)};
    if (unread_share.bytes() < limits::most_unread_bytes) {
        link->limit_unsent(unread_share.bytes());
    }
    group_->spread();
    group_->add(*this, link->descriptor(), link->watched({.readable = true}));
    link_ = std::move(link);
    set_link_name(link_->name());
    BASE_LOG_PEER(Info, "connection with %s: queue pair %u, link %s%s", tcp::text_of(peer).c_str(),
                  qp_base.qp_num, link_->name(),
                  parameters.soft_peer ? "" : ", the peer is another kind of device");
    unread_share_ = std::move(unread_share);
    owner_ = owner;
    access_.begin(peer);
    // The domain of XRC changes the memory that its peers may access with its shared queues.
    if (within_host_of_environment() == WithinHost::Direct && xrcd() == nullptr) {
        const Link::SharedPieces pieces = link_->shared_pieces();
        access_.offer({pieces.own, pieces.peers}, group_->engine().thread(), link_->descriptor(),
                      pieces.process);
    }
    placed_.begin(parameters.acknowledged);
    inbox_.begin();
    receiver_.begin(*link_, parameters);
    state_.on(parameters.initiator          ? ConnectionEvent::BeginsInitiator
              : parameters.ready_to_receive ? ConnectionEvent::BeginsPromised
                                            : ConnectionEvent::BeginsResponder);
    // This comes before the program is told, so that a program which connects again has already sent its
    // first FPDU.
    sender_.begin(*link_, access_.text(), parameters);
    look_at_peer();
}

void QueuePair::forget_owner(const ConnectionOwner &owner) {
    const base::Lock lock{group_->mutex()};
    if (owner_ == &owner) {
        owner_ = nullptr;
    }
}

std::unique_ptr<Link> QueuePair::take_link() {
    inbox_.leave_line();
    group_->remove(*this, link_->descriptor());
    group_->clear_deadline(patience_);
    if (const int timer = sender_.faults_timer(); timer >= 0) {
        group_->change(*this, timer, {.readable = true}, {});
    }
    access_.withdraw();
    sender_.leave_link();
    receiver_.leave_link();
    return std::move(link_);
}

}  // namespace soft
