// SPDX-License-Identifier: BSD-3-Clause
// carry_device/copy: what is written to the peer's copy, and in which order.
#include "carry_device/copy.hpp"

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <ctime>
#include <utility>

#include "base/clock.hpp"
#include "base/own_pages.hpp"
#include "carry/shake.hpp"

namespace carry_device {

using carry::Direction;
using carry::Link;

namespace {

// A completion says how many operations are over, and which turn the peer's copy has.
std::uintptr_t context_of(std::uint32_t operations, std::uint32_t turn) {
    return std::uintptr_t{turn} << 32 | operations;
}

}  // namespace

// Operations that are posted together, in order.
class Copy::Batch {
public:
    static constexpr std::size_t most = 24;

    explicit Batch(Copy &copy) : copy_{copy} {}
    // From the same place of this end's copy, which does not change until the peer has it.
    void write_from(const void *where, std::size_t bytes) {
        rpma_op &op = next(RPMA_OP_WRITE);
        op.local = copy_.memory_.get();
        op.local_offset = op.remote_offset = offset(where);
        op.len = bytes;
    }
    // These bytes, to the place of `where`.
    void write(const void *where, const void *bytes, std::size_t size) {
        rpma_op &op = next(RPMA_OP_WRITE);
        std::memcpy(room_.data() + used_, bytes, size);
        op.bytes = room_.data() + used_;
        used_ += size;
        op.remote_offset = offset(where);
        op.len = size;
    }
    void flush(const void *where) {
        rpma_op &op = next(RPMA_OP_FLUSH);
        op.remote_offset = offset(where);
        op.len = sizeof(std::uint64_t);
        op.flush_type = RPMA_FLUSH_TYPE_VISIBILITY;
    }
    void send() {
        rpma_op &op = next(RPMA_OP_SEND);
        op.remote = nullptr;
    }
    [[nodiscard]] std::size_t count() const { return count_; }
    [[nodiscard]] std::span<rpma_op> operations() { return {operations_.data(), count_}; }

private:
    [[nodiscard]] std::size_t offset(const void *where) const {
        return static_cast<std::size_t>(static_cast<const std::byte *>(where) -
                                        reinterpret_cast<const std::byte *>(copy_.link_));
    }
    rpma_op &next(int type) {
        rpma_op &op = operations_[count_++];
        op = {};
        op.type = type;
        op.flags = RPMA_F_COMPLETION_ON_ERROR;
        op.remote = copy_.peers_.get();
        return op;
    }

    Copy &copy_;
    std::array<rpma_op, most> operations_;
    std::size_t count_ = 0;
    std::array<std::byte, 256> room_;
    std::size_t used_ = 0;
};

// A Copy's link, in a list of all. A forked child has the list at any moment of its parent's threads, so an
// entry stays in it, and is used again.
struct Copy::Mapping {
    std::atomic<Link *> link;
    Mapping *next;

    static inline std::atomic<Mapping *> first{nullptr};

