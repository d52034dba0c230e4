// SPDX-License-Identifier: BSD-3-Clause
// soft/cm/by_number: connects queue pairs whose programs have exchanged their numbers, and name the peer's
// with ibv_modify_qp. A number has the TCP port of its process in it, and the GID of the path is the address.
//
//     number:  0 | 7 bits of place | 16 bits of port
//
// A queue pair that becomes ready to receive tries to connect, once. If the peer is not ready yet, it
// refuses, or nobody listens there, and the peer connects when it becomes ready. When both try at the same
// time, the attempt counts of the end with the larger number, or address; that end refuses the other one's:
//
//     ready first, smaller or larger        ready later
//     request ──────────► not ready: refused
//                         ◄────────── request
//     reply ────────────►                   both have the link
//
// An attempt that the peer has not answered, or for which this process had no descriptor, port or memory, is
// made again after a time: nothing is known of the peer then, and both ends may be ready. After an answer
// only requests that wait for a link try again (Connector::send_waits). A queue pair that is connected to
// itself gets a TCP socket that is connected to itself.
//
// Locks: the lock of the ports' table, with no group's lock held or taken; the group of the ports, which
// serves the listeners and the attempts; then the group of the queue pair, which another thread may have
// while it waits for a page of memory. So that one is tried, for a short time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "base/mutex.hpp"
#include "base/result.hpp"
#include "soft/cm/handshake.hpp"
#include "soft/cm/meeting.hpp"
#include "soft/connected/connector.hpp"
#include "soft/connected/queue_pair.hpp"
#include "soft/wire/by_number.hpp"

namespace soft {

class NumberPort;

// A number for a queue pair, which is its alone until this is destroyed.
class QueuePairNumber {
public:
    // Fails with EMFILE, ENFILE or another error of socket(2) and bind(2), when a new port is needed.
    [[nodiscard]] static base::Result<QueuePairNumber> take();
    QueuePairNumber(QueuePairNumber &&) noexcept = default;
    QueuePairNumber &operator=(QueuePairNumber &&) = delete;
    ~QueuePairNumber();

    [[nodiscard]] std::uint32_t value() const { return value_; }
    [[nodiscard]] NumberPort &port() const { return *port_; }

private:
    QueuePairNumber(std::shared_ptr<NumberPort> port, std::uint32_t value)
        : port_{std::move(port)}, value_{value} {}

    std::shared_ptr<NumberPort> port_;
    std::uint32_t value_;
};

// Connects one queue pair, which owns it.
class ByNumber final : public Connector, public HandshakeOwner, public Source {
public:
    ByNumber(QueuePair &queue_pair, QueuePairNumber number)
        : HandshakeOwner{true}, queue_pair_{queue_pair}, number_{std::move(number)} {}

    // ---- Connector ----
    [[nodiscard]] base::Result<void> aim(const ibv_qp_attr &attributes) override;
    void begin() override;
    void expect_answer_within(base::Clock::duration time) override;
    void send_waits() override;
    void stop() override;

    // ---- HandshakeOwner, for its own attempt ----
    [[nodiscard]] bool offers_memory(Handshake &handshake) override;
    void handshake_done(Handshake &handshake, const wire::MpaFrame &reply) override;
    void handshake_failed(Handshake &handshake, int error) override;

    // Takes a request that names this queue pair, or refuses it. The lock of the ports' group is held.
    void request_arrived(Handshake &handshake, const wire::MpaFrame &request,
                         const wire::QueuePairNames &names);

    // ---- Source ----
    void progress() override {}
    void expire() override;

private:
    // The two ends, and what the program asks of the way between them.
    struct Path {
        tcp::Address here{};   // without a port
        tcp::Address there{};  // with the port of the peer's number
        std::uint32_t peer = 0;
        tcp::Options options;
    };

    // A link that the peer has too, until the queue pair takes it.
    struct Starting {
        std::unique_ptr<Link> link;
        tcp::Address peer;
        ConnectionParameters parameters;
    };

    // A failed attempt brought no answer of the peer, or one from which it is not ready.
    enum class Answer { None, NotReady };
    [[nodiscard]] static Answer answer_of(int error);

    void assert_held() const ASSERT_CAPABILITY(group_->mutex()) {}
    [[nodiscard]] bool is_reliable() const { return soft::is_reliable(queue_pair_.qp_base.qp_type); }
    [[nodiscard]] bool to_itself() const REQUIRES(group_->mutex());
    [[nodiscard]] bool comes_first() const REQUIRES(group_->mutex());
    [[nodiscard]] bool is_from_peer(const Handshake &handshake, const wire::QueuePairNames &names) const
        REQUIRES(group_->mutex());
    [[nodiscard]] base::Result<void> try_to_connect() REQUIRES(group_->mutex());
    void try_if_wanted() REQUIRES(group_->mutex());
    void end_attempt() REQUIRES(group_->mutex());
    void attempt_failed(Answer answer) REQUIRES(group_->mutex());
    void answer(Handshake &handshake, const wire::MpaFrame &request) REQUIRES(group_->mutex());
    void start(std::unique_ptr<Link> link, const tcp::Address &peer, const ConnectionParameters &parameters)
        REQUIRES(group_->mutex());
    [[nodiscard]] bool try_to_start(base::Clock::time_point until) REQUIRES(group_->mutex());
    [[nodiscard]] ConnectionParameters parameters(bool initiator, bool crc) const;

    QueuePair &queue_pair_;
    const QueuePairNumber number_;
    std::shared_ptr<Group> group_;  // of the ports; set by the first aim()
    bool aimed_ GUARDED_BY(group_->mutex()) = false;
    Path path_ GUARDED_BY(group_->mutex());
    std::unique_ptr<Handshake> attempt_ GUARDED_BY(group_->mutex());
    std::unique_ptr<Meeting> meeting_ GUARDED_BY(group_->mutex());
    std::optional<Starting> starting_ GUARDED_BY(group_->mutex());
    // The peer's attempt was refused for this one, so that this end tries again if its own fails.
    bool refused_peer_ GUARDED_BY(group_->mutex()) = false;
    base::Clock::duration time_to_answer_ GUARDED_BY(group_->mutex()){};
    base::Clock::time_point gives_up_at_ GUARDED_BY(group_->mutex());
    bool tries_again_ GUARDED_BY(group_->mutex()) = false;          // for requests that wait
    base::Milliseconds retry_after_ GUARDED_BY(group_->mutex()){};  // after an attempt without an answer
};

}  // namespace soft
