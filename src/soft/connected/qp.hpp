// SPDX-License-Identifier: BSD-3-Clause
// soft/connected/qp: a reliable-connected queue pair on one link.
//   qp.cpp           its life up to a connection
//   qp_end.cpp       how a connection ends
//   qp_send.cpp      the send queue: from ibv_post_send to a work completion
//   qp_build.cpp     a batch of segments, from the send queue and the owed responses
//   qp_transmit.cpp  batches into the link
//   qp_receive.cpp   what the link has
//   qp_parse.cpp     the bytes, segment by segment
//   qp_place.cpp     where payload goes
//   qp_respond.cpp   reads and flushes that the peer asks for; the answers to our flushes
//   qp_atomic.cpp    atomic operations, asked for and answered
//   qp_message.cpp   incoming sends and the receives posted for them
//
// Two locks. The group's lock: everything about receiving, and the connection's end. send_mutex_: the send
// queue, responses that wait to be sent, the link's sending side; taken after the group's, before a
// completion queue's. Members that both sides need are changed with both locks and read with either: the role
// both_ guards them.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cassert>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/mutex.hpp"
#include "base/ring.hpp"
#include "persist/worker.hpp"
#include "soft/connected/connection.hpp"
#include "soft/ground/faults.hpp"
#include "soft/ground/tcp.hpp"
#include "soft/link/link.hpp"
#include "soft/memory/invalidated_keys.hpp"
#include "soft/memory/memory.hpp"
#include "soft/progress/progress.hpp"
#include "soft/queues/any_queue_pair.hpp"
#include "soft/queues/completion_queue.hpp"
#include "soft/queues/posted_sends.hpp"
#include "soft/queues/receive_queue.hpp"
#include "soft/queues/shared_receive.hpp"
#include "soft/transport/batch.hpp"
#include "soft/wire/ddp.hpp"
#include "soft/wire/rdmap.hpp"
#include "softrdma.h"

namespace soft {

// qp_access_flags grant or withhold these, and rdma_cm asks for all of them. The region's rights alone allow
// a flush.
inline constexpr unsigned governed_access =
    IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

class QueuePair final : public AnyQueuePair, public Source, public TakesReceives {
public:
    [[nodiscard]] static base::Result<QueuePair *> create(ibv_pd &pd, ibv_qp_init_attr &attributes);
    ~QueuePair() override;

    // ---- AnyQueuePair ----
    [[nodiscard]] unsigned peer_operations() const override {
        return peer_operations_.load(std::memory_order_acquire);
    }
    void release(CompletionQueue::Queue queue, unsigned slots) override;

    // ---- TakesReceives ----
    void receives_posted() override;
    [[nodiscard]] const std::shared_ptr<Group> &group() const override { return group_; }

    // ---- connection manager ----
    [[nodiscard]] bool idle() const { return phase_.load(std::memory_order_acquire) == Phase::Idle; }
    // The handshake is over: from now on the link is this queue pair's. Memory was reserved: cannot fail
    // but for ENOMEM.
    void start(std::unique_ptr<Link> link, const tcp::Address &peer, const ConnectionParameters &parameters,
               ConnectionOwner *owner) EXCLUDES(group_->mutex());
    // The initiator's first FPDU, when it is here, is not left to who serves this queue pair.
    void look_for_first_fpdu(bool readable) EXCLUDES(group_->mutex());
    // That owner hears of nothing more.
    void forget_owner(const ConnectionOwner &owner) EXCLUDES(group_->mutex());
    // Flushes what is open, tells the peer, and lets it read what was completed. The owner hears when that is
    // done. False when the connection was never that owner's.
    [[nodiscard]] bool disconnect(const ConnectionOwner &owner) EXCLUDES(group_->mutex());
    // The same, when what is posted now is done.
    [[nodiscard]] bool disconnect_when_sent(const ConnectionOwner &owner) EXCLUDES(group_->mutex());
    [[nodiscard]] int end_error() const override { return end_error_.load(std::memory_order_acquire); }

