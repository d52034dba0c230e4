// SPDX-License-Identifier: BSD-3-Clause
#include "rsocket/listening.hpp"

#include <netinet/in.h>

#include <cerrno>

#include "base/address.hpp"
#include "rsocket/kernel_socket.hpp"
#include "rsocket/sleep.hpp"
#include "stream/address.hpp"

namespace rsockets {

base::Result<void> Listening::choose(const sockaddr_storage &local) {
    const bool everywhere = base::is_wildcard(local);
    const auto device =
        everywhere ? base::Result<const stream::Device *>{nullptr} : stream::Device::of_kernel_at(local);
    if (!device) {
        return std::unexpected{device.error()};
    }
    in_tcp_ = everywhere && stream::Device::soft_may_serve(local.ss_family);
    if (*device == nullptr && !everywhere) {
        const auto soft = stream::Device::soft_at(local);
        if (!soft && soft.error().number != EADDRNOTAVAIL) {
            return std::unexpected{soft.error()};
        }
        in_tcp_ = soft.has_value();
    }
    return {};
}

base::Result<void> Listening::begin(int fd, sockaddr_storage local, int backlog) {
    const bool reuse = has_option(fd, SOL_SOCKET, SO_REUSEADDR);
    const bool everywhere = base::is_wildcard(local);
    if (in_tcp_ && ::listen(fd, backlog) != 0) {
        return base::last_failure();
    }
    if (!in_tcp_) {
        share_port(fd);
        // The socket may have no port yet: bind gives it one.
        if (everywhere &&
            ::bind(fd, reinterpret_cast<const sockaddr *>(&local), base::length_of(local)) != 0 &&
            errno != EINVAL) {
            return base::last_failure();
        }
    }
    if (everywhere) {
        local = stream::name_of(fd).value_or(local);
    }
    auto listener = stream::Listener::at(
        local, {.backlog = backlog,
                .reuse = reuse,
                .v6_only = local.ss_family != AF_INET6 || has_option(fd, IPPROTO_IPV6, IPV6_V6ONLY)});
    if (!listener) {
        return std::unexpected{listener.error()};
    }
    listener_ = std::move(*listener);
    return in_tcp_ || listener_ != nullptr ? base::Result<void>{} : base::failure(EADDRNOTAVAIL);
}

short Listening::readiness(int fd, short events) const {
    const short in_tcp = in_tcp_ ? polled(fd, events) : short{0};
    return listener_ != nullptr ? static_cast<short>(in_tcp | (polled(listener_->fd(), events) & POLLIN))
                                : in_tcp;
}

void Listening::add_descriptor(std::vector<pollfd> &descriptors) const {
    if (listener_ != nullptr) {
        descriptors.push_back({.fd = listener_->fd(), .events = POLLIN, .revents = 0});
    }
}

base::Result<Listening::Client> Listening::next(int fd, sockaddr *address, socklen_t *length, int flags) {
    const int close_on_exec = flags & SOCK_CLOEXEC;
    if (listener_ != nullptr) {
        auto asked = listener_->next();
        if (asked) {
            base::Fd own{::socket(family_of(fd), SOCK_STREAM | SOCK_NONBLOCK | close_on_exec, 0)};
            return own ? base::Result<Client>{Client{.fd = std::move(own), .asked = std::move(*asked)}}
                       : base::last_failure();
        }
        if (asked.error().number != EAGAIN || !in_tcp_) {
            return std::unexpected{asked.error()};
        }
    }
    // The kernel's socket never blocks, because the device wants it so: the rsocket knows whether the
    // program's calls wait.
    base::Fd connected{accept4(fd, address, length, SOCK_NONBLOCK | close_on_exec)};
    if (!connected) {
        return errno == ECONNABORTED ? base::failure(EAGAIN) : base::last_failure();
    }
    return Client{.fd = std::move(connected), .asked = std::nullopt};
}

}  // namespace rsockets
