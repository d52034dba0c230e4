// SPDX-License-Identifier: BSD-3-Clause
// rsocket/poll: waiting for rsockets and other descriptors together.
#pragma once

#include <poll.h>

#include <span>

#include "rsocket/any_socket.hpp"

namespace rsockets {

// Waits as poll(2), and returns how many entries have something. EINTR; EMFILE, ENFILE, ENOMEM: there is no
// descriptor for the thread to be woken by.
[[nodiscard]] Result<int> wait_for(std::span<pollfd> entries, Deadline deadline);

}  // namespace rsockets
