// SPDX-License-Identifier: BSD-3-Clause
// soft/ground/tcp: sockets up to a connection; TcpLink carries its bytes. All are non-blocking and closed on
// exec.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/fd.hpp"
#include "base/result.hpp"

namespace soft::tcp {

using Address = sockaddr_storage;

// Returns a copy of an address. An IPv4 address that is mapped into an IPv6 one, as a socket of both families
// returns it, becomes IPv4 again.
[[nodiscard]] Address copy_of(const sockaddr &address);
// An address as text, "127.0.0.1:7204" or "[::1]:7204". It needs no memory, because the log may be about
// missing memory.
class Text {
public:
    [[nodiscard]] const char *c_str() const { return characters_.data(); }

private:
    friend Text text_of(const Address &address);
    std::array<char, INET6_ADDRSTRLEN + sizeof("[]:65535")> characters_{};
};
[[nodiscard]] Text text_of(const Address &address);
// Returns the socket's own address, as copy_of() does.
[[nodiscard]] Address local_address(int socket);
[[nodiscard]] Address peer_address(int socket);

struct Options {
    bool reuse_address = false;
    std::optional<bool> v6_only;
    std::optional<std::uint8_t> service_type;  // the octet of RFC 2474
    bool within_host = false;                  // the peer is on this host, where there is one path
    bool port_when_connected = false;          // connect() finds the port, so that it may be one of others
};

void set_service_type(int socket, std::uint8_t service_type);

// Returns a socket that is bound to the address; port 0 takes a free one, or leaves that to connect().
[[nodiscard]] base::Result<base::Fd> bound(const sockaddr &address, const Options &options);
[[nodiscard]] base::Result<void> listen(int socket, int backlog);
// A connection that came to a listening socket.
struct AcceptedSocket {
    base::Fd socket;
    Address peer;
};
// Returns the next connection. Fails with EAGAIN when there is none.
[[nodiscard]] base::Result<AcceptedSocket> accept(int socket);
// Makes a connected stream socket of the program ready to be served, with a descriptor of its own, or with fd
// itself, borrowed. Fails with EINVAL for anything else.
[[nodiscard]] base::Result<base::Fd> adopted(int fd, bool borrow);
// Starts to connect, from bound_socket or a new one. The connection is made when the socket becomes writable.
[[nodiscard]] base::Result<base::Fd> connect(base::Fd bound_socket, const sockaddr &to,
                                             const Options &options);

// Returns the source address that the routing table chooses towards `to`, with port 0, or `from` when that is
// given and possible.
[[nodiscard]] base::Result<Address> source_towards(const sockaddr &to, const Address *from);

// Sets TCP_NODELAY and the time-outs; those of MPTCP are MultipathLink's. A peer that vanished is noticed
// after limits::silence_timeout, also on an idle connection, because keep-alives are sent; with a user
// time-out TCP does not count them.
void set_connection_options(int socket);

}  // namespace soft::tcp
