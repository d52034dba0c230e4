// SPDX-License-Identifier: BSD-3-Clause
// rsocket/any_socket: the facts about an rsocket that other programs see (src/registry).
#include <sys/stat.h>

#include <algorithm>
#include <cstring>

#include "rsocket/carrier.hpp"
#include "rsocket/datagram_socket.hpp"

namespace rsockets {

namespace {

using registry::Description;
using registry::Mode;

Description::Address address_of(const sockaddr_storage &address) {
    Description::Address copy{};
    static_assert(sizeof(copy) == sizeof(sockaddr_in6));
    std::memcpy(&copy, &address, sizeof(copy));
    return copy;
}

template <std::size_t size>
std::array<char, size> text_of(std::string_view text) {
    std::array<char, size> copy{};
    std::ranges::copy(text.substr(0, size - 1), copy.begin());
    return copy;
}

registry::State state_of(Carrier::State state) {
    switch (state) {
        case Carrier::State::Fresh:
        case Carrier::State::Lost:
            break;
        case Carrier::State::Listening:
            return registry::State::Listening;
        case Carrier::State::Connecting:
            return registry::State::Connecting;
        case Carrier::State::Accepted:
            return registry::State::Accepted;
        case Carrier::State::Streaming:
            return registry::State::Connected;
    }
    return registry::State::Fresh;
}

}  // namespace

void AnySocket::describe(Description description) {
    if (!entry_) {
        entry_ = registry::Book::instance().add();
    }
    if (!entry_) {
        return;
    }
    struct stat status{};
    sockaddr_storage name{};
    socklen_t length = sizeof(name);
    description.fd = fd();
    description.inode = fstat(fd(), &status) == 0 ? status.st_ino : 0;
    if (description.local.family == AF_UNSPEC &&
        getsockname(fd(), reinterpret_cast<sockaddr *>(&name), &length) == 0) {
        description.local = address_of(name);
    }
    length = sizeof(name);
    if (description.peer.family == AF_UNSPEC &&
        getpeername(fd(), reinterpret_cast<sockaddr *>(&name), &length) == 0) {
        description.peer = address_of(name);
    }
    entry_.describe(description);
}

void Carrier::list() {
    Description description{.state = closed_ ? registry::State::Closing : state_of(state_)};
    if (state_ == State::Listening && !listening_.is_in_tcp()) {
        description.mode = Mode::Rdma;
    }
    if (const StreamLock in_stream{stream()}) {
        const stream::Device &device = stream()->shard()->device();
        description.mode = Mode::Rdma;
        description.device = text_of<sizeof(description.device)>(device.name());
        if (device.is_of_kernel()) {
            description.local = address_of(stream()->name(base::End::Local).value_or(sockaddr_storage{}));
            description.peer = address_of(stream()->name(base::End::Peer).value_or(sockaddr_storage{}));
        }
    }
    rsocket_.describe(description);
}

void Carrier::list_in_child() {
    if (state_ == State::Listening && !rsocket_.entry()) {
        list();
    }
}

void DatagramSocket::list() {
    describe({.kind = registry::Kind::Datagram,
              .state = closed_ ? registry::State::Closing : registry::State::Fresh,
              .mode = Mode::Udp});
}

}  // namespace rsockets
