// SPDX-License-Identifier: BSD-3-Clause
// See the header.

#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>

// This comes last, because it asserts.
#include "peer.hpp"

namespace test {

namespace {

void set_options(int socket) {
    const int on = 1;
    assert_int_equal(setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)), 0);
    const timeval patience{.tv_sec = 40, .tv_usec = 0};
    assert_int_equal(setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
    assert_int_equal(setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)), 0);
}

}  // namespace

void Peer::connect(std::uint16_t port, int max_segment_bytes, unsigned host, int room_bytes) {
    close();
    socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(socket_ >= 0);
    if (max_segment_bytes != 0) {
        assert_int_equal(
            setsockopt(socket_, IPPROTO_TCP, TCP_MAXSEG, &max_segment_bytes, sizeof(max_segment_bytes)), 0);
    }
    if (room_bytes != 0) {
        assert_int_equal(setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &room_bytes, sizeof(room_bytes)), 0);
    }
    if (host != 1) {
        constexpr std::uint32_t network = 0xc0000200;  // 192.0.2.0
        sockaddr_in from = loopback(0);
        from.sin_addr.s_addr = htonl(network + host);
        assert_int_equal(bind(socket_, reinterpret_cast<const sockaddr *>(&from), sizeof(from)), 0);
    }
    const sockaddr_in address = loopback(port);
    assert_int_equal(::connect(socket_, reinterpret_cast<const sockaddr *>(&address), sizeof(address)), 0);
    set_options(socket_);
}

std::uint16_t Peer::listen() {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(listener_ >= 0);
    set_options(listener_);
    sockaddr_in address = loopback(0);
    socklen_t length = sizeof(address);
    assert_int_equal(bind(listener_, reinterpret_cast<const sockaddr *>(&address), length), 0);
    assert_int_equal(::listen(listener_, 4), 0);
    assert_int_equal(getsockname(listener_, reinterpret_cast<sockaddr *>(&address), &length), 0);
    return ntohs(address.sin_port);
}

void Peer::accept() {
    socket_ = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    assert_true(socket_ >= 0);
    set_options(socket_);
}

void Peer::send(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const ssize_t count = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        assert_true(count > 0);
        bytes = bytes.subspan(static_cast<std::size_t>(count));
        sent_bytes_ += static_cast<std::size_t>(count);
    }
}

Bytes Peer::receive(std::size_t size) {
    Bytes bytes(size);
    const ssize_t count = size == 0 ? 0 : recv(socket_, bytes.data(), size, MSG_WAITALL);
    assert_int_equal(count, size);
    return bytes;
}

Fpdu Peer::receive_fpdu() {
    using namespace soft::wire;
    Bytes all = receive(fpdu_length_bytes);
    const std::size_t size = std::to_integer<std::size_t>(all[0]) << 8 | std::to_integer<std::size_t>(all[1]);
    const Bytes rest = receive(size + fpdu_trailer_bytes(size));
    return taken_apart(joined(std::move(all), rest));
}

Frame Peer::receive_frame(soft::wire::MpaRole role) {
    using namespace soft::wire;
    Frame frame;
    frame.raw = receive(mpa_header_bytes);
    const auto tail = mpa_tail_bytes(std::span{frame.raw}.first<mpa_header_bytes>(), role);
    assert_true(tail.has_value());
    frame.raw = joined(std::move(frame.raw), receive(*tail));
    const auto mpa = decode_mpa_frame(frame.raw, role);
    assert_true(mpa.has_value());
    frame.mpa = *mpa;
    frame.private_data.assign(mpa->private_data.begin(), mpa->private_data.end());
    frame.mpa.private_data = {};
    return frame;
}

void Peer::send_frame(const soft::wire::MpaFrame &frame) {
    send(encoded(frame));
}

bool Peer::silent() const {
    std::byte byte;
    return recv(socket_, &byte, sizeof(byte), MSG_DONTWAIT | MSG_PEEK) < 0 && errno == EAGAIN;
}

bool Peer::has_data() const {
    std::byte byte;
    return recv(socket_, &byte, sizeof(byte), MSG_DONTWAIT | MSG_PEEK) > 0;
}

bool Peer::has_ended() {
    std::array<std::byte, 4096> waste;
    ssize_t count = 0;
    do {
        count = recv(socket_, waste.data(), waste.size(), MSG_DONTWAIT);
    } while (count > 0);
    return count == 0 || errno != EAGAIN;
}

Bytes Peer::receive_rest() {
    Bytes all;
    std::array<std::byte, 4096> some;
    while (true) {
        const ssize_t count = recv(socket_, some.data(), some.size(), 0);
        if (count <= 0) {
            assert_true(count == 0 || errno == ECONNRESET);  // EAGAIN would mean that it never ended
            return all;
        }
        all.insert(all.end(), some.begin(), some.begin() + count);
    }
}

void Peer::finish() {
    (void)shutdown(socket_, SHUT_WR);  // may have ended already
}

void Peer::close() {
    for (int *const fd : {&socket_, &listener_}) {
        if (*fd >= 0) {
            ::close(*fd);
            *fd = -1;
        }
    }
    sent_bytes_ = 0;
}

Bytes encoded(const soft::wire::MpaFrame &frame) {
    std::array<std::byte, soft::wire::mpa_max_frame_bytes> room;
    const std::size_t size = soft::wire::encode_mpa_frame(frame, room);
    return {room.begin(), room.begin() + static_cast<std::ptrdiff_t>(size)};
}

Bytes ready_to_receive(bool crc) {
    return fpdu({.opcode = soft::wire::Opcode::Write, .stag = 1}, {}, crc);
}

}  // namespace test
