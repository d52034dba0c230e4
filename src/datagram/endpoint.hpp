// SPDX-License-Identifier: BSD-3-Clause
// datagram/endpoint: messages of one UDP socket to and from others of the same protocol. A message is a
// datagram of UDP, or, where both ends have a queue pair for it, one of those:
//
//      A                                        B
//      │ over UDP: message, A's queue pair      │
//      │ ──────────────────────────────────────►│
//      │                                        │ serve(): gives the message to the program, and answers
//      │ over UDP: answer, B's queue pair       │
//      │ ◄──────────────────────────────────────│
//      │ from queue pair to queue pair: message │
//      │ ──────────────────────────────────────►│
//
// Where no answer comes, messages go over UDP for good. An answer counts for a time, as long as B is heard:
// then the next message goes over UDP again, because B may have another queue pair, or none.
//
// The caller has a lock around all of it, and nothing happens while nobody calls.
#pragma once

#include <sys/uio.h>

#include <unordered_map>
#include <utility>

#include "base/clock.hpp"
#include "base/result.hpp"
#include "datagram/inbox.hpp"
#include "datagram/queue_pair.hpp"
#include "datagram/udp.hpp"

namespace datagram {

class Endpoint {
public:
    // The socket is borrowed; it is prepared (udp::prepare).
    Endpoint(int socket, int family, Room room)
        : socket_{socket}, family_{family}, room_{room}, inbox_{room.receives} {}
    Endpoint(const Endpoint &) = delete;
    Endpoint &operator=(const Endpoint &) = delete;
    ~Endpoint();

    // The socket has another peer now, or none. From now on no message comes from elsewhere.
    void peer_changed();

    // Sends the parts as one message, to the name or, where it is nullptr, to the socket's peer. EAGAIN;
    // EMSGSIZE: longer than most_message_bytes(); EDESTADDRREQ; as sendmsg(2).
    [[nodiscard]] base::Result<void> send(std::span<const iovec> parts, const sockaddr *name,
                                          socklen_t length);
    // Returns whether each queue pair has a slot free for sending.
    [[nodiscard]] bool can_send() const;
    // Returns whether everything that was sent has left the devices.
    [[nodiscard]] bool has_sent_all() const;

    // Takes the messages that have come, as far as there is room for them.
    void serve();
    [[nodiscard]] bool has_message() const { return !inbox_.empty(); }
    [[nodiscard]] const Message &message() const { return inbox_.front(); }
    void drop_message() { inbox_.drop_front(); }
    // The network's error for a message that was sent, or 0.
    [[nodiscard]] int error() const { return error_; }
    [[nodiscard]] int take_error() { return std::exchange(error_, 0); }
    // Returns whether any call found something new since this was asked.
    [[nodiscard]] bool take_news() { return std::exchange(has_news_, false); }

    // Returns whether serve() has room for the socket's messages.
    [[nodiscard]] bool has_room() const { return !inbox_.full(); }
    // The queue pairs that are to be waited for, beside the socket. A new one is news, and lives as long as
    // the endpoint does.
    [[nodiscard]] std::vector<QueuePair *> pairs() const;

private:
    // An address of this machine that messages leave from or come to. It has no queue pair where no device
    // has one.
    struct Local {
        Address address;
        std::unique_ptr<QueuePair> pair;
    };
    // An address that the program sends to.
    struct Peer {
        Ip source;                  // from which messages to it leave
        QueuePair *from = nullptr;  // null for UDP only
        std::uint32_t qp_num = 0;   // its queue pair, 0 when unknown
        verbs::Id look_up;          // while the way to it is looked for
        verbs::AddressHandle way;
        base::Clock::time_point used;
        base::Clock::time_point heard;     // of its queue pair
        base::Clock::time_point searched;  // when the way was looked for
    };

    [[nodiscard]] Peer &peer_at(const Address &address);
    void forget_one();
    [[nodiscard]] QueuePair *pair_at(const Address &here);
    [[nodiscard]] static bool is_reached(const Peer &peer, std::size_t message_bytes);
    // Returns whether it was sent: false when no slot is free, nothing when the message has to go over UDP.
    [[nodiscard]] std::optional<bool> send_by_pair(Peer &peer, std::span<const iovec> parts,
                                                   std::size_t bytes);
    [[nodiscard]] std::uint16_t own_port();
    void serve_socket();
    void serve_pair(const Local &local);
    void finish_look_ups();
    void arrived(const udp::Arrival &arrival, std::span<const std::byte> datagram);
    void answer(const udp::Arrival &arrival);
    void learn(const Address &from, std::uint32_t qp_num);
    void received(const Local &local, const QueuePair::Received &message);
    void deliver(const Address &from, std::span<const std::byte> content);

    const int socket_;
    const int family_;
    const Room room_;
    Inbox inbox_;
    int error_ = 0;
    bool has_news_ = false;
    std::uint64_t dropped_ = 0;
    std::uint16_t own_port_ = 0;  // 0 until it is asked for
    std::optional<Address> default_peer_;
    std::vector<Local> locals_;                               // at most most_locals
    std::unordered_map<Address, Peer, Address::Hash> peers_;  // at most most_peers; they use the queue pairs
    std::size_t look_ups_ = 0;                                // peers to which the way is looked for
};

}  // namespace datagram
