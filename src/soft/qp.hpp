// SPDX-License-Identifier: BSD-3-Clause
// soft/qp: a reliable-connected queue pair on one TCP connection.
//   qp.cpp           its life up to a connection
//   qp_end.cpp       how a connection ends
//   qp_send.cpp      the send queue: from ibv_post_send to a work completion
//   qp_build.cpp     a batch of segments, from the send queue and the owed responses
//   qp_transmit.cpp  batches into TCP
//   qp_receive.cpp   what TCP has
//   qp_parse.cpp     the stream, segment by segment
//   qp_place.cpp     where payload goes
//   qp_respond.cpp   reads and flushes that the peer asks for; the answers to our flushes
//   qp_atomic.cpp    atomic operations, asked for and answered
//   qp_message.cpp   incoming sends and the receives posted for them
//
// Two locks. The group's lock: everything about receiving, and the connection's end. send_mutex_: the send
// queue, responses that wait to be sent, the socket's writing side; taken after the group's, before a
// completion queue's.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/mutex.hpp"
#include "base/ring.hpp"
#include "persist/worker.hpp"
#include "soft/any_qp.hpp"
#include "soft/batch.hpp"
#include "soft/connection.hpp"
#include "soft/cq.hpp"
#include "soft/faults.hpp"
#include "soft/invalidated_keys.hpp"
#include "soft/memory.hpp"
#include "soft/posted_sends.hpp"
#include "soft/progress.hpp"
#include "soft/receive_queue.hpp"
#include "soft/shared_receive.hpp"
#include "soft/tcp.hpp"
#include "soft/wire/ddp.hpp"
#include "soft/wire/rdmap.hpp"
#include "softrdma.h"

namespace soft {

// The sizes that a queue pair is given, at least those that are asked for; EINVAL when the device has not so
// much, or its queues are none of this process.
[[nodiscard]] base::Result<ibv_qp_cap> granted_sizes(const ibv_qp_init_attr &attributes);

// qp_access_flags grant or withhold these, and rdma_cm asks for all of them. The region's rights alone allow
// a flush.
inline constexpr unsigned governed_access =
    IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

class QueuePair final : public AnyQueuePair, public Source {
public:
    [[nodiscard]] static base::Result<QueuePair *> create(ibv_pd &pd, ibv_qp_init_attr &attributes);
    ~QueuePair() override;

    // ---- AnyQueuePair ----
    [[nodiscard]] unsigned peer_operations() const override {
        return peer_operations_.load(std::memory_order_acquire);
    }
    void release(CompletionQueue::Queue queue, unsigned slots) override;

    // Its shared receive queue has receives again, and the caller has its group locked.
    void receives_posted();
    [[nodiscard]] const std::shared_ptr<Group> &group() const { return group_; }

    // ---- connection manager ----
    [[nodiscard]] bool idle() const { return phase_.load(std::memory_order_acquire) == Phase::Idle; }
    // The handshake is over: from now on the socket is this queue pair's. Memory was reserved: cannot fail
    // but for ENOMEM.
    void start(base::Fd socket, const tcp::Address &peer, const ConnectionParameters &parameters,
               ConnectionOwner *owner);
    // The initiator's first FPDU, when it is here, is not left to who serves this queue pair.
    void look_for_first_fpdu(bool readable);
    // That owner hears of nothing more.
    void forget_owner(const ConnectionOwner &owner);
    // Flushes what is open, tells the peer, and lets it read what was completed. The owner hears when that is
    // done. False when the connection was never that owner's.
    [[nodiscard]] bool disconnect(const ConnectionOwner &owner);
    // The same, when what is posted now is done.
    [[nodiscard]] bool disconnect_when_sent(const ConnectionOwner &owner);
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
    [[nodiscard]] bool in_error() const;
    void establish();
    void leave_group();

