// SPDX-License-Identifier: BSD-3-Clause
// soft/ground/tcp: sockets up to a connection, whose bytes are TcpLink's. All are non-blocking and closed on
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

// An IPv4 address that is mapped into an IPv6 one, as a socket of both families tells it, is IPv4 again.
[[nodiscard]] Address copy_of(const sockaddr &address);
// "127.0.0.1:7204", "[::1]:7204": for logs, also of memory that is out.
class Text {
public:
    [[nodiscard]] const char *c_str() const { return characters_.data(); }

private:
    friend Text text_of(const Address &address);
    std::array<char, INET6_ADDRSTRLEN + sizeof("[]:65535")> characters_{};
};
[[nodiscard]] Text text_of(const Address &address);
// As copy_of().
[[nodiscard]] Address local_address(int socket);
[[nodiscard]] Address peer_address(int socket);

struct Options {
    bool reuse_address = false;
    std::optional<bool> v6_only;
    std::optional<std::uint8_t> service_type;  // the octet of RFC 2474
};

void set_service_type(int socket, std::uint8_t service_type);

// A socket bound to the address; port 0 takes a free one.
[[nodiscard]] base::Result<base::Fd> bound(const sockaddr &address, const Options &options);
[[nodiscard]] base::Result<void> listen(int socket, int backlog);
// The next connection, and where its peer is; EAGAIN when there is none.
struct Accepted {
    base::Fd socket;
    Address peer;
};
[[nodiscard]] base::Result<Accepted> accept(int socket);
// A connected stream socket that somebody else made, ready to be served: by a descriptor of its own, or by fd
// itself, borrowed. EINVAL for anything else.
[[nodiscard]] base::Result<base::Fd> adopted(int fd, bool borrow);
// Starts to connect, from bound_socket or a fresh one. Done when it becomes writable.
[[nodiscard]] base::Result<base::Fd> connect(base::Fd bound_socket, const sockaddr &to,
                                             const Options &options);

// The source address that the routing table chooses towards `to`, with port 0; `from` when that is given, and
// can be.
[[nodiscard]] base::Result<Address> source_towards(const sockaddr &to, const Address *from);

// No delay. A peer that vanished is noticed after limits::silence_timeout, also when idle: keep-alives ask it
// meanwhile, and with a user timeout TCP does not count them.
void set_connection_options(int socket);

}  // namespace soft::tcp
