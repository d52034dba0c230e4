// SPDX-License-Identifier: BSD-3-Clause
// See the header.
#include "hostile_peer.hpp"

#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "../loopback.hpp"
#include "choices.hpp"

namespace fuzz {

namespace {

constexpr std::size_t remembered_bytes = 1024;
constexpr int turns_after_a_piece = 3;

// This bound measures nothing. A call that has not ended by then hangs.
class Deadline {
public:
    [[nodiscard]] bool passed() const { return std::chrono::steady_clock::now() > at_; }

private:
    std::chrono::steady_clock::time_point at_ = std::chrono::steady_clock::now() + std::chrono::seconds{20};
};

// The device connects to this socket.
struct Listener {
    int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    std::uint16_t port = 0;

    Listener() {
        sockaddr_in address = test::loopback(0);
        socklen_t length = sizeof(address);
        require(bind(socket, reinterpret_cast<sockaddr *>(&address), length) == 0 && listen(socket, 4) == 0 &&
                    getsockname(socket, reinterpret_cast<sockaddr *>(&address), &length) == 0,
                "a peer can listen");
        port = ntohs(address.sin_port);
    }
};

}  // namespace

HostilePeer::HostilePeer(FuzzDevice &device, const Acceptance &acceptance)
    : device_{device}, socket_{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)} {
    sockaddr_in address = test::loopback(device.port());
    socklen_t length = sizeof(address);
    require(socket_ >= 0 && ::connect(socket_, reinterpret_cast<sockaddr *>(&address), length) == 0,
            "the listener takes TCP connections");
    require(getsockname(socket_, reinterpret_cast<sockaddr *>(&address), &length) == 0,
            "a socket has a name");
    device.expect(ntohs(address.sin_port), acceptance);
    open_wire(test::Wire::Side::Client);
}

HostilePeer::HostilePeer(FuzzDevice &device, unsigned receives) : device_{device} {
    static const Listener &listener = *new Listener;  // all inputs share this listener
    device.connect(listener.port, receives);
    socket_ = accept4(listener.socket, nullptr, nullptr, SOCK_CLOEXEC);
    require(socket_ >= 0, "the device comes to where it was sent");
    open_wire(test::Wire::Side::Server);
}

void HostilePeer::open_wire(test::Wire::Side side) {
    const int on = 1;
    (void)setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    wire_.emplace(socket_, side);
}

HostilePeer::~HostilePeer() {
    reset();
}

void HostilePeer::receive() {
    if (!ended_) {
        ended_ = wire_->take(received_).has_value();
        received_.resize(std::min(received_.size(), remembered_bytes));
    }
}

void HostilePeer::turn() {
    device_.turn();
    receive();
}

void HostilePeer::send(std::span<const std::byte> bytes) {
    const Deadline deadline;
    while (!bytes.empty() && !ended_) {
        const std::size_t count = wire_->give(bytes);
        bytes = bytes.subspan(count);
        if (count == 0) {
            device_.post_receive(FuzzDevice::open_bytes);  // the device may wait for a receive
        }
        turn();
        require(!deadline.passed(), "the device takes what is sent, or ends the connection");
    }
    for (int i = 0; i < turns_after_a_piece && !ended_; ++i) {
        turn();
    }
}

void HostilePeer::await_answer() {
    const Deadline deadline;
    while (!ended_ && !device_.answered()) {
        turn();
        require(!deadline.passed(), "a start-up is answered, or ends");
    }
}

void HostilePeer::finish() {
    wire_->finish();
    const Deadline deadline;
    while (!ended_) {
        device_.post_receive(FuzzDevice::open_bytes);  // a stream that stalls waits for one
        turn();
        require(!deadline.passed(), "the device closes a connection that its peer has closed");
    }
}

void HostilePeer::reset() {
    if (socket_ >= 0) {
        const linger at_once{.l_onoff = 1, .l_linger = 0};
        (void)setsockopt(socket_, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
        ::close(socket_);
        socket_ = -1;
    }
}

}  // namespace fuzz