    // qp_end.cpp; breaking the link with send_mutex_ held, the rest with the group's lock
    void give_up();     // takes it
    void disconnect();  // takes it
    void end_here();
    [[nodiscard]] bool only_has_to_send();
    void end(const End &how);
    void finish_draining();
    void send_last_words();
    // The peer broke a rule: with the segment at hand; of a request that is refused, its body too.
    void violate(const wire::Violation &violation, std::span<const std::byte> read_request = {});
    // Of a region here, under what the peer sends.
    void memory_vanished(const MemoryRegion &region, const void *place);
    void terminate(const wire::Violation &violation, std::span<const std::byte> header,
                   std::span<const std::byte> read_request);
    [[nodiscard]] bool add_last_words(const wire::Violation &violation, std::span<const std::byte> header,
                                      std::span<const std::byte> read_request);
    void break_link(int error);
    void cut_link();
    [[nodiscard]] bool found_broken(bool at_end);
    void link_lost(int error, bool drain = false);
    void peer_closed();
    void log_end(const char *text, int level) const;

    // qp_send.cpp, qp_build.cpp and qp_transmit.cpp, with send_mutex_ held
    // `bytes`: of its scatter list, when they were looked at.
    [[nodiscard]] int check(const ibv_send_wr &request, std::uint64_t &bytes) const;
    [[nodiscard]] bool agreed(unsigned operation, const char *name) const;
    [[nodiscard]] int enqueue(const ibv_send_wr &request, std::uint32_t bytes, Part when_bad);
    [[nodiscard]] bool is_lent(const SendRequest &request, std::size_t bytes) const;
    void transmit();
    void build_batch();
    [[nodiscard]] bool add_next_request_segment();
    [[nodiscard]] bool add_next_response_segment();
    [[nodiscard]] bool add_read_response_segment(const wire::ReadRequest &read);
    [[nodiscard]] bool pin_again();
    [[nodiscard]] bool may_begin(const SendRequest &request) const;
    [[nodiscard]] bool fault_stops(const SendRequest &request);
    [[nodiscard]] std::size_t next_segment_bytes(const SendRequest &request) const;
    [[nodiscard]] bool add_data_segment(SendRequest &request);
    void add_immediate(const SendRequest &request);
    void add_answered_request(SendRequest &request);
    [[nodiscard]] ibv_wc_status gather(const SendRequest &request, std::size_t offset, std::size_t size);
    void batch_was_sent();
    [[nodiscard]] SendRequest *oldest_awaiting();
    void retire();
    void complete(const SendRequest &request);
    void flush_requests(ibv_wc_status oldest);
    void want_writable(bool wanted);
    void want_readable(bool wanted);
    void set_interest(Interest interest);
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

    // qp_receive.cpp, qp_parse.cpp and qp_place.cpp, with the group's lock held
    // Where payload goes: pieces of memory, pinned.
    struct Target {
        std::array<iovec, Batch::max_payload_pieces + 1> pieces;  // one more, for what follows the payload
        std::array<Pin, Batch::max_payload_pieces> pins;
        std::size_t count = 0;
        std::size_t bytes = 0;
        const MemoryRegion *durable = nullptr;  // a write's region that can be flushed persistently
    };
    void receive();
    void return_empty_buffer();
    [[nodiscard]] bool inside_segment() const { return in_segment_ || buffer_begin_ != buffer_end_; }
    void watch_segment();
    [[nodiscard]] ssize_t fill(std::size_t &room);
    [[nodiscard]] ssize_t fill_target(Target &target, std::size_t &room);
    void parse();
    [[nodiscard]] bool parse_one();
    [[nodiscard]] bool begin_segment();
    [[nodiscard]] bool crc_is_right(std::size_t fpdu_bytes);
    [[nodiscard]] bool place_buffered();
    void end_segment();
    void control_message();
    void begin_write();
    void begin_read_response();
    void finish_read_response();
    void atomic_write(std::span<const std::byte> payload);
    void terminated(std::span<const std::byte> body);
    // False when the connection ended over it, or ignores its peer.
    [[nodiscard]] bool aim(Target &target, std::size_t most_bytes);
    [[nodiscard]] ibv_wc_status aim_at_receive(Target &target, std::size_t offset,
                                               std::size_t most_bytes) const;
    [[nodiscard]] static ibv_wc_status aim_at(const ibv_pd *domain, Target &target,
                                              std::span<const ibv_sge> sges, std::size_t offset,
                                              std::size_t most_bytes);
    [[nodiscard]] Asker peer() const { return {.pd = qp_base.pd, .queue_pair = creation()}; }
    // What the peer asks for; what it may not have, or has given back, ends the connection with `refusal`.
    // One that ends when all is sent goes on sending, and ignores the peer from there on.
    [[nodiscard]] std::optional<Pin> pin_for_peer(const Access &access, const char *refusal,
                                                  std::span<const std::byte> read_request = {});
    void placed(std::size_t bytes, const MemoryRegion *durable);
    void ignore_peer();
    [[nodiscard]] bool connected() const {
        return phase_.load(std::memory_order_relaxed) == Phase::Connected;
    }
    void answer();
    [[nodiscard]] std::span<const std::byte> buffered() const {
        return {buffer_.bytes.get() + buffer_begin_, buffer_end_ - buffer_begin_};
    }

