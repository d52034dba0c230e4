// SPDX-License-Identifier: BSD-3-Clause
// rsocket/socket: bytes in and out, and the events that a socket is ready for.
#include <cerrno>

#include "base/parts.hpp"
#include "rsocket/call.hpp"
#include "rsocket/kernel_socket.hpp"
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
    const auto received = receive_any(message, flags);
    if (received && !is_plain()) {
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
    return AnySocket::receive_part(bytes, size, flags);
}

[[gnu::noinline]] Result<std::size_t> Socket::receive_any(msghdr &message, int flags) {
    if (carrier_.is_open_yet()) {
        if (const auto decided = decide(Use::Receive, flags); !decided) {
            return std::unexpected{decided.error()};
        }
    }
    if (is_plain()) {
        const Call::Pause pause;
        return receive_from_kernel(fd(), message, flags);
    }
    return receive_of_stream({message.msg_iov, message.msg_iovlen}, flags);
}

Result<std::size_t> Socket::send(const msghdr &message, int flags) {
    if (message.msg_iovlen == 1) {
        const iovec &part = *message.msg_iov;
        if (carrier_.open_stream().send(part.iov_base, part.iov_len, flags)) [[likely]] {
            return part.iov_len;
        }
    }
    return send_any(message, flags);
}

Result<std::size_t> Socket::send_part(const void *bytes, std::size_t size, int flags) {
    if (carrier_.open_stream().send(bytes, size, flags)) [[likely]] {
        return size;
    }
    const iovec part = base::part_of(bytes, size);
    return send_any(base::message_of(&part, 1), flags);  // send() would try the shortest way again
}

[[gnu::noinline]] Result<std::size_t> Socket::send_any(const msghdr &message, int flags) {
    if (is_undecided()) {
        if (const auto decided = decide(Use::Send, flags); !decided) {
            return std::unexpected{decided.error()};
        }
    }
    if (is_plain()) {
        const Call::Pause pause;
        return send_to_kernel(fd(), message, flags);
    }
    return send_by_stream({message.msg_iov, message.msg_iovlen}, flags);
}

Result<void> Socket::decide(Use use, int flags) {
    const base::Lock lock{carrier_.mutex()};
    const bool blocks = carrier_.blocks() && (flags & MSG_DONTWAIT) == 0;
    const SocketOptions &options = carrier_.options();
    const auto timeout = use == Use::Send ? options.send_timeout() : options.receive_timeout();
    return Wait{beginning_, blocks, Wait::deadline_of(timeout)}.until([&]() -> Result<void> {
        carrier_.assert_looks();
        if (use == Use::Send) {
            beginning_.speak_first();
        }
        const bool ended = use == Use::Receive && carrier_.ended().receiving;
        const bool is_there =
            carrier_.state() == State::Offered && carrier_.stream()->life().was_established();
        return ended || !carrier_.is_open_yet() || is_there ? Result<void>{} : base::failure(EAGAIN);
    });
}

Result<std::size_t> Socket::receive_of_stream(std::span<const iovec> parts, int flags) {
    if ((flags & receive_flags_refused) != 0) {
        return base::failure(EOPNOTSUPP);
    }
    const base::Lock lock{carrier_.mutex()};
    const bool blocks = carrier_.blocks() && (flags & MSG_DONTWAIT) == 0;
    return Receiving{beginning_, parts, flags, blocks}.run();
}

Result<std::size_t> Socket::send_by_stream(std::span<const iovec> parts, int flags) {
    if ((flags & send_flags_refused) != 0) {
        return base::failure(EOPNOTSUPP);
    }
    const base::Lock lock{carrier_.mutex()};
    const bool blocks = carrier_.blocks() && (flags & MSG_DONTWAIT) == 0;
    return Sending{beginning_, parts, blocks}.run();
}

short Socket::readiness(short events) {
    const base::Lock lock{carrier_.mutex()};
    if (carrier_.is_closed()) {
        return POLLNVAL;
    }
    if (carrier_.state() == State::Lost) {
        return static_cast<short>(events | POLLERR | POLLHUP);
    }
    beginning_.go_on();  // the shard was served
    if (const StreamLock in_stream{carrier_.stream()}) {
        return readiness_of(*carrier_.stream(), carrier_.open_stream().low_water(), events);
    }
    const State state = carrier_.state();
    if (state == State::Listening) {
        return carrier_.listening().readiness(fd(), events);
    }
    if (state == State::Undecided) {
        // The first bytes of the peer decide. The program may speak first when the grace is over.
        return beginning_.due() ? short{0}
                                : polled(fd(), static_cast<short>(events & (POLLOUT | POLLWRNORM)));
    }
    // The kernel's socket says what is ready. While it connects nothing is.
    const bool connects = state == State::Reaching || state == State::Replaying;
    const short ready = polled(fd(), connects ? short{0} : events);
    return carrier_.has_error() ? static_cast<short>(ready | POLLERR | (events & (POLLIN | POLLOUT))) : ready;
}

}  // namespace rsockets