    // ---- Source ----
    void progress() override;
    void expire() override;

private:
    void leave() override;
    int post_sends(ibv_send_wr *request, ibv_send_wr **bad, Part when_bad) override;
    int post_receives(ibv_recv_wr *request, ibv_recv_wr **bad) override;
    int change_state(const ibv_qp_attr &attributes, int mask) override;
    void query_state(ibv_qp_attr &attributes) const override;

    enum class Phase { Idle, Connected, Draining, Ended };

    // Why a connection ends; says what becomes of the operations that are open.
    struct End {
        const char *text;
        int level;             // of the log line
        ibv_wc_status oldest;  // of the oldest operation still open; everything behind it is flushed
        bool drain;            // the peer may still have to read
        int error = 0;         // an errno value; 0: ended in order, by either side
    };

    struct SendRequest {
        enum class State : std::uint8_t { Queued, Built, Awaiting, Done };
        State state = State::Queued;
        bool signaled = false;
        bool solicited = false;
        bool fence = false;
        bool is_inline = false;
        std::uint8_t sges = 0;
        int opcode = 0;
        ibv_wc_status status = IBV_WC_SUCCESS;
        std::uint32_t length = 0;
        std::uint32_t rkey = 0;
        std::uint32_t received = 0;  // of a read's response
        // imm_data: of a flush its level, of an atomic operation its identifier; else as it goes onto the
        // wire (an rkey to invalidate has the same place).
        std::uint32_t immediate = 0;
        std::uint64_t wr_id = 0;
        std::uint64_t remote_address = 0;
        std::uint64_t compare_add = 0;  // of an atomic operation, as is what follows
        std::uint64_t swap = 0;
        std::size_t slot = 0;
        std::byte *kept = nullptr;  // the copy of inline data
    };

    // An answer that is owed to the peer.
    struct Response {
        wire::Opcode opcode = wire::Opcode::ReadResponse;
        wire::ReadRequest read{};
        wire::AtomicResponse atomic{};
    };

    // Bytes that this connection wrote into a durable region and that are not yet durable.
    struct Dirty {
        std::shared_ptr<persist::Region> region;
        std::byte *begin;
        std::byte *end;
    };

    QueuePair(ibv_pd &domain, const ibv_qp_init_attr &attributes, std::shared_ptr<Group> group);

    // qp.cpp
    [[nodiscard]] int go_to(const ibv_qp_attr &attributes, int mask);
    [[nodiscard]] bool in_error() const EXCLUDES(send_mutex_);
    void establish() REQUIRES(group_->mutex());
    void leave_group() REQUIRES(group_->mutex());

    // qp_end.cpp
    void give_up() EXCLUDES(group_->mutex());
    void disconnect() EXCLUDES(group_->mutex());
    void end_here() REQUIRES(group_->mutex());
    [[nodiscard]] bool only_has_to_send() REQUIRES(group_->mutex()) EXCLUDES(send_mutex_);
    void end(const End &how) REQUIRES(group_->mutex()) EXCLUDES(send_mutex_);
    void leave_to_engine() REQUIRES(group_->mutex()) EXCLUDES(send_mutex_);
    void finish_draining() REQUIRES(group_->mutex()) EXCLUDES(send_mutex_);
    void send_last_words() REQUIRES(group_->mutex()) EXCLUDES(send_mutex_);
    // The peer broke a rule: with the segment at hand; of a request that is refused, its body too.
    void violate(const wire::Violation &violation, std::span<const std::byte> read_request = {})
        REQUIRES(group_->mutex());
    // The program has unmapped the region that the segment at hand needs.
    void memory_vanished(const MemoryRegion &region, const void *place) REQUIRES(group_->mutex());
    void terminate(const wire::Violation &violation, std::span<const std::byte> header,
                   std::span<const std::byte> read_request) REQUIRES(group_->mutex()) EXCLUDES(send_mutex_);
    [[nodiscard]] bool add_last_words(const wire::Violation &violation, std::span<const std::byte> header,
                                      std::span<const std::byte> read_request)
        REQUIRES(group_->mutex(), send_mutex_);
    void break_link(int error) REQUIRES(send_mutex_);
    void cut_link() REQUIRES(send_mutex_);
    [[nodiscard]] bool found_broken(bool at_end) REQUIRES(group_->mutex()) EXCLUDES(send_mutex_);
    void link_lost(int error, bool drain = false) REQUIRES(group_->mutex());
    void peer_closed() REQUIRES(group_->mutex());
    void log_end(const char *text, int level) const REQUIRES(group_->mutex());

