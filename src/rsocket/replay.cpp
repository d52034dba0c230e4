// SPDX-License-Identifier: BSD-3-Clause
#include "rsocket/replay.hpp"

#include <algorithm>
#include <cerrno>

#include "base/address.hpp"
#include "base/parts.hpp"
#include "rsocket/kernel_socket.hpp"
#include "stream/address.hpp"

namespace rsockets {

void Replay::begin(int fd, const sockaddr_storage &server) {
    server_ = server;
    const auto name = stream::name_of(fd);
    bound_ = name && base::port_of(*name) != 0 ? std::optional{*name} : std::nullopt;
}

Replay Replay::in_child() const {
    Replay childs;
    childs.server_ = server_;
    childs.bound_ = bound_;
    return childs;
}

base::Result<std::size_t> Replay::keep(std::span<const iovec> parts, std::size_t most) {
    const std::size_t bytes = base::append(parts, most, unsent_);
    return bytes != 0 || base::size_of(parts) == 0 ? base::Result<std::size_t>{bytes} : base::failure(EAGAIN);
}

void Replay::disconnect(int fd) const {
    make_unconnected(fd);
    if (bound_) {
        // The kernel keeps a port that was chosen, and forgets one that it chose itself.
        (void)::bind(fd, reinterpret_cast<const sockaddr *>(&*bound_), base::length_of(*bound_));
    }
}

base::Result<void> Replay::connect(int fd) const {
    const int result = ::connect(fd, reinterpret_cast<const sockaddr *>(&server_), base::length_of(server_));
    return result == 0 || errno == EINPROGRESS ? base::Result<void>{} : base::last_failure();
}

base::Result<void> Replay::send(int fd) {
    while (!unsent_.empty()) {
        const ssize_t count = ::send(fd, unsent_.data(), unsent_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (count < 0) {
            return errno == EINTR ? base::failure(EAGAIN) : base::last_failure();
        }
        unsent_.erase(unsent_.begin(), unsent_.begin() + count);
    }
    return {};
}

}  // namespace rsockets
