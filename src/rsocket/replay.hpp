// SPDX-License-Identifier: BSD-3-Clause
// rsocket/replay: the server and the bytes that an rsocket keeps while it connects, so that it can connect
// once more, in TCP, and send the bytes there.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "base/result.hpp"

namespace rsockets {

// The lock of the rsocket guards it. fd is the kernel's socket: it connects once more, and keeps its number,
// its options and its name, and is still in every set that waits for it.
class Replay {
public:
    // The socket is about to connect to the server for the first time.
    void begin(int fd, const sockaddr_storage &server);
    [[nodiscard]] const sockaddr_storage &server() const { return server_; }
    // Returns the same server with nothing to send, for the rsocket of a forked child.
    [[nodiscard]] Replay in_child() const;

    // Keeps the bytes that the stream has kept.
    void keep_all(std::vector<std::byte> unsent) { unsent_ = std::move(unsent); }
    // Keeps bytes, up to `most` with those that are here. EAGAIN: there is no room.
    [[nodiscard]] base::Result<std::size_t> keep(std::span<const iovec> parts, std::size_t most);
    void forget() { unsent_.clear(); }

    // Ends the socket's connection. The socket is bound as it was.
    void disconnect(int fd) const;
    // Connects to the server, without waiting for it.
    [[nodiscard]] base::Result<void> connect(int fd) const;
    // Sends the kept bytes. EAGAIN: the kernel does not take all of it yet.
    [[nodiscard]] base::Result<void> send(int fd);

private:
    sockaddr_storage server_{};
    std::optional<sockaddr_storage> bound_;  // the program has bound the rsocket to it
    std::vector<std::byte> unsent_;
};

}  // namespace rsockets