    // qp_send.cpp, qp_build.cpp and qp_transmit.cpp
    // `bytes`: of its scatter list, when they were looked at.
    [[nodiscard]] int check(const ibv_send_wr &request, std::uint64_t &bytes) const REQUIRES(send_mutex_);
    [[nodiscard]] bool agreed(unsigned operation, const char *name) const REQUIRES(send_mutex_);
    [[nodiscard]] int enqueue(const ibv_send_wr &request, std::uint32_t bytes, Part when_bad)
        REQUIRES(send_mutex_);
    [[nodiscard]] bool is_lent(const SendRequest &request, std::size_t bytes) const REQUIRES(send_mutex_);
    void transmit() REQUIRES(send_mutex_);
    void build_batch() REQUIRES(send_mutex_);
    [[nodiscard]] bool add_next_request_segment() REQUIRES(send_mutex_);
    [[nodiscard]] bool add_next_response_segment() REQUIRES(send_mutex_);
    [[nodiscard]] bool add_read_response_segment(const wire::ReadRequest &read) REQUIRES(send_mutex_);
    [[nodiscard]] bool pin_again() REQUIRES(send_mutex_);
    [[nodiscard]] bool may_begin(const SendRequest &request) const REQUIRES(send_mutex_);
    [[nodiscard]] bool fault_stops(const SendRequest &request) REQUIRES(send_mutex_);
    [[nodiscard]] std::size_t next_segment_bytes(const SendRequest &request) const REQUIRES(send_mutex_);
    [[nodiscard]] bool add_data_segment(SendRequest &request) REQUIRES(send_mutex_);
    void add_immediate(const SendRequest &request) REQUIRES(send_mutex_);
    void add_answered_request(SendRequest &request) REQUIRES(send_mutex_);
    [[nodiscard]] ibv_wc_status gather(const SendRequest &request, std::size_t offset, std::size_t size)
        REQUIRES(send_mutex_);
    void batch_was_sent() REQUIRES(send_mutex_);
    [[nodiscard]] SendRequest *oldest_awaiting() REQUIRES(send_mutex_);
    void retire() REQUIRES(send_mutex_);
    void complete(const SendRequest &request) REQUIRES(send_mutex_);
    void flush_requests(ibv_wc_status oldest) REQUIRES(send_mutex_);
    void want_writable(bool wanted) REQUIRES(send_mutex_);
    void want_readable(bool wanted) REQUIRES(group_->mutex()) EXCLUDES(send_mutex_);
    void set_interest(Interest interest) REQUIRES(send_mutex_);
    [[nodiscard]] static bool is_answered(int opcode) {
        return opcode == IBV_WR_RDMA_READ || is_atomic(opcode) || opcode == SOFTRDMA_WR_FLUSH;
    }
    [[nodiscard]] static bool is_atomic(int opcode) {
        return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
    }
    [[nodiscard]] static bool is_message(int opcode) {
        return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_SEND_WITH_INV;
    }
    [[nodiscard]] static bool has_immediate(int opcode) {
        return opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    }

