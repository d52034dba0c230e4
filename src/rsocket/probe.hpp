// SPDX-License-Identifier: BSD-3-Clause
// rsocket/probe: whom rconnect asks for RDMA. A server that speaks TCP and was asked drops the connection, or
// waits for more: so it is remembered for a while. Any number of threads may call. Addresses are not mapped
// ones.
#pragma once

#include <sys/socket.h>

namespace rsockets {

// Returns RDMA_REASON_NONE when the address is to be asked, else why not.
[[nodiscard]] int why_not_ask(const sockaddr_storage &address);
// Whether an rsocket is known to listen there: an administrator, or a process of this machine, says so.
[[nodiscard]] bool is_known(const sockaddr_storage &address);

void remember_tcp(const sockaddr_storage &address);
void forget_tcp(const sockaddr_storage &address);

}  // namespace rsockets
