// SPDX-License-Identifier: BSD-3-Clause
#include "soft/link/tcp_link.hpp"

#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cerrno>

#include "base/parts.hpp"

namespace soft {

namespace {

// Every path takes this much, so it is used when the kernel does not tell the size.
constexpr std::size_t smallest_segment_bytes = 536;

template <typename T>
void set(int socket, int level, int option, T value) {
    (void)setsockopt(socket, level, option, &value, sizeof(value));
}

// A small message is one piece, which costs the kernel less without a msghdr.
ssize_t send_pieces(int socket, std::span<const iovec> pieces) {
    constexpr int flags = MSG_NOSIGNAL | MSG_DONTWAIT;
    if (pieces.size() == 1) {
        return send(socket, pieces[0].iov_base, pieces[0].iov_len, flags);
    }
    const msghdr message = base::message_of(pieces.data(), pieces.size());
    return sendmsg(socket, &message, flags);
}

ssize_t receive_pieces(int socket, std::span<const iovec> pieces) {
    if (pieces.size() == 1) {
        return recv(socket, pieces[0].iov_base, pieces[0].iov_len, MSG_DONTWAIT);
    }
    msghdr message = base::message_of(pieces.data(), pieces.size());
    return recvmsg(socket, &message, MSG_DONTWAIT);
}

// Readiness is level-triggered, so an interrupted caller tries again.
constexpr bool is_for_later(int error) {
    return error == EAGAIN || error == EINTR;
}

}  // namespace

[[gnu::hot]] Link::Sent TcpLink::send(std::span<const iovec> pieces) {
    const ssize_t count = send_pieces(socket_.get(), pieces);
    if (count >= 0) [[likely]] {
        return {.bytes = static_cast<std::size_t>(count)};
    }
    return {.error = is_for_later(errno) ? 0 : errno};
}

bool TcpLink::finish() {
    (void)shutdown(socket_.get(), SHUT_WR);
    return true;
}

[[gnu::hot]] Link::Received TcpLink::receive(std::span<const iovec> pieces) {
    const ssize_t count = receive_pieces(socket_.get(), pieces);
    if (count > 0) {
        const auto bytes = static_cast<std::size_t>(count);
        return {.bytes = bytes,
                .state = bytes < base::size_of(pieces) ? Received::State::Drained : Received::State::More};
    }
    if (count == 0) {
        return {.state = Received::State::Ended};
    }
    if (is_for_later(errno)) {
        return {};
    }
    return {.state = Received::State::Failed, .error = errno};
}

void TcpLink::abort() {
    (void)shutdown(socket_.get(), SHUT_RDWR);
}

void TcpLink::abandon() {
    set(socket_.get(), SOL_SOCKET, SO_LINGER, linger{.l_onoff = 1, .l_linger = 0});
}

bool TcpLink::own_lent_descriptor() {
    if (socket_.is_borrowed()) {
        socket_ = base::Fd{fcntl(socket_.get(), F_DUPFD_CLOEXEC, 0)};
    }
    return static_cast<bool>(socket_);
}

// poll(2) does not take the socket's lock.
Link::Ready TcpLink::ready() const {
    pollfd state{.fd = socket_.get(), .events = POLLIN | POLLOUT | POLLRDHUP, .revents = 0};
    if (poll(&state, 1, 0) < 0) {
        return {.readable = true, .writable = true, .ended = false};  // the next send or receive will tell
    }
    const int found = state.revents;
    return {.readable = (found & ~POLLOUT) != 0,
            .writable = (found & ~(POLLIN | POLLRDHUP)) != 0,
            .ended = (found & ~(POLLIN | POLLOUT)) != 0};
}

int TcpLink::failure() {
    int error = 0;
    socklen_t length = sizeof(error);
    return getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : errno;
}

std::size_t TcpLink::unread_bytes() const {
    int bytes = 0;
    return ioctl(socket_.get(), SIOCINQ, &bytes) == 0 && bytes > 0 ? static_cast<std::size_t>(bytes) : 0;
}

bool TcpLink::undelivered() const {
    int bytes = 0;
    return ioctl(socket_.get(), SIOCOUTQ, &bytes) == 0 && bytes > 0;
}

std::chrono::milliseconds TcpLink::user_timeout() const {
    unsigned milliseconds = 0;
    socklen_t size = sizeof(milliseconds);
    const bool known = getsockopt(socket_.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, &size) == 0;
    return std::chrono::milliseconds{known ? milliseconds : 0};
}

void TcpLink::limit_unsent(std::size_t bytes) {
    set(socket_.get(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, static_cast<unsigned>(bytes));
}

std::size_t TcpLink::max_segment() const {
    int bytes = 0;
    socklen_t length = sizeof(bytes);
    if (getsockopt(socket_.get(), IPPROTO_TCP, TCP_MAXSEG, &bytes, &length) != 0 || bytes <= 0) {
        return smallest_segment_bytes;
    }
    return static_cast<std::size_t>(bytes);
}

}  // namespace soft