    // qp_receive.cpp, qp_parse.cpp and qp_place.cpp
    // Where payload goes: pieces of memory, pinned.
    struct Target {
        std::array<iovec, Batch::max_payload_pieces + 1> pieces;  // one more, for what follows the payload
        std::array<Pin, Batch::max_payload_pieces> pins;
        std::size_t count = 0;
        std::size_t bytes = 0;
        const MemoryRegion *durable = nullptr;  // a write's region that can be flushed persistently
    };
    void receive() REQUIRES(group_->mutex());
    void return_empty_buffer() REQUIRES(group_->mutex());
    [[nodiscard]] bool inside_segment() const REQUIRES(group_->mutex()) {
        return in_segment_ || buffer_begin_ != buffer_end_;
    }
    void watch_segment() REQUIRES(group_->mutex());
    [[nodiscard]] Link::Received fill() REQUIRES(group_->mutex());
    [[nodiscard]] Link::Received fill_target(Target &target) REQUIRES(group_->mutex());
    void parse() REQUIRES(group_->mutex());
    [[nodiscard]] bool parse_one() REQUIRES(group_->mutex());
    [[nodiscard]] bool begin_segment() REQUIRES(group_->mutex());
    [[nodiscard]] bool crc_is_right(std::size_t fpdu_bytes) REQUIRES(group_->mutex());
    [[nodiscard]] bool place_buffered() REQUIRES(group_->mutex());
    void end_segment() REQUIRES(group_->mutex());
    void control_message() REQUIRES(group_->mutex());
    void begin_write() REQUIRES(group_->mutex());
    void begin_read_response() REQUIRES(group_->mutex()) EXCLUDES(send_mutex_);
    void finish_read_response() REQUIRES(group_->mutex()) EXCLUDES(send_mutex_);
    void atomic_write(std::span<const std::byte> payload) REQUIRES(group_->mutex());
    void terminated(std::span<const std::byte> body) REQUIRES(group_->mutex());
    // False when the connection ended over it, or ignores its peer.
    [[nodiscard]] bool aim(Target &target, std::size_t most_bytes) REQUIRES(group_->mutex());
    [[nodiscard]] ibv_wc_status aim_at_receive(Target &target, std::size_t offset,
                                               std::size_t most_bytes) const REQUIRES(group_->mutex());
    [[nodiscard]] static ibv_wc_status aim_at(const ibv_pd *domain, Target &target,
                                              std::span<const ibv_sge> sges, std::size_t offset,
                                              std::size_t most_bytes);
    [[nodiscard]] Asker peer() const { return {.pd = qp_base.pd, .queue_pair = creation()}; }
    // Pins what the peer asks for; what it may not have, or has given back, ends the connection with
    // `refusal`.
    // One that ends when all is sent goes on sending, and ignores the peer from there on.
    [[nodiscard]] std::optional<Pin> pin_for_peer(const Access &access, const char *refusal,
                                                  std::span<const std::byte> read_request = {})
        REQUIRES(group_->mutex());
    void placed(std::size_t bytes, const MemoryRegion *durable) REQUIRES(group_->mutex());
    void ignore_peer() REQUIRES(group_->mutex());
    [[nodiscard]] bool connected() const {
        return phase_.load(std::memory_order_relaxed) == Phase::Connected;
    }
    void answer() REQUIRES(group_->mutex()) EXCLUDES(send_mutex_);
    [[nodiscard]] std::span<const std::byte> buffered() const REQUIRES(group_->mutex()) {
        return {buffer_.bytes.get() + buffer_begin_, buffer_end_ - buffer_begin_};
    }

