// SPDX-License-Identifier: BSD-3-Clause
// rsocket/socket: bytes in and out, and the events that a socket is ready for.
#include <cerrno>

#include "base/parts.hpp"
#include "rsocket/socket.hpp"
#include "rsocket/transfer.hpp"

namespace rsockets {

namespace {

constexpr int receive_flags_refused = MSG_OOB | MSG_ERRQUEUE;

// The caller holds the stream's lock.
short readiness_of(const stream::Connection &stream, std::size_t low_water, short events) {
    stream.mutex().assert_held();
    short ready = 0;
    if (stream.can_receive(low_water)) {
        ready |= POLLIN | POLLRDNORM;
    }
    if (stream.can_send()) {
        ready |= POLLOUT | POLLWRNORM;
    }
    if (stream.life().peer_ended() || stream.life().is_over()) {
        ready |= POLLRDHUP;
    }
    ready = static_cast<short>(ready & events);
    // These come when all bytes are read, and not before: a program that sees one of them reads no further.
    if (stream.life().is_over() && stream.readable() == 0) {
        ready = static_cast<short>(ready | POLLHUP | (stream.life().error() != 0 ? POLLERR : 0));
    }
    return ready;
}

}  // namespace

// A stream gives no address with its bytes.
Result<std::size_t> Socket::receive(msghdr &message, int flags) {
    const auto received = receive_parts({message.msg_iov, message.msg_iovlen}, flags);
    if (received) {
        message.msg_namelen = 0;
        message.msg_controllen = 0;
        message.msg_flags = 0;
    }
    return received;
}

Result<std::size_t> Socket::receive_part(void *bytes, std::size_t size, int flags) {
    if (const std::size_t received = carrier_.open_stream().receive(bytes, size, flags); received != 0)
        [[likely]] {
        return received;
    }
    const iovec part = base::part_of(bytes, size);
    return receive_parts({&part, 1}, flags);
}

[[gnu::noinline]] Result<std::size_t> Socket::receive_parts(std::span<const iovec> parts, int flags) {
    if ((flags & receive_flags_refused) != 0) {
        return base::failure(EOPNOTSUPP);
    }
    const base::Lock lock{carrier_.mutex()};
    const bool blocks = carrier_.blocks() && (flags & MSG_DONTWAIT) == 0;
    return Receiving{carrier_, parts, flags, blocks}.run();
}

Result<std::size_t> Socket::send(const msghdr &message, int flags) {
    if (message.msg_iovlen == 1) {
        return send_part(message.msg_iov->iov_base, message.msg_iov->iov_len, flags);
    }
    return send_parts({message.msg_iov, message.msg_iovlen}, flags);
}

Result<std::size_t> Socket::send_part(const void *bytes, std::size_t size, int flags) {
    if (carrier_.open_stream().send(bytes, size, flags)) [[likely]] {
        return size;
    }
    const iovec part = base::part_of(bytes, size);
    return send_parts({&part, 1}, flags);
}

[[gnu::noinline]] Result<std::size_t> Socket::send_parts(std::span<const iovec> parts, int flags) {
    if ((flags & send_flags_refused) != 0) {
        return base::failure(EOPNOTSUPP);
    }
    const base::Lock lock{carrier_.mutex()};
    const bool blocks = carrier_.blocks() && (flags & MSG_DONTWAIT) == 0;
    return Sending{carrier_, parts, blocks}.run();
}

short Socket::readiness(short events) {
    const base::Lock lock{carrier_.mutex()};
    if (carrier_.is_closed()) {
        return POLLNVAL;
    }
    if (carrier_.state() == State::Lost) {
        return static_cast<short>(events | POLLERR | POLLHUP);
    }
    carrier_.go_on();  // the shard was served
    if (const StreamLock in_stream{carrier_.stream()}) {
        return readiness_of(*carrier_.stream(), carrier_.open_stream().low_water(), events);
    }
    const State state = carrier_.state();
    if (state == State::Listening) {
        return carrier_.listening().readiness(fd(), events);
    }
    // The kernel's socket says what is ready. While it connects nothing is.
    const short ready = polled(fd(), state == State::Connecting ? short{0} : events);
    return carrier_.has_error() ? static_cast<short>(ready | POLLERR | (events & (POLLIN | POLLOUT))) : ready;
}

}  // namespace rsockets
