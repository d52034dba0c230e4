// SPDX-License-Identifier: BSD-3-Clause
// rsocket/any_socket: the facts about an rsocket that other programs see (src/registry).
#include <sys/stat.h>

#include <algorithm>
#include <cstring>

#include "rsocket/carrier.hpp"
#include "rsocket/datagram_socket.hpp"

#include <rpma/rsocket.h>

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
        case Carrier::State::Reaching:
        case Carrier::State::Offered:
        case Carrier::State::Replaying:
            return registry::State::Connecting;
        case Carrier::State::Undecided:
            return registry::State::Accepted;
        case Carrier::State::Streaming:
        case Carrier::State::Plain:
            return registry::State::Connected;
    }
    return registry::State::Fresh;
}

// Returns an RDMA_REASON_ in words, and "" for RDMA_REASON_NONE.
const char *text_of_reason(int reason) {
    switch (reason) {
        case RDMA_REASON_PEER_SPEAKS_TCP:
            return "the peer speaks TCP";
        case RDMA_REASON_SPOKE_FIRST:
            return "the server spoke first";
        case RDMA_REASON_NOT_ASKED:
            return "the peer was not asked";
        case RDMA_REASON_PEER_REFUSED:
            return "the peer refused";
        case RDMA_REASON_PEER_SILENT:
            return "the peer did not answer";
        case RDMA_REASON_REMEMBERED:
            return "the peer spoke TCP before";
        case RDMA_REASON_ADOPTED:
            return "it carried TCP before";
        default:
            return "";
    }
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
    if (state_ == State::Plain) {
        description.mode = Mode::Tcp;
        description.reason = text_of<sizeof(description.reason)>(text_of_reason(reason_));
    }
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