    // qp_respond.cpp
    [[nodiscard]] bool next_request() REQUIRES(group_->mutex()) EXCLUDES(send_mutex_);
    void read_requested(std::span<const std::byte> body) REQUIRES(group_->mutex());
    void flush_requested(std::span<const std::byte> body) REQUIRES(group_->mutex());
    void flush_answered(std::span<const std::byte> body) REQUIRES(group_->mutex()) EXCLUDES(send_mutex_);
    void retire_answered(SendRequest &request) REQUIRES(send_mutex_);
    void respond(const Response &response) REQUIRES(group_->mutex()) EXCLUDES(send_mutex_);
    void respond_when_durable(const Response &response) REQUIRES(group_->mutex());
    void note_dirty(const MemoryRegion &region, std::uint64_t address, std::uint64_t bytes)
        REQUIRES(group_->mutex());
    [[nodiscard]] persist::Worker *worker_to_wait_for() const REQUIRES(durability_);
    [[nodiscard]] int persist_dirty(const persist::Worker *worker) REQUIRES(durability_);
    [[nodiscard]] int persist_dirty() REQUIRES(durability_);
    static void run_persist(void *queue_pair);
    void persisted(int error) REQUIRES(group_->mutex());

    // qp_atomic.cpp
    void atomic_requested(std::span<const std::byte> body) REQUIRES(group_->mutex());
    void atomic_answered(std::span<const std::byte> body) REQUIRES(group_->mutex()) EXCLUDES(send_mutex_);

    // qp_message.cpp
    [[nodiscard]] bool message_must_wait() REQUIRES(group_->mutex());
    [[nodiscard]] bool may_take_receive() const REQUIRES(group_->mutex());
    // A receive that other connections could use waits for the rest of a message.
    [[nodiscard]] bool holds_shared_receive() const REQUIRES(group_->mutex()) {
        return shared_receives_ != nullptr && message_ == Message::Delivered;
    }
    [[nodiscard]] std::uint64_t arrived_of_message() const REQUIRES(group_->mutex());
    [[nodiscard]] bool take_receive() REQUIRES(group_->mutex());
    void begin_send() REQUIRES(group_->mutex());
    void finish_send() REQUIRES(group_->mutex());
    void deliver_unexpected() REQUIRES(group_->mutex());
    [[nodiscard]] bool keep_unexpected(std::span<const std::byte> bytes) REQUIRES(group_->mutex());
    // The completion of a receive says this of the message that took it.
    struct Arrival {
        ibv_wc_opcode opcode = IBV_WC_RECV;
        std::uint32_t bytes = 0;
        bool solicited = false;
        unsigned flags = 0;           // IBV_WC_WITH_IMM or IBV_WC_WITH_INV
        std::uint32_t immediate = 0;  // or the rkey that was invalidated, which has the same place
    };
    void immediate_arrived(std::span<const std::byte> body) REQUIRES(group_->mutex());
    void message_arrived(const Arrival &arrival) REQUIRES(group_->mutex());
    void receive_failed(ibv_wc_status status) REQUIRES(group_->mutex());
    void complete_receive(ibv_wc_status status, const Arrival &arrival) REQUIRES(group_->mutex());
    void flush_receives() REQUIRES(group_->mutex());
    void stall() REQUIRES(group_->mutex());
    void resume() REQUIRES(group_->mutex());
    void stream_ended() REQUIRES(group_->mutex());
    void hold_end() REQUIRES(group_->mutex());

    // Counts persists that came back to their queue pair: who destroys one waits for a change.
    static std::atomic<unsigned> persists_returned;

    const std::shared_ptr<Group> group_;

    std::atomic<Phase> phase_{Phase::Idle};
    std::atomic<unsigned> peer_operations_{0};
    std::atomic<unsigned> granted_{governed_access};  // to the peer, of the rights that a queue pair governs
    std::atomic<int> end_error_{0};

    // ---- guarded by both locks ----
    [[no_unique_address]] base::Role both_;
    void serves() const REQUIRES(group_->mutex()) ASSERT_SHARED_CAPABILITY(both_) {}
    void sends() const REQUIRES(send_mutex_) ASSERT_SHARED_CAPABILITY(both_) {}
    void changes() const REQUIRES(group_->mutex(), send_mutex_) ASSERT_CAPABILITY(both_) {}
    std::unique_ptr<Link> link_ GUARDED_BY(both_);
    tcp::Text peer_ GUARDED_BY(both_);  // its address, for log lines
    ConnectionParameters parameters_ GUARDED_BY(both_);
    std::vector<std::byte> last_words_ GUARDED_BY(both_);  // up to and with a TERMINATE

