// SPDX-License-Identifier: BSD-3-Clause
// rsocket/listening: where an rsocket listens, and the clients that come there.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <memory>
#include <optional>
#include <vector>

#include "base/fd.hpp"
#include "base/result.hpp"
#include "stream/listener.hpp"

namespace rsockets {

// The lock of the rsocket guards it. fd is the kernel's socket.
class Listening {
public:
    // Finds out whether the rsocket is to listen in TCP at the address.
    [[nodiscard]] base::Result<void> choose(const sockaddr_storage &local);
    // Listens there, and at each of the address's devices of the kernel.
    [[nodiscard]] base::Result<void> begin(int fd, sockaddr_storage local, int backlog);
    // The kernel's socket listens already.
    void begin_in_tcp() { in_tcp_ = true; }

    [[nodiscard]] bool is_in_tcp() const { return in_tcp_; }
    // Returns whether it listens at a device of the kernel.
    [[nodiscard]] bool is_at_devices() const { return listener_ != nullptr; }
    // Returns which of `events` (poll(2)) there are now.
    [[nodiscard]] short readiness(int fd, short events) const;
    // The descriptor that tells of clients at devices of the kernel.
    void add_descriptor(std::vector<pollfd> &descriptors) const;

    struct Client {
        base::Fd fd;  // a socket of the kernel
        std::optional<stream::Asked>
            asked;  // over a device of the kernel; without it the socket is connected
    };
    // Takes the next client. The address is the client's in TCP. EAGAIN: there is none.
    [[nodiscard]] base::Result<Client> next(int fd, sockaddr *address, socklen_t *length, int flags);

private:
    // Takes peers over devices of the kernel; nullptr where no such device serves the address.
    std::unique_ptr<stream::Listener> listener_;
    bool in_tcp_ = false;
};

}  // namespace rsockets