    // qp_respond.cpp, with the group's lock held
    [[nodiscard]] bool next_request();
    void read_requested(std::span<const std::byte> body);
    void flush_requested(std::span<const std::byte> body);
    void flush_answered(std::span<const std::byte> body);
    void retire_answered(SendRequest &request);
    void respond(const Response &response);
    void respond_when_durable(const Response &response);
    void note_dirty(const MemoryRegion &region, std::uint64_t address, std::uint64_t bytes);
    [[nodiscard]] persist::Worker *worker_to_wait_for() const;
    [[nodiscard]] int persist_dirty(const persist::Worker *worker);
    [[nodiscard]] int persist_dirty();
    static void run_persist(void *queue_pair);
    void persisted(int error);

    // qp_atomic.cpp, with the group's lock held
    void atomic_requested(std::span<const std::byte> body);
    void atomic_answered(std::span<const std::byte> body);

    // qp_message.cpp, with the group's lock held
    [[nodiscard]] bool message_must_wait();
    [[nodiscard]] bool may_take_receive() const;
    // A receive that other connections could use waits for the rest of a message.
    [[nodiscard]] bool holds_shared_receive() const {
        return shared_receives_ != nullptr && message_ == Message::Delivered;
    }
    [[nodiscard]] std::uint64_t arrived_of_message() const;
    [[nodiscard]] bool take_receive();
    void begin_send();
    void finish_send();
    void deliver_unexpected();
    [[nodiscard]] bool keep_unexpected(std::span<const std::byte> bytes);
    // What the completion of a receive says of the message that took it.
    struct Arrival {
        ibv_wc_opcode opcode = IBV_WC_RECV;
        std::uint32_t bytes = 0;
        bool solicited = false;
        unsigned flags = 0;           // IBV_WC_WITH_IMM or IBV_WC_WITH_INV
        std::uint32_t immediate = 0;  // or the rkey that was invalidated, which has the same place
    };
    void immediate_arrived(std::span<const std::byte> body);
    void message_arrived(const Arrival &arrival);
    void receive_failed(ibv_wc_status status);
    void complete_receive(ibv_wc_status status, const Arrival &arrival);
    void flush_receives();
    void stall();
    void resume();
    void stream_ended();
    void hold_end();

    // Counts persists that came back to their queue pair: who destroys one waits for a change.
    static std::atomic<unsigned> persists_returned;

    const std::shared_ptr<Group> group_;

    std::atomic<Phase> phase_{Phase::Idle};
    std::atomic<unsigned> peer_operations_{0};
    std::atomic<unsigned> granted_{governed_access};  // to the peer, of the rights that a queue pair governs
    std::atomic<int> end_error_{0};

    // ---- guarded by the group's lock ----
    base::Fd socket_;
    tcp::Text peer_;  // its address, for log lines
    Origin origin_{};
    Allowance allowance_;
    ConnectionOwner *owner_ = nullptr;
    ConnectionParameters parameters_;
    bool established_ = false;  // the owner knows
    bool peer_ready_ = false;   // we initiate, or the initiator's first FPDU is here
    bool ending_locally_ = false;
    bool going_ = false;  // it is being destroyed

