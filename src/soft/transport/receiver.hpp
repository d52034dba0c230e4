// SPDX-License-Identifier: BSD-3-Clause
// soft/transport/receiver: a connection's receiving side. It takes the peer's bytes segment by segment,
// places payload, and hands requests to the responder, messages to the inbox and answers to the sender. Its
// functions return the reason when the connection has to end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "soft/link/link.hpp"
#include "soft/memory/peer_access.hpp"
#include "soft/memory/target.hpp"
#include "soft/progress/progress.hpp"
#include "soft/queues/inbox.hpp"
#include "soft/transport/answers.hpp"
#include "soft/transport/broken.hpp"
#include "soft/transport/connection_state.hpp"
#include "soft/transport/incoming.hpp"
#include "soft/transport/pace.hpp"
#include "soft/transport/responder.hpp"
#include "soft/transport/sender.hpp"

namespace soft {

// The owner of a receiver: its function is called for the first segment that the peer promised, before the
// segment is processed, with the group's lock held.
class ReceiverOwner {
public:
    virtual void peer_began() = 0;

protected:
    ~ReceiverOwner() = default;
};

// The owner calls it with the group's lock held.
class Receiver {
public:
    struct Parts {
        const ibv_qp &qp;
        Group &group;
        Source &source;
        Sender &sender;
        PeerAccess &access;
        Inbox &inbox;
        Durability &durability;
        Placed &placed;
        ConnectionStateCell &state;
        ReceiverOwner &owner;
    };
    explicit Receiver(const Parts &parts)
        : parts_{parts},
          responder_{parts.sender, parts.access, parts.durability},
          answers_{domain_of(*parts.qp.pd), parts.sender} {}

    void begin(Link &link, const ConnectionParameters &parameters);
    // Is called before the link is destroyed.
    void leave_link() { link_ = nullptr; }

    // Receives the bytes that have come, for one turn.
    [[nodiscard]] Outcome<> receive();
    // Takes the first segment that the peer promised, if all of it has come and it is empty; otherwise
    // receive() takes it. So the caller waits for no page of memory.
    [[nodiscard]] Outcome<> receive_empty_first();
    // Is called when the worker has finished. Continues with the bytes that were read before the connection
    // was parked.
    [[nodiscard]] Outcome<> unpark();
    // Is called when receives were posted. Kept messages take them, and a stalled connection continues.
    [[nodiscard]] Outcome<> receives_posted();
    // Is called when a link that is not read has ended or failed.
    void link_ended();
    // Is called when the deadline has passed.
    [[nodiscard]] Outcome<> expire();
    // Is called when the connection has ended. Gives the group its buffer back.
    void stop();

    // Returns whether the link is not read until storage has the written bytes.
    [[nodiscard]] bool parked() const { return responder_.parked(); }
    // Returns whether a segment or a message has begun and not ended.
    [[nodiscard]] bool inside() const { return incoming_.inside() || parts_.inbox.inside_message(); }

private:
    // Tells the analysis that the owner has the group's lock, which has another name there.
    void serves() const ASSERT_CAPABILITY(parts_.group.mutex()) {}
    [[nodiscard]] ConnectionState state() const { return parts_.state.now(); }

    [[nodiscard]] bool has_or_borrows_buffer();
    [[nodiscard]] Outcome<> parse();
    [[nodiscard]] Outcome<> parse_all();
    [[nodiscard]] Outcome<bool> parse_one();
    [[nodiscard]] Outcome<bool> begin_segment();
    [[nodiscard]] Outcome<bool> or_broken(const OrRefusal<> &result);
    [[nodiscard]] Broken violation(const Refusal &refusal) const;
    [[nodiscard]] Outcome<Link::Received> fill();
    [[nodiscard]] OrRefusal<> begin_data();
    [[nodiscard]] OrRefusal<> control_message(std::span<const std::byte> body);
    [[nodiscard]] Outcome<bool> terminated(std::span<const std::byte> body) const;

    // receiver_place.cpp
    [[nodiscard]] OrRefusal<Link::Received> fill_target();
    [[nodiscard]] Access write_of(std::uint64_t address, std::size_t bytes) const;
    [[nodiscard]] OrRefusal<> place_write(std::span<const std::byte> bytes);
    [[nodiscard]] OrRefusal<> place_buffered();
    [[nodiscard]] OrRefusal<> aim(Target &target, std::size_t most_bytes);
    void placed(std::size_t bytes, const MemoryRegion *durable);
    [[nodiscard]] OrRefusal<> begin_write();
    [[nodiscard]] OrRefusal<> lose_write(const Refusal &refusal);
    // Returns whether the payload that arrives belongs to a write that is lost.
    [[nodiscard]] bool drops() const { return lost_ && incoming_.segment().opcode == wire::Opcode::Write; }
    [[nodiscard]] OrRefusal<> atomic_write(std::span<const std::byte> payload);

    // receiver_message.cpp
    [[nodiscard]] OrRefusal<> begin_message();
    [[nodiscard]] bool may_take_receive() const;
    [[nodiscard]] OrRefusal<> finish_message_segment();
    [[nodiscard]] OrRefusal<> immediate_arrived(std::span<const std::byte> body);

    // receiver_wait.cpp
    void stall();
    void hold_end();
    [[nodiscard]] Outcome<> stream_ended();
    [[nodiscard]] Outcome<> go_on();
    void answer_and_watch();
    [[nodiscard]] bool take_news();
    [[nodiscard]] PeerPosition peers_position() const;

    const Parts parts_;
    Responder responder_;
    Answers answers_;
    Link *link_ = nullptr;
    ConnectionParameters parameters_;
    Incoming incoming_;
    Pace pace_;
    std::uint64_t place_at_ = 0;     // write: the address of the next byte; send, read response: its offset
    std::uint64_t write_bytes_ = 0;  // of the arriving write so far, or of the last one
    bool in_write_ = false;
    bool lost_ = false;      // the arriving write is, or the last one
    bool promised_ = false;  // the segment is the one that the peer promised, and no request of its program
    wire::Acknowledgement seen_;  // of what is placed, by take_news()
};

}  // namespace soft
