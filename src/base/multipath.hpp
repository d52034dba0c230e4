// SPDX-License-Identifier: BSD-3-Clause
// base/multipath: TCP connections that use several networks at once, and go on when one of them is lost:
// MPTCP (RFC 8684), where SOFTRDMA_MPTCP chooses it. The kernel does it all, and its path manager (`ip
// mptcp`) says which addresses such a connection uses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/fd.hpp"
#include "base/result.hpp"

namespace base {

// Auto: where the path manager may add paths, because it has endpoints or takes addresses that peers
// announce.
enum class Multipath : std::uint8_t { Auto, On, Off };

// Returns the meaning of this value of SOFTRDMA_MPTCP, nullptr when it is not set. Fails with EINVAL, and
// logs it, when the value is not valid.
[[nodiscard]] Result<Multipath> multipath_asked_for(const char *value);
// Returns the meaning of SOFTRDMA_MPTCP at the first call. After a failure no device opens.
[[nodiscard]] const Result<Multipath> &multipath_of_environment();

// Returns a new socket of TCP that does not block, of MPTCP where SOFTRDMA_MPTCP chooses it and the kernel
// has it. `flags` are those of socket(2). A peer without MPTCP notices nothing but an option of TCP. Fails as
// socket(2) does.
[[nodiscard]] Result<Fd> stream_socket(int family, int flags);

// Returns whether new sockets of this process are of MPTCP. A change of `ip mptcp` is seen within a second.
[[nodiscard]] bool uses_multipath();

// Returns whether a socket is one of MPTCP, also when its peer has none.
[[nodiscard]] bool is_multipath(int socket);

// The kernel tells this of a connection of MPTCP.
struct MultipathState {
    std::uint64_t acknowledged = 0;  // changes when the peer acknowledges bytes
    std::uint32_t silent_ms = 0;     // since the peer's last acknowledgement, also of a keep-alive
};
// Returns nothing for a socket whose connection is plain TCP. The kernel passes all options of a socket of
// MPTCP whose peer has none to TCP, which then has those that MPTCP has not.
[[nodiscard]] std::optional<MultipathState> multipath_state(int socket);

// Returns how many paths a connection of MPTCP has; nothing when it is plain TCP. A path that is silent
// counts until TCP gives it up.
[[nodiscard]] std::optional<std::size_t> paths_of(int socket);

}  // namespace base