    Buffer buffer_;  // the group's, but while it holds a part of something
    std::size_t buffer_bytes_ = 0;
    std::size_t buffer_begin_ = 0;
    std::size_t buffer_end_ = 0;

    std::uint64_t registrations_seen_ = 0;  // see Memory

    wire::Segment segment_;  // the one whose payload is arriving
    bool in_segment_ = false;
    bool segment_watched_ = false;
    std::uint64_t segments_ = 0;  // begun so far
    std::uint64_t watched_segment_ = 0;
    bool message_watched_ = false;  // that holds a shared receive
    std::uint32_t watched_msn_ = 0;
    std::uint64_t watched_bytes_ = 0;  // that had arrived of it
    std::size_t payload_left_ = 0;
    std::uint64_t place_at_ =
        0;  // write: the address for the next byte; send, read response: the offset in the message

    std::uint32_t next_send_msn_ = 1;
    std::uint32_t next_request_msn_ = 1;
    std::uint32_t next_response_msn_ = 1;
    SendRequest *reading_ = nullptr;  // the read whose response is arriving

    SharedReceiveQueue *const shared_receives_;  // instead of receives_, or null
    ReceiveQueue receives_;
    Receive receive_;  // the one that the arriving send fills
    enum class Message { None, Delivered, Kept };
    Message message_ = Message::None;
    std::uint32_t message_bytes_ = 0;  // of the arriving send, so far
    std::uint64_t write_bytes_ = 0;    // of the arriving write, so far, or of the last
    bool in_write_ = false;
    struct Unexpected {
        std::uint32_t bytes = 0;
        bool complete = false;
        Arrival arrival{};
    };
    std::vector<std::byte> unexpected_bytes_;
    std::vector<Unexpected> unexpected_;
    bool stalled_ = false;   // until a receive is posted
    bool end_held_ = false;  // what is stalled is the last of the stream

    InvalidatedKeys invalidated_;
    std::vector<Dirty> dirty_;
    bool parked_ = false;      // until the worker has persisted
    bool persisting_ = false;  // a worker uses dirty_ and this object
    Response parked_response_;
    persist::Job persist_job_{};
    bool answer_due_ = false;
    bool ignores_peer_ = false;  // what it sends is read and thrown away, until all of ours is sent

    // ---- guarded by send_mutex_ ----
    mutable base::Mutex send_mutex_;
    PostedSends<SendRequest> requests_;
    std::size_t first_unbuilt_ = 0;      // index in requests_ of the first that is not wholly in a batch
    std::size_t first_uncommitted_ = 0;  // index of the first that is not wholly in TCP
    std::size_t request_offset_ = 0;
    unsigned awaiting_ = 0;
    std::size_t last_left_ = 0;  // requests that are still to be done before a disconnect; then all_sent_
    bool all_sent_ = false;
    unsigned unsignaled_ = 0;  // completed since the last completion entry: freed with the next
    base::Ring<Response> responses_;
    std::size_t response_offset_ = 0;
    bool response_turn_ = false;
    bool ready_to_receive_due_ = false;
    bool may_transmit_ = false;
    bool full_ = false;  // TCP took no more; until it says that it does, it is not asked
    int link_error_ = 0;
    bool link_broken_ = false;
    bool link_cut_ = false;                  // broken on purpose, behind what TCP has
    std::unique_ptr<RequestFaults> faults_;  // made with the queue pair, or never
    Batch batch_;
    std::vector<std::byte> last_words_;  // up to and with a TERMINATE; used with the group's lock too
    std::vector<Pin> pins_;              // of regions that the batch reads for the peer, while sendmsg runs
    struct PeerRead {
        Access access;
        std::size_t piece;  // of the batch
    };
    std::vector<PeerRead> batch_reads_;
    Interest interest_;
    std::size_t max_payload_bytes_ = 0;
    std::uint32_t send_msn_ = 1;
    std::uint32_t request_msn_ = 1;
    std::uint32_t response_msn_ = 1;
    std::array<iovec, Batch::max_payload_pieces> gathered_;
    std::size_t gathered_pieces_ = 0;
};

}  // namespace soft
