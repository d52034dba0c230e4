// SPDX-License-Identifier: BSD-3-Clause
// cli/plain_tcp: connections of plain TCP, with deadlines, by which a command finds out what a server speaks.
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <cstddef>
#include <span>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "cli/arguments.hpp"
#include "cli/failure.hpp"

namespace cli {

// Connects to the first of the host's addresses that accepts, and returns that address.
[[nodiscard]] Outcome<base::Fd> connect_tcp(const Address &address, base::Clock::time_point until,
                                            sockaddr_storage &peer);
// Waits until the socket has one of the events; returns false when it has none by then.
[[nodiscard]] bool wait_until_ready(const base::Fd &fd, short events, base::Clock::time_point until);
// Returns whether the socket took all bytes at once.
[[nodiscard]] bool send_all(const base::Fd &fd, std::span<const std::byte> bytes);

// Returns whether the bytes begin as an alert or a handshake of TLS does (RFC 8446 section 5.1).
[[nodiscard]] bool is_tls(std::span<const std::byte> bytes);
// Returns whether a server speaks TLS. It makes a connection of its own.
[[nodiscard]] bool speaks_tls(const Address &address, std::chrono::milliseconds timeout);

}  // namespace cli