    // ---- guarded by the group's lock ----
    Origin origin_ GUARDED_BY(group_->mutex()){};
    Allowance allowance_ GUARDED_BY(group_->mutex());
    ConnectionOwner *owner_ GUARDED_BY(group_->mutex()) = nullptr;
    bool established_ GUARDED_BY(group_->mutex()) = false;  // the owner knows
    bool peer_ready_ GUARDED_BY(group_->mutex()) =
        false;  // we initiate, or the initiator's first FPDU is here
    bool ending_locally_ GUARDED_BY(group_->mutex()) = false;
    bool going_ GUARDED_BY(group_->mutex()) = false;  // it is being destroyed

    Buffer buffer_ GUARDED_BY(group_->mutex());  // the group's, but while it holds a part of something
    std::size_t buffer_bytes_ GUARDED_BY(group_->mutex()) = 0;
    std::size_t buffer_begin_ GUARDED_BY(group_->mutex()) = 0;
    std::size_t buffer_end_ GUARDED_BY(group_->mutex()) = 0;

    std::uint64_t registrations_seen_ GUARDED_BY(group_->mutex()) = 0;  // see Memory

    wire::Segment segment_ GUARDED_BY(group_->mutex());  // the one whose payload is arriving
    bool in_segment_ GUARDED_BY(group_->mutex()) = false;
    bool segment_watched_ GUARDED_BY(group_->mutex()) = false;
    std::uint64_t segments_ GUARDED_BY(group_->mutex()) = 0;  // begun so far
    std::uint64_t watched_segment_ GUARDED_BY(group_->mutex()) = 0;
    bool message_watched_ GUARDED_BY(group_->mutex()) = false;  // that holds a shared receive
    std::uint32_t watched_msn_ GUARDED_BY(group_->mutex()) = 0;
    std::uint64_t watched_bytes_ GUARDED_BY(group_->mutex()) = 0;  // that had arrived of it
    std::size_t payload_left_ GUARDED_BY(group_->mutex()) = 0;
    std::uint64_t place_at_ GUARDED_BY(group_->mutex()) =
        0;  // write: the address for the next byte; send, read response: the offset in the message

    std::uint32_t next_send_msn_ GUARDED_BY(group_->mutex()) = 1;
    std::uint32_t next_request_msn_ GUARDED_BY(group_->mutex()) = 1;
    std::uint32_t next_response_msn_ GUARDED_BY(group_->mutex()) = 1;
    SendRequest *reading_ GUARDED_BY(group_->mutex()) = nullptr;  // the read whose response is arriving

    SharedReceiveQueue *const shared_receives_;  // instead of receives_, or null
    ReceiveQueue receives_;
    Receive receive_ GUARDED_BY(group_->mutex());  // the one that the arriving send fills
    enum class Message { None, Delivered, Kept };
    Message message_ GUARDED_BY(group_->mutex()) = Message::None;
    std::uint32_t message_bytes_ GUARDED_BY(group_->mutex()) = 0;  // of the arriving send, so far
    std::uint64_t write_bytes_ GUARDED_BY(group_->mutex()) =
        0;  // of the arriving write, so far, or of the last
    bool in_write_ GUARDED_BY(group_->mutex()) = false;
    struct Unexpected {
        std::uint32_t bytes = 0;
        bool complete = false;
        Arrival arrival{};
    };
    std::vector<std::byte> unexpected_bytes_ GUARDED_BY(group_->mutex());
    std::vector<Unexpected> unexpected_ GUARDED_BY(group_->mutex());
    bool stalled_ GUARDED_BY(group_->mutex()) = false;   // until a receive is posted
    bool end_held_ GUARDED_BY(group_->mutex()) = false;  // what is stalled is the last of the stream

