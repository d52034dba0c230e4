// SPDX-License-Identifier: BSD-3-Clause
// soft/transport/sender: posting, turns and answers; sender_link.cpp has batches and the link.
#include "soft/transport/sender.hpp"

#include <algorithm>
#include <cerrno>

#include "base/log.hpp"
#include "base/shared_value.hpp"
#include "soft/ground/limits.hpp"
#include "soft/queues/any_queue_pair.hpp"
#include "softrdma.h"

namespace soft {

namespace {

// Between two soft devices FPDUs are as long as possible. Other peers expect an FPDU not longer than a TCP
// segment (RFC 5044 section 4.5), unless that has no room for any payload.
constexpr std::size_t segment_overhead_bytes = wire::untagged_bytes + wire::fpdu_crc_bytes;
constexpr std::size_t payload_alignment = 64;

// A sender holds requests back in a burst: when more than so many were posted since the program has looked
// for completions, or has polled all of them, or before that. The calls of the first ones take as long as the
// engine's thread to wake up, so the last one of a burst is there in less than twice the time that it would
// take without holding.
constexpr unsigned posts_of_a_burst = 16;
// A sender holds at most so many requests. A call of the kernel's costs as much as some fifty of them: 128 of
// 8 bytes in place of 64 are 5.5 M/s in place of 4.0 over TCP. A send queue with fewer places is full before.
constexpr std::size_t most_held = 128;

constexpr unsigned soft_operations = SOFTRDMA_OPERATION_FLUSH | SOFTRDMA_OPERATION_ATOMIC_WRITE |
                                     SOFTRDMA_OPERATION_IMMEDIATE | SOFTRDMA_OPERATION_ATOMIC;

std::size_t payload_bytes(bool soft_peer, const Link &link) {
    const std::size_t whole =
        soft_peer ? wire::max_segment_bytes : std::min(link.max_segment(), wire::max_segment_bytes);
    const std::size_t room = std::max(whole, segment_overhead_bytes + payload_alignment);
    return (room - segment_overhead_bytes) / payload_alignment * payload_alignment;
}

}  // namespace

Sender::Sender(ibv_qp &qp, const ibv_qp_cap &cap, bool signal_all, const Asker &peer,
               CompletionQueue &completions, Completing &completing, Group &group, Source &source,
               DirectFlush &flush, const Placed &placed)
    : qp_{qp},
      cap_{cap},
      group_{group},
      source_{source},
      placed_{placed},
      queue_{cap, signal_all, completions, completing, qp.qp_num},
      requests_{domain_of(*qp.pd), queue_, batch_, flush},
      responses_{peer, batch_} {
    if (const Faults *const faults = Faults::active()) {
        requests_.use_faults(*faults, qp.qp_num);
        base::set_shared(wants_turn_, true);
    }
}

// Counts a post, and returns whether it is one of a burst. The first one since the program has looked leaves
// at once, because the link may be idle.
[[gnu::hot, gnu::always_inline]] inline bool Sender::count_post() {
    if (const unsigned looks = group_.looks(); looks != looks_seen_ || queue_.is_unused()) {
        looks_seen_ = looks;
        posts_before_look_ = posts_since_look_;
        posts_since_look_ = 0;
    }
    const unsigned posts = ++posts_since_look_;
    return posts > posts_of_a_burst || (posts > 1 && posts_before_look_ > posts_of_a_burst);
}

// Puts the requests into the batch, and leaves it to later ones, to the next look for completions, or to the
// engine to send it. Returns false when it has to be sent now.
[[gnu::hot, gnu::always_inline]] inline bool Sender::hold() {
    if (!may_transmit_ || responses_.has_next() || owes_acknowledgement() || !(holds_ || prepare_to_hold())) {
        return false;
    }
    while (queue_.has_next()) {
        if (!add_segment(false) || !batch_.has_room()) {
            return false;
        }
    }
    if (batch_.empty() || queue_.unsent() >= most_held) {
        return false;
    }
    if (!holds_) {
        holds_ = true;
        tell_turn();
        return group_.tell_held(source_);
    }
    return true;
}

// Stays true while requests are held: a broken link ends that, and transmit() alone finds the link full.
bool Sender::prepare_to_hold() {
    return may_hold_ && !broken_ && !full_ &&
           (batch_.empty() ? batch_.make_room_for_many() : batch_.has_room());
}

[[gnu::hot, gnu::flatten]] int Sender::post(ibv_send_wr *request, ibv_send_wr **bad, bool all_or_nothing) {
    const base::Lock lock{mutex_};
    ibv_send_wr *const chain = request;
    const std::size_t before = queue_.size();
    const bool in_burst = count_post();
    bool may_wait = in_burst;
    int error = 0;
    for (; request != nullptr; request = request->next) {
        std::uint64_t bytes = 0;
        error = check(*request, bytes);
        if (error == 0) {
            error = enqueue(*request, static_cast<std::uint32_t>(bytes), all_or_nothing, may_wait);
        }
        if (error != 0) [[unlikely]] {
            *bad = request;
            if (all_or_nothing) {
                queue_.take_back(queue_.size() - before);
                *bad = error == window_change_due ? chain : request;
            }
            break;
        }
    }
    if (state_ != State::Open) {
        queue_.flush(IBV_WC_WR_FLUSH_ERR);
        return error;
    }
    const std::size_t posted = queue_.size() - before;
    if (may_wait && hold()) {
        return error;  // the batch has copies of all
    }
    requests_.set_in_burst(may_wait);
    transmit();
    batch_.keep();
    if (queue_.has_next()) [[unlikely]] {
        if (ibv_send_wr *const refused = queue_.keep_waiting(chain, posted)) {
            *bad = refused;
            return ENOMEM;
        }
    }
    return error;
}

[[gnu::noinline]] bool Sender::require_agreed(unsigned operation, const char *name) const {
    if ((peer_operations_.load(std::memory_order_relaxed) & operation) != 0) {
        return true;
    }
    BASE_LOG(Error, "%s cannot be posted: %s does not have it, only another soft device has", name,
             peer_.c_str());
    return false;
}

// Checks a request when it is posted. Keys and memory are checked when its turn comes.
[[gnu::hot, gnu::always_inline]] inline int Sender::check(const ibv_send_wr &request,
                                                          std::uint64_t &bytes) const {
    const int opcode = static_cast<int>(request.opcode);
    if (state_ == State::Idle || static_cast<unsigned>(request.num_sge) > cap_.max_send_sge) {
        return EINVAL;  // a negative number is a large one here
    }
    bytes = total_bytes(request);
    const bool is_inline = (request.send_flags & IBV_SEND_INLINE) != 0;
    if (bytes > limits::max_message_bytes ||
        (is_inline && (is_answered(opcode) || bytes > cap_.max_inline_data))) {
        return EINVAL;
    }
    if (opcode == IBV_WR_RDMA_WRITE) [[likely]] {
        return 0;
    }
    switch (opcode) {
        case IBV_WR_SEND:
        case IBV_WR_SEND_WITH_INV:
            return 0;
        case IBV_WR_RDMA_READ:
            if (!is_reliable(qp_.qp_type)) {
                return EINVAL;
            }
            return request.num_sge > limits::max_sge_rd || parameters_.ord == 0 ? EINVAL : 0;
        case IBV_WR_RDMA_WRITE_WITH_IMM:
        case IBV_WR_SEND_WITH_IMM:
            return require_agreed(SOFTRDMA_OPERATION_IMMEDIATE, "immediate data") ? 0 : EOPNOTSUPP;
        case IBV_WR_ATOMIC_WRITE:
            if (!require_agreed(SOFTRDMA_OPERATION_ATOMIC_WRITE, "ATOMIC WRITE")) {
                return EOPNOTSUPP;
            }
            return bytes != wire::atomic_write_bytes ||
                           request.wr.rdma.remote_addr % wire::atomic_write_bytes != 0
                       ? EINVAL
                       : 0;
        case IBV_WR_ATOMIC_CMP_AND_SWP:
        case IBV_WR_ATOMIC_FETCH_AND_ADD:
            if (!require_agreed(SOFTRDMA_OPERATION_ATOMIC, "an atomic operation")) {
                return EOPNOTSUPP;
            }
            return !is_reliable(qp_.qp_type) || bytes != wire::atomic_bytes ||
                           request.wr.atomic.remote_addr % wire::atomic_bytes != 0 || parameters_.ord == 0
                       ? EINVAL
                       : 0;
        case IBV_WR_BIND_MW:
        case IBV_WR_LOCAL_INV:
            return window_change_due;
        case SOFTRDMA_WR_FLUSH:
            if (!require_agreed(SOFTRDMA_OPERATION_FLUSH, "FLUSH")) {
                return EOPNOTSUPP;
            }
            if (request.imm_data != SOFTRDMA_FLUSH_GLOBAL && request.imm_data != SOFTRDMA_FLUSH_PERSISTENT) {
                return EINVAL;
            }
            return !is_reliable(qp_.qp_type) || request.num_sge > 1 || parameters_.ord == 0 ? EINVAL : 0;
        default:
            return EOPNOTSUPP;
    }
}

// Inline data that may take several segments is copied at once, because a request whose first segments are
// built cannot be removed again. `may_wait` becomes false when the request is not one that hold() may leave
// to later ones.
[[gnu::hot, gnu::always_inline]] inline int Sender::enqueue(const ibv_send_wr &request, std::uint32_t bytes,
                                                            bool all_or_nothing, bool &may_wait) {
    const bool is_inline = (request.send_flags & IBV_SEND_INLINE) != 0;
    const bool is_large = bytes > Batch::max_copied_bytes;
    if (queue_.full() || (is_inline && is_large && !batch_.make_room_to_keep())) {
        return ENOMEM;
    }
    SendRequest &pushed = queue_.push(request, bytes);
    if (is_xrc(qp_.qp_type)) [[unlikely]] {
        if (qp_.qp_type == IBV_QPT_XRC_RECV) {
            queue_.take_back(1);
            return EINVAL;
        }
        pushed.queue = request.qp_type.xrc.remote_srqn;
    }
    if (is_inline && (all_or_nothing || (is_large && !requests_.is_whole(bytes))) && !queue_.keep(pushed)) {
        queue_.take_back(1);
        return ENOMEM;
    }
    if (is_large || pushed.needs_answer) {
        may_wait = false;
    }
    return 0;
}

int Sender::would_take(const ibv_send_wr *chain, bool &open) const {
    const base::Lock lock{mutex_};
    open = state_ == State::Open;
    std::size_t count = 0;
    for (; chain != nullptr; chain = chain->next) {
        std::uint64_t bytes = 0;
        const int error = check(*chain, bytes);
        if (error != 0 && error != window_change_due) {
            return error;
        }
        ++count;
    }
    return queue_.has_room_for(count) ? 0 : ENOMEM;
}

int Sender::post_done(const ibv_send_wr &request) {
    const base::Lock lock{mutex_};
    if (state_ == State::Idle || queue_.full()) {
        return state_ == State::Idle ? EINVAL : ENOMEM;
    }
    ibv_send_wr done{};
    done.wr_id = request.wr_id;
    done.opcode = request.opcode;
    done.send_flags = request.send_flags & ~unsigned{IBV_SEND_INLINE};
    queue_.push(done, 0);
    if (state_ == State::Open) {
        transmit();
    } else {
        queue_.flush(IBV_WC_WR_FLUSH_ERR);
    }
    return 0;
}

Sender::Queried Sender::query() const {
    const base::Lock lock{mutex_};
    return {.state = qp_.state, .parameters = parameters_};
}

void Sender::reserve(const ConnectionParameters &parameters) {
    const base::Lock lock{mutex_};
    responses_.reserve(parameters.ird);
    if (parameters.crc) {
        batch_.use_crc();
    }
}

void Sender::begin(Link &link, const tcp::Text &peer, const ConnectionParameters &parameters) {
    const base::Lock lock{mutex_};
    const std::uint16_t ord = parameters.by_number ? parameters_.ord : parameters.ord;
    link_ = &link;
    peer_ = peer;
    parameters_ = parameters;
    parameters_.ord = ord;
    interest_ = {.readable = true};
    may_transmit_ = response_turn_ = full_ = holds_ = false;
    told_ = placed_at_end_ = {};
    rounds_of_taker_ = 0;
    queue_.begin(parameters.acknowledged);
    broken_.reset();
    base::set_shared(has_no_link_, false);
    base::set_shared(wants_turn_, requests_.faults() != nullptr);
    may_hold_ = link.gains_by_batches() && requests_.faults() == nullptr;
    const std::size_t max_payload = payload_bytes(parameters.soft_peer, link);
    requests_.begin(link, max_payload, ord, parameters.crc);
    responses_.begin(max_payload);
    base::set_shared(peer_operations_, parameters.soft_peer ? soft_operations : 0U,
                     std::memory_order_release);
    if (!parameters.by_number) {
        qp_.state = IBV_QPS_RTS;
        state_ = State::Open;
    }
    if (const RequestFaults *const faults = requests_.faults()) {
        group_.change(source_, faults->timer(), {}, {.readable = true});
    }
    if (parameters.initiator) {
        may_transmit_ = true;
        ready_to_receive_due_ = parameters.ready_to_receive;
        transmit();
    }
}

void Sender::allow() {
    const base::Lock lock{mutex_};
    may_transmit_ = true;
    transmit();
}

void Sender::give_up(ibv_wc_status oldest) {
    const base::Lock lock{mutex_};
    qp_.state = IBV_QPS_ERR;
    state_ = State::Ended;
    base::set_shared(has_no_link_, false);
    queue_.flush(oldest);
}

void Sender::set_state(ibv_qp_state state) {
    const base::Lock lock{mutex_};
    qp_.state = state;
}

void Sender::open(std::uint16_t most_awaiting) {
    const base::Lock lock{mutex_};
    qp_.state = IBV_QPS_RTS;
    state_ = State::Open;
    parameters_.ord = most_awaiting;
    requests_.set_most_awaiting(most_awaiting);
    base::set_shared(peer_operations_, soft_operations, std::memory_order_release);
    base::set_shared(has_no_link_, link_ == nullptr);
}

void Sender::lose_link(bool drops) {
    const base::Lock lock{mutex_};
    if (drops) {
        queue_.drop();
    }
    requests_.leave_link();
    link_ = nullptr;
    may_transmit_ = full_ = false;
    drop_batch();
    base::set_shared(has_no_link_, state_ == State::Open);
}

bool Sender::waits_for_link() const {
    const base::Lock lock{mutex_};
    return state_ == State::Open && link_ == nullptr && !queue_.empty();
}

void Sender::drop_requests() {
    const base::Lock lock{mutex_};
    queue_.drop();
}

void Sender::reset() {
    const base::Lock lock{mutex_};
    qp_.state = IBV_QPS_RESET;
    state_ = State::Idle;
    parameters_ = {};
    may_transmit_ = false;
    broken_.reset();
    drop_batch();
    queue_.reset();
    base::set_shared(has_no_link_, false);
}

void Sender::end(ibv_wc_status oldest, bool reads_on) {
    const base::Lock lock{mutex_};
    state_ = State::Ended;
    qp_.state = IBV_QPS_ERR;
    may_transmit_ = false;
    drop_batch();
    if (RequestFaults *const faults = requests_.faults()) {
        faults->stop();
    }
    queue_.flush(oldest);
    requests_.forget();
    set_interest({.readable = reads_on});
}

void Sender::leave_link() {
    const base::Lock lock{mutex_};
    requests_.leave_link();
    link_ = nullptr;
    may_transmit_ = false;  // a program may post until the queue pair has its next state
}

Sender::Turn Sender::take_turn() {
    const base::Lock lock{mutex_};
    bool readable = true;
    const bool broken = broken_.has_value();
    if (full_) {
        const Link::Ready ready = link_->ready();
        full_ = !ready.writable;
        readable = ready.readable;
    }
    const bool delay_is_over = requests_.faults() != nullptr && requests_.faults()->delay_is_over();
    if (interest_.writable || holds_ || delay_is_over) {
        transmit();
    }
    return {.readable = readable,
            .broken = broken,
            .all_sent = queue_.all_sent() && batch_.empty() && !broken_,
            .gives_up_at = full_ ? link_->gives_up_at() : base::Clock::time_point::max()};
}

[[gnu::hot]] void Sender::transmit_ready() {
    const base::Lock lock{mutex_};
    transmit();
}

void Sender::send_held() {
    const base::Lock lock{mutex_};
    if (holds_) {
        transmit();
    }
}

std::optional<Broken> Sender::broken() {
    const base::Lock lock{mutex_};
    if (!broken_) {
        return std::nullopt;
    }
    return Broken{.by = broken_->by, .error = broken_->error};
}

void Sender::fail(int error) {
    const base::Lock lock{mutex_};
    break_link({.by = EndReason::Link, .error = error});
}

[[gnu::hot]] void Sender::wait_for_posts() const {
    const base::Lock lock{mutex_};
}

bool Sender::owes_all_it_may() const {
    const base::Lock lock{mutex_};
    return responses_.full();
}

void Sender::owe(Response response) {
    const base::Lock lock{mutex_};
    rounds_of_taker_ = 0;  // the peer asks for something too
    response.posted = queue_.posted();
    responses_.push(response);
}

SendRequest *Sender::oldest_awaiting() {
    const base::Lock lock{mutex_};
    return queue_.oldest_awaiting();
}

void Sender::answered(SendRequest &request) {
    const base::Lock lock{mutex_};
    queue_.answered(request);
    after_retiring();
    transmit();
}

// Returns whether the program may look only at its memory from now on, for what its peer writes. A peer that
// has placed nothing during the last rounds, each of which ended with all requests acknowledged, is one that
// only takes: the program goes on to post, and the engine would have woken for its acknowledgements.
bool Sender::may_wait_for_peer() {
    constexpr unsigned most_rounds = 16;
    const auto placed = placed_.now();
    rounds_of_taker_ = std::exchange(placed_at_end_, placed) == placed ? rounds_of_taker_ + 1 : 0;
    return rounds_of_taker_ <= most_rounds;
}

// A request that fails waits until all earlier ones are done.
bool Sender::acknowledged(const wire::Acknowledgement &placed) {
    const base::Lock lock{mutex_};
    if (queue_.ends_with(placed) && may_wait_for_peer()) {
        group_.may_be_left();  // before the program gets the completions
    }
    if (!queue_.acknowledge(placed)) {
        return false;
    }
    after_retiring();
    if (queue_.has_next() && !holds_) {
        transmit();
    }
    return true;
}

bool Sender::all_acknowledged() const {
    const base::Lock lock{mutex_};
    return parameters_.acknowledged && queue_.empty();
}

bool Sender::finish_when_sent() {
    const base::Lock lock{mutex_};
    if (holds_) {
        transmit();
    }
    if (queue_.empty()) {
        return false;
    }
    queue_.finish_when_sent();
    return true;
}

bool Sender::only_has_to_send() const {
    const base::Lock lock{mutex_};
    return queue_.only_has_to_send();
}

}  // namespace soft