    static Mapping *of(Link *link) {
        for (Mapping *one = first; one != nullptr; one = one->next) {
            if (Link *none = nullptr; one->link.compare_exchange_strong(none, link)) {
                return one;
            }
        }
        auto *const made = new Mapping{.link = link, .next = first};
        while (!first.compare_exchange_weak(made->next, made)) {
        }
        return made;
    }
};

bool Copy::share_no_more() {
    for (const Mapping *one = Mapping::first; one != nullptr; one = one->next) {
        Link *const link = one->link;
        if (link != nullptr && !base::take_own_pages(link, sizeof(Link), sizeof(Link))) {
            return false;
        }
    }
    return true;
}

Copy::Copy(std::uint32_t place, const carry::FourTuple &connection, const Proofs &proofs, int agents_bell)
    : place_{place}, side_{connection.side}, proofs_{proofs}, agents_bell_{agents_bell} {
    void *const memory =
        mmap(nullptr, sizeof(Link), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    link_ = memory != MAP_FAILED ? static_cast<Link *>(memory) : nullptr;
    if (link_ != nullptr) {
        mapping_ = Mapping::of(link_);
        link_->marked = Link::mark;
        link_->connection = connection;
        link_->maker = 1;
    }
}

Copy::~Copy() {
    conn_.reset();
    peers_.reset();
    memory_.reset();
    if (link_ != nullptr) {
        mapping_->link = nullptr;
        (void)munmap(link_, sizeof(Link));
    }
}

bool Copy::enter(rpma_peer *peer) {
    constexpr int usage = RPMA_MR_USAGE_RECV | RPMA_MR_USAGE_WRITE_SRC | RPMA_MR_USAGE_WRITE_DST |
                          RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY;
    rpma_mr_local *memory = nullptr;
    if (link_ == nullptr || rpma_mr_reg(peer, link_, sizeof(Link), usage, &memory) != 0) {
        return false;
    }
    memory_.reset(memory);
    return true;
}

Hello Copy::hello() const {
    Hello hello;
    hello.proof = proofs_.own;
    hello.port = own_spare_.port;
    hello.key = own_spare_.key;
    hello.side = static_cast<std::uint8_t>(side_);
    std::size_t size = 0;
    if (rpma_mr_get_descriptor_size(memory_.get(), &size) == 0 && size <= sizeof(hello.descriptor)) {
        hello.size = static_cast<std::uint8_t>(size);
        (void)rpma_mr_get_descriptor(memory_.get(), hello.descriptor);
    }
    return hello;
}

bool Copy::connect(Request request) {
    // A message has no bytes, but siw refuses a receive that has no room.
    std::array<rpma_recv_op, receives> all{};
    all.fill({.op_context = nullptr,
              .local = memory_.get(),
              .offset = offsetof(Link, marked),
              .len = 1,
              .reserved = 0});
    if (rpma_conn_req_recv_many(request.get(), all.data(), all.size(), nullptr) != 0) {
        return false;
    }
    Hello own = hello();
    const rpma_conn_private_data data{.ptr = &own, .len = sizeof(own)};
    rpma_conn_req *raw = request.release();
    rpma_conn *conn = nullptr;
    if (rpma_conn_req_connect(&raw, &data, &conn) != 0) {
        return false;
    }
    conn_.reset(conn);
    return rpma_conn_get_cq(conn, &queue_) == 0 && rpma_conn_get_rcq(conn, &receive_queue_) == 0 &&
           receive_queue_ != nullptr;
}

bool Copy::take_hello(const rpma_conn_private_data &data) {
    Hello theirs;
    if (data.ptr == nullptr || data.len < sizeof(theirs)) {
        return false;
    }
    std::memcpy(&theirs, data.ptr, sizeof(theirs));
    rpma_mr_remote *memory = nullptr;
    std::size_t size = 0;
    if (theirs.mark != Hello{}.mark || theirs.proof != proofs_.peers || theirs.side != 1 - side_ ||
        theirs.size > sizeof(theirs.descriptor) ||
        rpma_mr_remote_from_descriptor(theirs.descriptor, theirs.size, &memory) != 0) {
        return false;
    }
    peers_.reset(memory);
    peers_spare_ = {.key = theirs.key, .port = theirs.port};
    return rpma_mr_remote_get_size(memory, &size) == 0 && size == sizeof(Link);
}

// The device of the end that was asked is silent until the other one has sent something.
bool Copy::begin() {
    if (side_ == 0) {
        return true;
    }
    const std::lock_guard lock{mutex_};
    ++told_;
    open_ += 1;
    return rpma_send(conn_.get(), nullptr, 0, 0, RPMA_F_COMPLETION_ALWAYS,
                     reinterpret_cast<void *>(context_of(1, 0))) == 0;
}

bool Copy::hear() {
    if (has_lost_device()) {
        const std::lock_guard lock{mutex_};
        collect();
        return std::exchange(has_message_, false);
    }
    bool any = false;
    std::array<ibv_wc, 16> got;
    int count = 0;
    while (rpma_cq_get_wc(receive_queue_, static_cast<int>(got.size()), got.data(), &count) == 0) {
        for (const ibv_wc &one : std::span{got}.first(static_cast<std::size_t>(count))) {
            if (one.status != IBV_WC_SUCCESS ||
                rpma_recv(conn_.get(), memory_.get(), offsetof(Link, marked), 1, nullptr) != 0) {
                lose_device();
                return true;
            }
            link_->directions[1 - side_].heard.fetch_add(1);
            any = true;
        }
    }
    return any;
}

void Copy::lose_device() {
    if (!has_lost_device_.exchange(true)) {
        wake_agent();
    }
}

// The device's objects close descriptors, for which the program's library takes locks of its own. A thread
// that has one of those may push.
void Copy::leave_device() {
    LocalMemory memory;
    RemoteMemory peers;
    Conn conn;  // ends first
    {
        const std::lock_guard lock{mutex_};
        has_lost_device_ = true;
        conn = std::move(conn_);
        peers = std::move(peers_);
        memory = std::move(memory_);
        queue_ = receive_queue_ = nullptr;
        open_ = unasked_ = 0;
    }
}

// A write that the device has not placed is repeated: the bytes that the peer is not known to have taken, and
// all words. What it has placed already is the same.
void Copy::go_on(Watched fd) {
    const std::lock_guard lock{mutex_};
    spare_ = std::make_unique<Spare>(std::move(fd), *link_);
    pushed_ = {};
    pushed_.put = link_->directions[side_].taken.load();
    owes_message_ = true;
    wants_back_ = true;
    has_message_ = true;
    push_all();
}

bool Copy::has_spare() {
    const std::lock_guard lock{mutex_};
    return spare_ != nullptr;
}

void Copy::lose() {
    has_lost_device_ = true;
    is_lost_.store(true, std::memory_order_release);
}

bool Copy::catch_up() {
    const std::lock_guard lock{mutex_};
    if (spare_ != nullptr && !is_lost() && !spare_->is_quiet()) {
        collect();
    }
    if (is_late_ || owes_message_) {
        push_all();
    }
    return (is_late_ || owes_message_ || (spare_ != nullptr && !spare_->is_quiet())) && !is_lost();
}

bool Copy::is_quiet() {
    const std::lock_guard lock{mutex_};
    collect();
    if (is_late_) {
        push_all();
    }
    if (is_lost() || is_late_) {
        return is_lost();
    }
    // A request without a completion is over when a later one is.
    return spare_ != nullptr ? spare_->is_quiet() : !has_lost_device() && open_ == unasked_;
}

void Copy::push() {
    const std::lock_guard lock{mutex_};
    push_all();
}

void Copy::push_and_tell() {
    const std::lock_guard lock{mutex_};
    owes_message_ = true;
    push_all();
    if (owes_message_ && !is_lost()) {
        wake_agent();
    }
}

// The agent of the peer takes as many messages as it has posted receives for.
bool Copy::may_tell() const {
    constexpr std::uint32_t most = receives - 4;
    return spare_ != nullptr || told_ - link_->directions[side_].heard.load() < most;
}

// Both ends write the state: the maker of the link opens it after the other end has joined. A maker that uses
// a spare has seen that, but the other end may not know yet that the link is open. If it said once more that
// it has joined, the maker's copy would go back.
bool Copy::say_state() const {
    return spare_ == nullptr || link_->maker == side_;
}

bool Copy::settles_turn() {
    for (;;) {
        {
            const std::lock_guard lock{mutex_};
            const std::uint32_t turn = link_->directions[side_].turn.load();
            collect();
            if (is_lost() || turn % 2 == 0 || settled_ == turn) {
                return !is_lost();
            }
            push_all();
        }
        wait_for_peer();
    }
}

// A device answers in microseconds. The agents take longer to find each other.
void Copy::wait_for_peer() const {
    if (has_lost_device()) {
        constexpr timespec some{.tv_sec = 0, .tv_nsec = 100'000};
        (void)nanosleep(&some, nullptr);
    } else {
        (void)sched_yield();
    }
}

bool Copy::has_settled_turn() {
    constexpr std::chrono::microseconds looks_for{200};
    for (const auto until = base::Clock::now() + looks_for;;) {
        {
            const std::lock_guard lock{mutex_};
            const std::uint32_t turn = link_->directions[side_].turn.load();
            collect();
            if (turn % 2 == 0 || settled_ == turn || is_lost()) {
                return !is_lost();
            }
            if (base::Clock::now() > until) {
                awaits_turn_ = true;
                wake_agent();
                return false;
            }
        }
        (void)sched_yield();
    }
}

bool Copy::awaits_turn() {
    const std::lock_guard lock{mutex_};
    return awaits_turn_;
}

bool Copy::settle_late() {
    const std::lock_guard lock{mutex_};
    if (!awaits_turn_) {
        return false;
    }
    collect();
    const std::uint32_t turn = link_->directions[side_].turn.load();
    awaits_turn_ = !is_lost() && turn % 2 != 0 && settled_ != turn;
    return !awaits_turn_;
}

void Copy::wake_agent() const {
    const std::uint64_t one = 1;
    (void)!write(agents_bell_, &one, sizeof(one));
}

void Copy::collect() {
    if (spare_ != nullptr && !is_lost()) {
        if (!spare_->move()) {
            lose();
            wake_agent();
        }
        if (spare_->settled_turn() == link_->directions[side_].turn.load()) {
            settled_ = spare_->settled_turn();
        }
        if (spare_->takes_message()) {
            has_message_ = true;
            wake_agent();
        }
    }
    std::array<ibv_wc, 16> got;
    int count = 0;
    while (queue_ != nullptr && !has_lost_device() && open_ != 0 &&
           rpma_cq_get_wc(queue_, static_cast<int>(got.size()), got.data(), &count) == 0) {
        for (const ibv_wc &one : std::span{got}.first(static_cast<std::size_t>(count))) {
            if (one.status != IBV_WC_SUCCESS) {
                lose_device();
                return;
            }
            open_ -= static_cast<std::uint32_t>(one.wr_id);
            if (const auto turn = static_cast<std::uint32_t>(one.wr_id >> 32); turn != 0) {
                settled_ = turn;
            }
        }
    }
}

// The bytes that were put since the last push lie there until the peer has taken them.
void Copy::add_ring(Batch &batch, std::uint64_t put) const {
    const Direction &direction = link_->directions[side_];
    const std::uint64_t origin = direction.origin.load(std::memory_order_relaxed);
    for (std::uint64_t at = pushed_.put; at < put;) {
        const std::uint64_t place = (at - origin) % Direction::ring_bytes;
        const std::uint64_t size = std::min(put - at, Direction::ring_bytes - place);
        batch.write_from(direction.ring + place, size);
        at += size;
    }
}

bool Copy::has_room() const {
    return spare_ != nullptr ? !spare_->is_full() : sends - open_ >= Batch::most;
}

bool Copy::post(Batch &batch, std::uint32_t turn, bool settles, bool tells) {
    const std::span<rpma_op> all = batch.operations();
    if (all.empty()) {
        return true;
    }
    const auto count = static_cast<std::uint32_t>(all.size());
    // With a message behind it the flush has a completion too: only that says which turn is settled.
    rpma_op &last = all.back();
    if (settles && tells) {
        rpma_op &flush = all[all.size() - 2];
        flush.flags = RPMA_F_COMPLETION_ALWAYS;
        flush.op_context = reinterpret_cast<void *>(context_of(unasked_ + count - 1, turn));
        last.flags = RPMA_F_COMPLETION_ALWAYS;
        last.op_context = reinterpret_cast<void *>(context_of(1, 0));
    } else {
        last.flags = RPMA_F_COMPLETION_ALWAYS;
        last.op_context = reinterpret_cast<void *>(context_of(unasked_ + count, settles ? turn : 0));
    }
    std::size_t posted = 0;
    const bool is_posted = rpma_post(conn_.get(), all.data(), all.size(), &posted) == 0;
    open_ += static_cast<std::uint32_t>(posted);
    unasked_ = is_posted ? 0 : unasked_ + static_cast<std::uint32_t>(posted);
    return is_posted;
}

void Copy::send(Batch &batch, std::uint32_t turn) {
    for (const rpma_op &op : batch.operations()) {
        if (op.type == RPMA_OP_FLUSH) {
            spare_->flush(turn);
        } else if (op.type == RPMA_OP_SEND) {
            spare_->tell();
        } else {
            const void *const own = reinterpret_cast<const std::byte *>(link_) + op.local_offset;
            spare_->write(op.remote_offset, op.bytes != nullptr ? op.bytes : own, op.len);
        }
    }
    collect();
}

// The order is that in which the peer has to see it: the bytes, where their turn begins, the turn, and then
// that there are more bytes; last that this end leaves or ends. `put` is read before the turn: so the turn is
// never older.
void Copy::push_all() {
    if (open_ > sends / 2) {
        collect();
    }
    if (is_lost() || (spare_ == nullptr && (has_lost_device() || conn_ == nullptr || peers_ == nullptr))) {
        return;
    }
    if (!has_room()) {
        if (!is_late_) {
            is_late_ = true;
            wake_agent();
        }
        return;
    }
    const bool tells = owes_message_ && may_tell();
    Batch batch{*this};
    const Direction &own = link_->directions[side_];
    const Direction &peers = link_->directions[1 - side_];
    const bool is_all = !pushed_.any;
    Pushed now = pushed_;
    now.put = own.put.load();
    now.doorbells = own.doorbells.load();
    now.turn = own.turn.load();
    if (is_all && spare_ == nullptr) {
        pushed_.put = now.put;
    }
    if (now.put - pushed_.put <= Direction::ring_bytes) {
        add_ring(batch, now.put);
    }
    bool settles = false;
    if (is_all || now.turn != pushed_.turn) {
        // The peer reads one of the last two turns, or this one.
        constexpr std::uint32_t ahead = 2;
        const std::uint32_t first = !is_all && now.turn - pushed_.turn < 4 ? pushed_.turn + 1
                                    : spare_ != nullptr                    ? std::max(now.turn, ahead) - ahead
                                                                           : now.turn;
        for (std::uint32_t turn = first; turn != now.turn + 1; ++turn) {
            batch.write_from(&own.turns[turn % Direction::most_turns], sizeof(carry::Turn));
        }
        batch.write(&own.turn, &now.turn, sizeof(now.turn));
        settles = now.turn % 2 != 0;
    }
    if (is_all || now.put != pushed_.put || now.doorbells != pushed_.doorbells) {
        struct {
            std::uint64_t put, origin;
            std::int64_t filled_at;
            std::uint64_t doorbells;
        } const line{.put = now.put,
                     .origin = own.origin.load(),
                     .filled_at = own.filled_at.load(),
                     .doorbells = now.doorbells};
        static_assert(offsetof(Direction, doorbells) - offsetof(Direction, put) == 24);
        batch.write(&own.put, &line, sizeof(line));
    }
    struct {
        std::uint64_t taken;
        std::uint32_t turns_read, sleepers, sleeps, refuses, heard;
    } const receiver{.taken = peers.taken.load(),
                     .turns_read = peers.turns_read.load(),
                     .sleepers = peers.sleepers.load(),
                     .sleeps = peers.sleeps.load(),
                     .refuses = peers.refuses.load(),
                     .heard = peers.heard.load()};
    static_assert(offsetof(Direction, heard) - offsetof(Direction, taken) == 24);
    std::memcpy(now.receiver.data(), &receiver, now.receiver.size());
    if (is_all || now.receiver != pushed_.receiver) {
        batch.write(&peers.taken, now.receiver.data(), now.receiver.size());
    }
    const std::atomic<std::uint32_t> *const words[] = {&link_->state, &link_->leaves[side_],
                                                       &link_->closed[side_], &link_->ends[side_]};
    for (std::size_t i = 0; i < now.words.size(); ++i) {
        if (words[i] == &link_->state && !say_state()) {
            continue;
        }
        now.words[i] = words[i]->load();
        if (is_all || now.words[i] != pushed_.words[i]) {
            batch.write(words[i], &now.words[i], sizeof(now.words[i]));
        }
    }
    if (settles) {
        batch.flush(&own.turn);
    }
    if (tells) {
        batch.send();
    }
    now.any = true;
    if (spare_ != nullptr) {
        send(batch, now.turn);
    } else if (carry::Shake::loses(++pushes_) || !post(batch, now.turn, settles, tells)) {
        lose_device();  // the queue had room
        return;
    }
    told_ += tells ? 1 : 0;
    owes_message_ = owes_message_ && !tells;
    is_late_ = false;
    pushed_ = now;
}

}  // namespace carry_device
