// SPDX-License-Identifier: BSD-3-Clause
// rsocket/probe: which servers rconnect asks for RDMA, and how long a server that speaks first waits to be
// asked. A server that speaks TCP and was asked drops the connection, or waits for more; a client that
// speaks TCP costs its server the wait. So both are remembered for a while. Any number of threads may call.
// Addresses are not mapped ones; a client's port is 0.
#pragma once

#include <sys/socket.h>

#include <chrono>

namespace rsockets {

// Returns RDMA_REASON_NONE when the address is to be asked, else why not.
[[nodiscard]] int why_not_ask(const sockaddr_storage &address);
// Returns whether an rsocket is known to listen there: an administrator, or a process of this machine, says
// so.
[[nodiscard]] bool is_known(const sockaddr_storage &address);

// Returns how long a server waits for the client's request before it speaks first. Rsockets, and all else
// over the soft device, have sent theirs when TCP has accepted them, other devices a moment later. A client
// whose address was waited for in vain before has less time.
[[nodiscard]] std::chrono::microseconds grace_of(const sockaddr_storage &client);

void remember_tcp(const sockaddr_storage &address);
void forget_tcp(const sockaddr_storage &address);

}  // namespace rsockets
