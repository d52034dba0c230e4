// SPDX-License-Identifier: BSD-3-Clause
// soft/transport/receiver: a connection's receiving side. It takes the peer's bytes segment by segment,
// places payload where it belongs, and hands requests to the responder, messages to the inbox and answers to
// the sender. What ends the connection is returned.
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
#include "soft/transport/incoming.hpp"
#include "soft/transport/pace.hpp"
#include "soft/transport/responder.hpp"
#include "soft/transport/sender.hpp"

namespace soft {

// Hears of the first segment that the peer promised, before anything is done with it. The caller holds the
// group's lock.
class HearsPeer {
public:
    virtual void peer_began() = 0;

protected:
    ~HearsPeer() = default;
};

// The owner locks, with the group's lock.
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
        HearsPeer &hearer;
    };
    explicit Receiver(const Parts &parts)
        : parts_{parts},
          responder_{parts.sender, parts.access, parts.durability},
          answers_{*parts.qp.pd, parts.sender} {}

    void begin(Link &link, const ConnectionParameters &parameters);
    // The link goes.
    void leave_link() { link_ = nullptr; }

    // Receives what there is, for a turn.
    [[nodiscard]] Outcome<> receive();
    // The worker is back: goes on with what was read before the connection was parked.
    [[nodiscard]] Outcome<> unpark();
    // Receives were posted: messages that are kept take them, and the connection goes on if it was stalled.
    [[nodiscard]] Outcome<> receives_posted();
    // The link that is not read has ended or failed.
    void link_ended();
    // The deadline has passed.
    [[nodiscard]] Outcome<> expire();
    // The connection has ended: the group gets its buffer back.
    void stop();

    // The peer's first segment, which it promised, is not here yet.
    [[nodiscard]] bool awaits_peer() const { return awaits_peer_; }
    // Not read until receives are posted, or storage has what was written.
    [[nodiscard]] bool stalled() const { return stalled_; }
    [[nodiscard]] bool parked() const { return responder_.parked(); }
    // Inside a segment or a message.
    [[nodiscard]] bool inside() const { return incoming_.inside() || parts_.inbox.inside_message(); }

private:
    // The owner has the group's lock, which the analysis knows by another name.
    void serves() const ASSERT_CAPABILITY(parts_.group.mutex()) {}

    [[nodiscard]] Outcome<> parse();
    [[nodiscard]] Outcome<bool> parse_one();
    [[nodiscard]] Outcome<bool> begin_segment();
    [[nodiscard]] Outcome<bool> accepted(const Accepted<> &result);
    [[nodiscard]] Broken violation(const Refusal &refusal) const;
    [[nodiscard]] Accepted<> begin_data();
    [[nodiscard]] Accepted<> control_message(std::span<const std::byte> body);
    [[nodiscard]] Outcome<bool> terminated(std::span<const std::byte> body) const;

    // receiver_place.cpp
    [[nodiscard]] Outcome<Link::Received> fill();
    [[nodiscard]] Accepted<Link::Received> fill_target();
    [[nodiscard]] Accepted<> place_buffered();
    [[nodiscard]] Accepted<> aim(Target &target, std::size_t most_bytes);
    void placed(std::size_t bytes, const MemoryRegion *durable);
    [[nodiscard]] Accepted<> begin_write();
    [[nodiscard]] Accepted<> atomic_write(std::span<const std::byte> payload);

    // receiver_message.cpp
    [[nodiscard]] Accepted<> begin_message();
    [[nodiscard]] bool may_take_receive() const;
    [[nodiscard]] Accepted<> finish_message_segment();
    [[nodiscard]] Accepted<> immediate_arrived(std::span<const std::byte> body);
    void stall();
    void hold_end();
    [[nodiscard]] Outcome<> stream_ended();
    [[nodiscard]] Outcome<> go_on();
    void answer_and_watch();
    [[nodiscard]] Progress now() const;

    const Parts parts_;
    Responder responder_;
    Answers answers_;
    Link *link_ = nullptr;
    bool crc_ = false;
    bool soft_peer_ = false;
    Incoming incoming_;
    Pace pace_;
    std::uint64_t place_at_ = 0;     // write: the address for the next byte; send, read response: the offset
    std::uint64_t write_bytes_ = 0;  // of the arriving write, so far, or of the last
    bool in_write_ = false;
    bool awaits_peer_ = false;
    bool peer_began_ = false;    // we initiate, or the initiator's first FPDU is here
    bool stalled_ = false;       // until a receive is posted
    bool end_held_ = false;      // what is stalled is the last of the stream
    bool ignores_peer_ = false;  // what it sends is read and thrown away, until all of ours is sent
};

}  // namespace soft
