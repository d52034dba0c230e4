// SPDX-License-Identifier: BSD-3-Clause
// soft/queues/inbox: incoming messages, and the receives posted for them. A message takes the oldest posted
// receive; of a shared queue when it is whole, or large and well begun, so that peers that begin messages and
// do not end them take nothing from others. A message that finds none, or takes none yet, is kept, within a
// bound.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "soft/memory/refusal.hpp"
#include "soft/memory/target.hpp"
#include "soft/queues/completion_queue.hpp"
#include "soft/queues/receive_queue.hpp"
#include "soft/queues/shared_receive.hpp"

namespace soft {

// Its owner locks, with the group's lock; post(), release() and shared() need no lock.
class Inbox {
public:
    // The completion of a receive says this of the message that took it.
    struct Arrival {
        ibv_wc_opcode opcode = IBV_WC_RECV;
        std::uint32_t bytes = 0;
        bool solicited = false;
        unsigned flags = 0;           // IBV_WC_WITH_IMM or IBV_WC_WITH_INV
        std::uint32_t immediate = 0;  // or the rkey that was invalidated, which has the same place
    };

    // The inbox belongs to the queue pair `qp`, which may have a shared receive queue; `taker` stands in line
    // there.
    Inbox(const ibv_qp &qp, const ibv_qp_cap &cap, CompletionQueue &completions, Completing &completing,
          TakesReceives &taker);

    // ---- receives ----
    // 0 or an errno value. `starved`: messages wait for receives.
    int post(ibv_recv_wr *request, ibv_recv_wr **bad, bool &starved);
    // Completions of so many receives were polled.
    void release(unsigned slots) { receives_.release(slots); }
    [[nodiscard]] SharedReceiveQueue *shared() const { return shared_; }

    // ---- the message that arrives ----
    [[nodiscard]] bool inside_message() const { return message_ != Message::None; }
    [[nodiscard]] bool keeps() const { return message_ == Message::Kept; }
    // A receive that other connections could use waits for the rest of a message.
    [[nodiscard]] bool holds_shared_receive() const {
        return shared_ != nullptr && message_ == Message::Delivered;
    }
    // Bytes of the message's whole segments.
    [[nodiscard]] std::uint32_t bytes() const { return bytes_; }
    [[nodiscard]] std::uint32_t next_msn() const { return next_msn_; }
    // There is no room to keep one more message.
    [[nodiscard]] bool is_full() const;
    [[nodiscard]] bool keeps_nothing() const { return kept_.empty(); }
    // The oldest message that is kept is whole: the end of the bytes comes behind it.
    [[nodiscard]] bool keeps_whole() const { return !kept_.empty() && kept_.front().complete; }
    [[nodiscard]] std::size_t kept_messages() const { return kept_.size(); }
    [[nodiscard]] std::size_t kept_bytes() const { return kept_bytes_.size(); }

    // The segment is next in its message, or begins one.
    [[nodiscard]] Accepted<> check(std::uint32_t msn, std::uint64_t offset, std::size_t more) const;
    // A message begins: it takes a receive if it may and there is one, and else is kept.
    void begin(bool may_take);
    // Memory of the receive for the message's bytes from `offset` on.
    [[nodiscard]] ibv_wc_status aim(Target &target, std::size_t offset, std::size_t most_bytes) const;
    // The payload goes behind what is kept of the message. False: too much is kept.
    [[nodiscard]] bool keep(std::span<const std::byte> bytes);
    // A segment of the message is whole.
    void segment_arrived(std::size_t bytes) { bytes_ += static_cast<std::uint32_t>(bytes); }
    // The message is whole.
    [[nodiscard]] Accepted<> message_arrived(const Arrival &arrival);
    // The kept messages take what receives there are.
    [[nodiscard]] Accepted<> deliver();
    // The receive in hand cannot be filled, and the connection ends over that.
    [[nodiscard]] Accepted<> receive_failed(ibv_wc_status status);

    // The connection has ended: receives that wait are flushed. From a shared queue only the receive that is
    // half filled: the others are not this connection's.
    void flush();

private:
    enum class Message : std::uint8_t { None, Delivered, Kept };
    struct Kept {
        std::uint32_t bytes = 0;
        bool complete = false;
        Arrival arrival{};
    };

    [[nodiscard]] bool take_receive();
    [[nodiscard]] Accepted<> deliver_oldest();
    [[nodiscard]] bool complete(ibv_wc_status status, const Arrival &arrival);

    const ibv_qp &qp_;
    const std::size_t max_sge_;
    CompletionQueue &completions_;
    Completing &completing_;
    TakesReceives &taker_;
    SharedReceiveQueue *const shared_;  // in place of receives_, or null
    ReceiveQueue receives_;
    Receive receive_;  // the one that the arriving message fills
    Message message_ = Message::None;
    std::uint32_t bytes_ = 0;
    std::uint32_t next_msn_ = 1;
    std::vector<std::byte> kept_bytes_;
    std::vector<Kept> kept_;
};

}  // namespace soft
