// SPDX-License-Identifier: BSD-3-Clause
// soft/handshake: see the header.
#include "soft/handshake.hpp"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "base/log.hpp"
#include "soft/limits.hpp"
#include "soft/tcp.hpp"

namespace soft {

Handshake::Handshake(HandshakeOwner &owner, std::shared_ptr<Group> group, base::Fd socket,
                     const tcp::Address &peer, Role role, const wire::MpaFrame *request,
                     base::Milliseconds delay)
    : owner_{owner},
      group_{std::move(group)},
      socket_{std::move(socket)},
      peer_{peer},
      role_{role},
      connecting_{role == Role::Initiator},
      delayed_{delay.count() != 0} {
    if (request != nullptr) {
        request_bytes_ = wire::encode_mpa_frame(*request, request_);
    }
    group_->add(*this, socket_.get(), {.readable = !connecting_ && !delayed_, .writable = connecting_});
    group_->set_deadline(*this, base::Clock::now() + (delayed_ ? delay : limits::handshake_timeout));
}

Handshake::~Handshake() {
    if (socket_) {
        group_->remove(*this, socket_.get());
    }
}

base::Fd Handshake::take_socket() {
    group_->mutex().assert_held();
    group_->remove(*this, socket_.get());
    return std::move(socket_);
}

void Handshake::expire() {
    group_->mutex().assert_held();
    if (std::exchange(delayed_, false)) {
        group_->change(*this, socket_.get(), {}, {.readable = true});
        group_->set_deadline(*this, base::Clock::now() + limits::handshake_timeout);
        return;
    }
    // TCP may have what the peer sent in time, when this process did not run meanwhile. Each such look takes
    // the connection or a byte of one frame further, so they end.
    const tcp::Ready ready = tcp::ready(socket_.get());
    if (connecting_ ? ready.writable : ready.readable) {
        const base::Milliseconds more{connecting_ ? limits::handshake_timeout : base::Milliseconds{}};
        group_->set_deadline(*this, base::Clock::now() + more);
        progress();
        return;
    }
    fail(ETIMEDOUT, role_ == Role::Initiator ? "no answer" : "no MPA request");
}

void Handshake::give_way() {
    fail(ETIMEDOUT, "no MPA request, and too many others wait with theirs");
}

void Handshake::fail(int error, const char *text) {
    BASE_LOG_PEER(Warning, "no connection with %s: %s", tcp::text_of(peer_).c_str(), text);
    owner_.handshake_failed(*this, error);
}

void Handshake::progress() {
    if (delayed_) {
        return;
    }
    if (connecting_) {
        connected();
        return;
    }
    if (!read_up_to(wire::mpa_header_bytes)) {
        return;
    }
    const auto expected = expected_role();
    const auto tail = wire::mpa_tail_bytes(std::span{frame_}.first<wire::mpa_header_bytes>(), expected);
    if (!tail) {
        fail(EPROTO, tail.error().text);
        return;
    }
    if (!read_up_to(wire::mpa_header_bytes + *tail)) {
        return;
    }
    const auto frame = wire::decode_mpa_frame(std::span{frame_}.first(frame_bytes_), expected);
    if (!frame) {
        fail(EPROTO, frame.error().text);
        return;
    }
    try {
        owner_.handshake_done(*this, *frame);
    } catch (const std::bad_alloc &) {
        fail(ENOMEM, "out of memory");
    }
}

// The socket is writable: connected, or not to be connected.
void Handshake::connected() {
    sockaddr_storage peer;
    socklen_t length = sizeof(peer);
    const int error = tcp::pending_error(socket_.get());
    if (error != 0) {
        fail(error, std::strerror(error));
        return;
    }
    if (getpeername(socket_.get(), reinterpret_cast<sockaddr *>(&peer), &length) != 0) {
        return;  // asked before its time
    }
    // A fresh socket takes so few bytes at once.
    if (send(socket_.get(), request_.data(), request_bytes_, MSG_NOSIGNAL) !=
        static_cast<ssize_t>(request_bytes_)) {
        const int send_error = errno;
        fail(send_error, std::strerror(send_error));
        return;
    }
    connecting_ = false;
    group_->change(*this, socket_.get(), {.writable = true}, {.readable = true});
}

// Never a byte more: what follows the frame is the queue pair's.
bool Handshake::read_up_to(std::size_t bytes) {
    while (frame_bytes_ < bytes) {
        const ssize_t count = recv(socket_.get(), frame_.data() + frame_bytes_, bytes - frame_bytes_, 0);
        if (count > 0) {
            frame_bytes_ += static_cast<std::size_t>(count);
            // A peer that speaks another protocol is known by its first bytes, however few it sends.
            if (!wire::may_begin_mpa_frame(std::span{frame_}.first(frame_bytes_), expected_role())) {
                fail(EPROTO,
                     role_ == Role::Initiator ? "not an MPA reply frame" : "not an MPA request frame");
                return false;
            }
            continue;
        }
        if (count < 0 && (errno == EAGAIN || errno == EINTR)) {
            return false;
        }
        const int error = count == 0 ? ECONNRESET : errno;
        fail(error, count == 0 ? "closed before the end of the MPA start-up frame" : std::strerror(error));
        return false;
    }
    return true;
}

}  // namespace soft
