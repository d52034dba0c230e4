// SPDX-License-Identifier: BSD-3-Clause
// rsocket/socket: bytes in and out, and what a socket is ready for.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/parts.hpp"
#include "rsocket/call.hpp"
#include "rsocket/socket.hpp"

#include <rpma/rsocket.h>

namespace rsockets {

namespace {

constexpr int receive_flags_refused = MSG_OOB | MSG_ERRQUEUE;

// Returns the parts without their first `bytes` bytes.
std::vector<iovec> rest_of(std::span<const iovec> parts, std::size_t bytes) {
    std::vector<iovec> rest;
    for (const iovec &part : parts) {
        const std::size_t gone = std::min(bytes, part.iov_len);
        bytes -= gone;
        if (gone < part.iov_len) {
            rest.push_back(
                {.iov_base = static_cast<std::byte *>(part.iov_base) + gone, .iov_len = part.iov_len - gone});
        }
    }
    return rest;
}

}  // namespace

int Socket::why_no_stream() {
    if (state_ == State::Plain) {
        return EOPNOTSUPP;
    }
    return pending_error_ != 0 ? std::exchange(pending_error_, 0) : is_open_yet() ? EAGAIN : ENOTCONN;
}

// A stream does not say from whom each byte is.
Result<std::size_t> Socket::receive(msghdr &message, int flags) {
    const auto received = receive_any(message, flags);
    if (received && state_ != State::Plain) {
        message.msg_namelen = 0;
        message.msg_controllen = 0;
        message.msg_flags = 0;
    }
    return received;
}

Result<std::size_t> Socket::receive_part(void *bytes, std::size_t size, int flags) {
    if (const std::size_t received = open_stream_.receive(bytes, size, flags); received != 0) [[likely]] {
        return received;
    }
    const iovec part = base::part_of(bytes, size);
    msghdr message = base::message_of(&part, 1);
    return receive_any(message, flags);
}

[[gnu::noinline]] Result<std::size_t> Socket::receive_any(msghdr &message, int flags) {
    if (is_open_yet()) {
        if (const auto decided = decide(Use::Receive, flags); !decided) {
            return std::unexpected{decided.error()};
        }
    }
    if (state_ == State::Plain) {
        const Call::Pause pause;
        return receive_plain(message, flags);
    }
    return receive_parts({message.msg_iov, message.msg_iovlen}, flags);
}

Result<std::size_t> Socket::send(const msghdr &message, int flags) {
    if (message.msg_iovlen == 1) {
        const iovec &part = *message.msg_iov;
        if (open_stream_.send(part.iov_base, part.iov_len, flags)) [[likely]] {
            return part.iov_len;
        }
    }
    return send_any(message, flags);
}

Result<std::size_t> Socket::send_part(const void *bytes, std::size_t size, int flags) {
    if (open_stream_.send(bytes, size, flags)) [[likely]] {
        return size;
    }
    const iovec part = base::part_of(bytes, size);
    return send_any(base::message_of(&part, 1), flags);
}

[[gnu::noinline]] Result<std::size_t> Socket::send_any(const msghdr &message, int flags) {
    if (state_ == State::Undecided) {
        if (const auto decided = decide(Use::Send, flags); !decided) {
            return std::unexpected{decided.error()};
        }
    }
    if (state_ == State::Plain) {
        const Call::Pause pause;
        return send_plain(message, flags);
    }
    return send_parts({message.msg_iov, message.msg_iovlen}, flags);
}

[[gnu::always_inline]] inline Result<std::size_t> Socket::try_to_receive(std::span<const iovec> parts,
                                                                         const Wish &wish,
                                                                         std::size_t received) {
    if (stream_ == nullptr) {
        return state_ == State::Replaying && ends_receiving_ ? Result<std::size_t>{0}
                                                             : base::failure(why_no_stream());
    }
    // A peek leaves the bytes there, so that it has to wait for all of them together.
    const std::size_t at_once =
        wish.peeks() || received == 0 ? std::min(wish.least, stream_->settings().receive_bytes / 2UL) : 1;
    if (wish.blocks && wish.wanted != 0 && !stream_->can_receive(at_once)) {
        return base::failure(EAGAIN);
    }
    return stream_->receive(parts, wish.reading);
}

Result<std::size_t> Socket::receive_parts(std::span<const iovec> parts, int flags) {
    if ((flags & receive_flags_refused) != 0) {
        return base::failure(EOPNOTSUPP);
    }
    const base::Lock lock{mutex_};
    const bool copies = (flags & MSG_TRUNC) == 0;
    const auto taking = copies ? stream::Reading::Take : stream::Reading::Discard;
    const auto peeking = copies ? stream::Reading::Peek : stream::Reading::Count;
    const std::size_t wanted = base::size_of(parts);
    const Wish wish{
        .reading = (flags & MSG_PEEK) != 0 ? peeking : taking,
        .blocks = blocks_ && (flags & MSG_DONTWAIT) == 0,
        .wanted = wanted,
        .least = (flags & MSG_WAITALL) != 0 ? wanted : std::min(wanted, open_stream_.low_water())};
    const auto got = look([&] {
        assert_looks();
        return try_to_receive(parts, wish, 0);
    });
    return got && wish.is_granted(*got) ? got : receive_rest(parts, wish, got);
}

Result<std::size_t> Socket::receive_rest(std::span<const iovec> parts, const Wish &wish,
                                         Result<std::size_t> first) {
    const Deadline deadline = deadline_of(options_.receive_timeout());
    std::size_t received = 0;
    std::vector<iovec> rest;
    std::span<const iovec> left = parts;
    const auto attempt = [&] {
        assert_looks();
        return try_to_receive(left, wish, received);
    };
    for (auto got = first;; got = look(attempt)) {
        if (is_waiting(got)) {
            got = keep_looking(wish.blocks, deadline, attempt);
        }
        if (!got && wish.blocks && (is_waiting(got) || got.error().number == EINTR)) {
            // The wait is over before there was enough. The program gets what is there.
            Wish what_is_there = wish;
            what_is_there.blocks = false;
            const auto some = look([&] {
                assert_looks();
                return try_to_receive(left, what_is_there, received);
            });
            got = some ? some : got;
            return got             ? Result<std::size_t>{received + *got}
                   : received != 0 ? Result<std::size_t>{received}
                                   : got;
        }
        if (!got) {
            return received != 0 ? Result<std::size_t>{received} : got;
        }
        received += *got;
        if (*got == 0 || wish.is_granted(received)) {
            return received;
        }
        rest = rest_of(parts, received);
        left = rest;
    }
}

[[gnu::always_inline]] inline Result<std::size_t> Socket::try_to_send(std::span<const iovec> parts) {
    if (stream_ == nullptr) {
        if (state_ == State::Plain) {
            return send_plain(base::message_of(parts.data(), parts.size()), MSG_DONTWAIT);
        }
        return state_ == State::Replaying ? keep_for_replay(parts) : base::failure(why_no_stream());
    }
    if (state_ == State::Offered && stream_->life().error() != 0) {
        return base::failure(EAGAIN);  // the next look goes on without it
    }
    // As TCP, which does not ask whether the peer reads.
    if (base::size_of(parts) == 0 && !ends_sending_ && stream_->life().error() == 0) {
        return 0;
    }
    // Bytes that have left give their place in the send buffer back, and the next bytes take the same one.
    // Where all have left already there is nothing to look for.
    if (const std::size_t bytes = base::size_of(parts);
        bytes > options_.settings().inline_bytes && stream_->looks_before_send(bytes)) {
        (void)stream_->serve_shard();
    }
    return stream_->send(parts);
}

Result<std::size_t> Socket::send_parts(std::span<const iovec> parts, int flags) {
    if ((flags & send_flags_refused) != 0) {
        return base::failure(EOPNOTSUPP);
    }
    const base::Lock lock{mutex_};
    const auto put = look([&] {
        assert_looks();
        return try_to_send(parts);
    });
    return put && *put == base::size_of(parts) ? put : send_rest(parts, flags, put);
}

Result<std::size_t> Socket::send_rest(std::span<const iovec> parts, int flags, Result<std::size_t> first) {
    const bool blocks = blocks_ && (flags & MSG_DONTWAIT) == 0;
    const Deadline deadline = deadline_of(options_.send_timeout());
    const std::size_t wanted = base::size_of(parts);
    std::size_t sent = 0;
    std::vector<iovec> rest;
    std::span<const iovec> left = parts;
    const auto attempt = [&] {
        assert_looks();
        return try_to_send(left);
    };
    for (auto put = first;; put = look(attempt)) {
        if (is_waiting(put)) {
            put = keep_looking(blocks, deadline, attempt);
        }
        if (!put) {
            return sent != 0 ? Result<std::size_t>{sent} : put;
        }
        sent += *put;
        if (sent == wanted) {
            return sent;
        }
        rest = rest_of(parts, sent);
        left = rest;
    }
}

short Socket::readiness(short events) {
    const base::Lock lock{mutex_};
    if (closed_) {
        return POLLNVAL;
    }
    if (is_lost()) {
        return static_cast<short>(events | POLLERR | POLLHUP);
    }
    go_on();  // the shard was served
    if (const StreamLock in_stream{stream_}) {
        return stream_readiness(events);
    }
    if (state_ == State::Listening) {
        return listening_.readiness(fd(), events);
    }
    if (state_ == State::Undecided) {
        // The first bytes of the peer decide. The program may speak first when the grace is over.
        return decision_due() ? short{0} : polled(fd(), static_cast<short>(events & (POLLOUT | POLLWRNORM)));
    }
    // The kernel's socket says what is ready. While it connects nothing is.
    const bool connects = state_ == State::Reaching || state_ == State::Replaying;
    const short ready = polled(fd(), connects ? short{0} : events);
    return pending_error_ != 0 ? static_cast<short>(ready | POLLERR | (events & (POLLIN | POLLOUT))) : ready;
}

short Socket::stream_readiness(short events) const {
    short ready = 0;
    if (stream_->can_receive(open_stream_.low_water())) {
        ready |= POLLIN | POLLRDNORM;
    }
    if (stream_->can_send()) {
        ready |= POLLOUT | POLLWRNORM;
    }
    if (stream_->life().peer_ended() || stream_->life().is_over()) {
        ready |= POLLRDHUP;
    }
    ready = static_cast<short>(ready & events);
    // These come when all bytes are read, and not before: a program that sees one of them reads no further.
    if (stream_->life().is_over() && stream_->readable() == 0) {
        ready = static_cast<short>(ready | POLLHUP | (stream_->life().error() != 0 ? POLLERR : 0));
    }
    return ready;
}

}  // namespace rsockets
