// SPDX-License-Identifier: BSD-3-Clause
// datagram/endpoint: messages of one UDP socket to and from others of the same protocol, each of them one
// datagram. The caller has a lock around all of it, and nothing happens while nobody calls.
#pragma once

#include <sys/uio.h>

#include <unordered_map>
#include <utility>

#include "base/clock.hpp"
#include "base/result.hpp"
#include "datagram/inbox.hpp"
#include "datagram/udp.hpp"

namespace datagram {

class Endpoint {
public:
    // The socket is borrowed; it is prepared (udp::prepare). There is room for so many messages.
    Endpoint(int socket, std::size_t room) : socket_{socket}, inbox_{room} {}
    Endpoint(const Endpoint &) = delete;
    Endpoint &operator=(const Endpoint &) = delete;
    ~Endpoint();

    // The socket has another peer now, or none: from elsewhere nothing comes any more.
    void peer_changed();

    // Sends the parts as one message, to the name or, where it is nullptr, to the socket's peer. EAGAIN;
    // EMSGSIZE: longer than most_message_bytes(); EDESTADDRREQ; as sendmsg(2).
    [[nodiscard]] base::Result<void> send(std::span<const iovec> parts, const sockaddr *name,
                                          socklen_t length);

    // Takes what has come. True when there is something new.
    bool serve();
    [[nodiscard]] bool has_message() const { return !inbox_.empty(); }
    [[nodiscard]] const Message &message() const { return inbox_.front(); }
    void drop_message() { inbox_.drop_front(); }
    // What the network said of a message that was sent; 0: nothing.
    [[nodiscard]] int error() const { return error_; }
    [[nodiscard]] int take_error() { return std::exchange(error_, 0); }

    // Whether serve() would take what the socket has.
    [[nodiscard]] bool has_room() const { return !inbox_.full(); }

private:
    // An address that the program sends to.
    struct Peer {
        Ip source;  // from which messages to it leave
        base::Clock::time_point used;
    };
    [[nodiscard]] Peer &peer_at(const Address &address);
    bool arrived(const udp::Arrival &arrival, std::span<const std::byte> datagram);

    const int socket_;
    Inbox inbox_;
    int error_ = 0;
    std::uint64_t dropped_ = 0;
    std::optional<Address> default_peer_;
    std::unordered_map<Address, Peer, Address::Hash> peers_;  // at most most_peers
};

}  // namespace datagram
