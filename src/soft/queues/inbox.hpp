// SPDX-License-Identifier: BSD-3-Clause
// soft/queues/inbox: incoming messages, and the receives posted for them. A message takes the oldest posted
// receive. It takes one of a shared queue only when the message is complete, or large and well begun, so that
// peers that begin messages and do not end them take no receives from others. A message that finds no
// receive, or takes none yet, is kept, within a bound. On XRC each message names its shared queue, which the
// program may destroy at any time: it is looked up again for each use.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "soft/memory/refusal.hpp"
#include "soft/memory/target.hpp"
#include "soft/queues/completion_queue.hpp"
#include "soft/queues/placed.hpp"
#include "soft/queues/receive_queue.hpp"
#include "soft/queues/shared_receive.hpp"
#include "soft/queues/xrc_domain.hpp"
#include "soft/wire/ddp.hpp"

namespace soft {

// The owner calls it with the group's lock held; post(), release() and shared() need no lock.
class Inbox {
public:
    // The facts about a message that the completion of its receive has.
    struct Arrived {
        ibv_wc_opcode opcode = IBV_WC_RECV;
        std::uint32_t bytes = 0;
        bool solicited = false;
        unsigned flags = 0;           // IBV_WC_WITH_IMM or IBV_WC_WITH_INV
        std::uint32_t immediate = 0;  // or the rkey that was invalidated, in the same place
    };

    // The inbox belongs to the queue pair `qp`, which may have a shared receive queue; `taker` stands in line
    // there. It counts the messages that have their receives in `placed`. One of type XRC_RECV has `xrc`.
    Inbox(const ibv_qp &qp, const ibv_qp_cap &cap, CompletionQueue &completions, Completing &completing,
          TakesReceives &taker, Placed &placed, const XrcDomain *xrc);

    // ---- receives ----
    // Returns 0 or an errno value. Sets `starved` when messages wait for receives.
    int post(ibv_recv_wr *request, ibv_recv_wr **bad, bool &starved);
    // Frees the places of receives whose completions were polled.
    void release(unsigned slots) { receives_.release(slots); }
    // Returns the queue pair's own shared queue, or null.
    [[nodiscard]] SharedReceiveQueue *shared() const { return shared_; }
    // Returns whether it takes receives that other connections could use.
    [[nodiscard]] bool shares() const { return shared_ != nullptr || xrc_ != nullptr; }
    // Leaves the line for a shared receive.
    void leave_line();

    // Returns whether the next message has its receive, or may have one of a shared queue.
    [[nodiscard]] bool has_receives() const { return shares() || !receives_.is_empty(); }

    // Begins with the first message of a new connection. The receives stay.
    void begin();
    // Forgets all receives, without completions, and frees every place. Those of a shared queue stay there.
    void reset();

    // ---- the message that arrives ----
    [[nodiscard]] bool inside_message() const { return message_ != Message::None; }
    [[nodiscard]] bool keeps() const { return message_ == Message::Kept; }
    // Returns whether a receive that other connections could use waits for the rest of a message.
    [[nodiscard]] bool holds_shared_receive() const { return shares() && message_ == Message::Delivered; }
    // Returns the bytes of the message's complete segments.
    [[nodiscard]] std::uint32_t bytes() const { return bytes_; }
    [[nodiscard]] std::uint32_t next_msn() const { return next_msn_; }
    // Returns whether there is no room to keep one more message.
    [[nodiscard]] bool is_full() const;
    [[nodiscard]] bool keeps_nothing() const { return kept_.empty(); }
    // Returns whether the oldest kept message is complete; the end of the bytes comes after it.
    [[nodiscard]] bool keeps_whole() const { return !kept_.empty() && kept_.front().complete; }
    [[nodiscard]] std::size_t kept_messages() const { return kept_.size(); }
    [[nodiscard]] std::size_t kept_bytes() const { return kept_bytes_.size(); }

    // Checks that the segment is next in its message, or begins one.
    [[nodiscard]] OrRefusal<> check(const wire::Segment &segment, std::size_t more) const;
    // Begins a message to that queue. It takes a receive if it may and there is one; otherwise it is kept.
    void begin(bool may_take, wire::Queue queue);
    // Finds the memory of the receive for the message's bytes from `offset` on. A receive that cannot be
    // filled fails.
    [[nodiscard]] OrRefusal<> aim(Target &target, std::size_t offset, std::size_t most_bytes);
    // Appends payload to the kept message. Returns false when too much is kept.
    [[nodiscard]] bool keep(std::span<const std::byte> bytes);
    // Is called when a segment of the message is complete.
    void segment_arrived(std::size_t bytes) { bytes_ += static_cast<std::uint32_t>(bytes); }
    // Is called when the message is complete.
    [[nodiscard]] OrRefusal<> message_arrived(const Arrived &arrived);
    // Counts a message that takes no receive: it belongs to a write that is lost.
    [[nodiscard]] OrRefusal<> lose_message(const wire::Segment &segment);
    // Gives posted receives to the kept messages.
    [[nodiscard]] OrRefusal<> deliver();
    // Completes the current receive, which cannot be filled, with an error. The connection ends then.
    [[nodiscard]] OrRefusal<> receive_failed(ibv_wc_status status);

    // Flushes the waiting receives after the connection's end. Of a shared queue it flushes only the receive
    // that is partly filled; the others do not belong to this connection.
    void flush();

private:
    enum class Message : std::uint8_t { None, Delivered, Kept };
    struct KeptMessage {
        std::uint32_t bytes = 0;
        bool complete = false;
        wire::Queue queue{};
        Arrived arrived{};
    };

    [[nodiscard]] bool is_its_queue(wire::Queue queue) const;
    [[nodiscard]] SharedReceiveQueue *shared(wire::Queue queue) const;
    [[nodiscard]] bool take_receive(wire::Queue queue);
    [[nodiscard]] OrRefusal<> deliver_oldest();
    [[nodiscard]] OrRefusal<> complete(ibv_wc_status status, const Arrived &arrived);

    const ibv_qp &qp_;
    const ibv_pd &domain_;  // of the memory of the receives: a shared queue has its own
    const std::size_t max_sge_;
    CompletionQueue &completions_;
    Completing &completing_;
    TakesReceives &taker_;
    Placed &placed_;
    SharedReceiveQueue *const shared_;  // in place of receives_, or null
    const XrcDomain *const xrc_;        // the same, with the queues that messages name
    ReceiveQueue receives_;
    Receive receive_;         // the receive that the arriving message fills
    wire::Queue filled_{};    // that receive's
    wire::Queue arriving_{};  // the arriving message's
    Message message_ = Message::None;
    std::uint32_t bytes_ = 0;
    std::uint32_t next_msn_ = 1;
    std::vector<std::byte> kept_bytes_;
    std::vector<KeptMessage> kept_;
};

}  // namespace soft