    InvalidatedKeys invalidated_ GUARDED_BY(group_->mutex());
    bool parked_ GUARDED_BY(group_->mutex()) = false;      // until the worker has persisted
    bool persisting_ GUARDED_BY(group_->mutex()) = false;  // a worker uses dirty_ and this object
    Response parked_response_ GUARDED_BY(group_->mutex());
    bool answer_due_ GUARDED_BY(group_->mutex()) = false;
    bool ignores_peer_ GUARDED_BY(group_->mutex()) =
        false;  // what it sends is read and thrown away, until all of ours is sent

    // ---- guarded by the group's lock, and while persisting_ the worker's alone ----
    [[no_unique_address]] base::Role durability_;
    void owns_dirty() const REQUIRES(group_->mutex()) ASSERT_CAPABILITY(durability_) { assert(!persisting_); }
    void persists() const ASSERT_CAPABILITY(durability_) {}
    std::vector<Dirty> dirty_ GUARDED_BY(durability_);
    persist::Job persist_job_ GUARDED_BY(durability_){};

    // ---- guarded by send_mutex_ ----
    mutable base::Mutex send_mutex_;
    // A request keeps some members as they were posted; they, and the count of free places, need no lock.
    void uses_what_stays() const ASSERT_SHARED_CAPABILITY(send_mutex_) {}
    PostedSends<SendRequest> requests_ GUARDED_BY(send_mutex_);
    std::size_t first_unbuilt_ GUARDED_BY(send_mutex_) =
        0;  // index in requests_ of the first that is not wholly in a batch
    std::size_t first_uncommitted_ GUARDED_BY(send_mutex_) =
        0;  // index of the first that the link has not taken wholly
    std::size_t request_offset_ GUARDED_BY(send_mutex_) = 0;
    unsigned awaiting_ GUARDED_BY(send_mutex_) = 0;
    std::size_t last_left_ GUARDED_BY(send_mutex_) =
        0;  // requests that are still to be done before a disconnect; then all_sent_
    bool all_sent_ GUARDED_BY(send_mutex_) = false;
    unsigned unsignaled_ GUARDED_BY(send_mutex_) =
        0;  // completed since the last completion entry: freed with the next
    base::Ring<Response> responses_ GUARDED_BY(send_mutex_);
    std::size_t response_offset_ GUARDED_BY(send_mutex_) = 0;
    bool response_turn_ GUARDED_BY(send_mutex_) = false;
    bool ready_to_receive_due_ GUARDED_BY(send_mutex_) = false;
    bool may_transmit_ GUARDED_BY(send_mutex_) = false;
    bool full_ GUARDED_BY(send_mutex_) =
        false;  // the link took no more; until it says that it does, it is not asked
    int link_error_ GUARDED_BY(send_mutex_) = 0;
    bool link_broken_ GUARDED_BY(send_mutex_) = false;
    bool link_cut_ GUARDED_BY(send_mutex_) = false;  // broken on purpose, behind what the link has
    std::unique_ptr<RequestFaults> faults_;          // made with the queue pair, or never
    Batch batch_ GUARDED_BY(send_mutex_);
    std::vector<Pin> pins_
        GUARDED_BY(send_mutex_);  // of regions that the batch reads for the peer, while the link sends it
    struct PeerRead {
        Access access;
        std::size_t piece;  // of the batch
    };
    std::vector<PeerRead> batch_reads_ GUARDED_BY(send_mutex_);
    Interest interest_ GUARDED_BY(send_mutex_);
    std::size_t max_payload_bytes_ GUARDED_BY(send_mutex_) = 0;
    std::uint32_t send_msn_ GUARDED_BY(send_mutex_) = 1;
    std::uint32_t request_msn_ GUARDED_BY(send_mutex_) = 1;
    std::uint32_t response_msn_ GUARDED_BY(send_mutex_) = 1;
    std::array<iovec, Batch::max_payload_pieces> gathered_ GUARDED_BY(send_mutex_);
    std::size_t gathered_pieces_ GUARDED_BY(send_mutex_) = 0;
};

}  // namespace soft
