// SPDX-License-Identifier: BSD-3-Clause
// rstream/endpoint: the program's bytes. No call waits.
#include <limits.h>
#include <rdma/fi_endpoint.h>

#include "base/parts.hpp"
#include "rstream/endpoint.hpp"
#include "rstream/info.hpp"

namespace rstream {

namespace {

// These have a meaning for completions, of which there are none.
constexpr std::uint64_t flags_without_effect = FI_COMPLETION | FI_MORE;

// Calls the function with the parts of a call, if these are valid.
template <typename Call>
ssize_t with_parts(const iovec *parts, std::size_t count, Call call) {
    if (count > most_parts || (parts == nullptr && count != 0)) {
        return -FI_EINVAL;
    }
    const std::span given{parts, count};
    std::size_t left = SSIZE_MAX;  // a call returns how many bytes it has moved
    for (const iovec &part : given) {
        if ((part.iov_base == nullptr && part.iov_len != 0) || part.iov_len > left) {
            return -FI_EINVAL;
        }
        left -= part.iov_len;
    }
    return guarded([&]() -> ssize_t { return call(given); });
}

template <typename Call, typename Peek>
ssize_t with_message(const fi_msg *message, std::uint64_t flags, Call call, Peek peek) {
    if ((flags & ~(FI_PEEK | flags_without_effect)) != 0) {
        return -FI_EBADFLAGS;
    }
    if ((flags & FI_PEEK) != 0) {
        return guarded([&]() -> ssize_t { return peek(); });
    }
    return message != nullptr ? with_parts(message->msg_iov, message->iov_count, call) : -FI_EINVAL;
}

}  // namespace

fi_ops_msg Endpoint::message_ops{
    .size = sizeof(fi_ops_msg),
    .recv =
        [](fid_ep *ep, void *bytes, std::size_t size, void *, fi_addr_t, void *) {
            const iovec part{.iov_base = bytes, .iov_len = size};
            return with_parts(&part, 1, [ep](auto parts) { return of(ep).receive(parts); });
        },
    .recvv =
        [](fid_ep *ep, const iovec *iov, void **, std::size_t count, fi_addr_t, void *) {
            return with_parts(iov, count, [ep](auto parts) { return of(ep).receive(parts); });
        },
    .recvmsg =
        [](fid_ep *ep, const fi_msg *message, std::uint64_t flags) {
            return with_message(
                message, flags, [ep](auto parts) { return of(ep).receive(parts); },
                [ep] { return of(ep).can_receive(); });
        },
    .send =
        [](fid_ep *ep, const void *bytes, std::size_t size, void *, fi_addr_t, void *) {
            const iovec part{.iov_base = const_cast<void *>(bytes), .iov_len = size};
            return with_parts(&part, 1, [ep](auto parts) { return of(ep).send(parts); });
        },
    .sendv = [](fid_ep *ep, const iovec *iov, void **, std::size_t count, fi_addr_t,
                void *) { return with_parts(iov, count, [ep](auto parts) { return of(ep).send(parts); }); },
    .sendmsg =
        [](fid_ep *ep, const fi_msg *message, std::uint64_t flags) {
            return with_message(
                message, flags, [ep](auto parts) { return of(ep).send(parts); },
                [ep] { return of(ep).can_send(); });
        },
    .inject = absent,
    .senddata = absent,
    .injectdata = absent,
};

// Calls attempt(stream) at once, and once more after it has served the stream, if that gave EAGAIN.
template <typename Try>
ssize_t Endpoint::try_served(Try attempt) {
    stream::Connection *const stream = open_.load(std::memory_order_acquire);
    if (stream == nullptr) {
        return -FI_ENOTCONN;
    }
    const base::Lock lock{shard_->mutex()};
    begin_call();
    ssize_t result = attempt(*stream);
    if (result == -FI_EAGAIN) {
        serve_before_wait();
        result = attempt(*stream);
    }
    end_call(result != -FI_EAGAIN);
    return result;
}

ssize_t Endpoint::receive(std::span<const iovec> parts) {
    return try_served([&](stream::Connection &stream) -> ssize_t {
        stream.mutex().assert_held();
        if (parts.size() == 1 && stream.readable() != 0) [[likely]] {
            if (const std::size_t received = stream.receive_at_once(parts[0].iov_base, parts[0].iov_len);
                received != 0) {
                return static_cast<ssize_t>(received);
            }
        }
        return returned<ssize_t>(stream.receive(parts, stream::Reading::Take));
    });
}

ssize_t Endpoint::send(std::span<const iovec> parts) {
    return try_served([&](stream::Connection &stream) -> ssize_t {
        stream.mutex().assert_held();
        if (stream.looks_before_send(base::size_of(parts))) {
            (void)stream.serve_shard();
        }
        if (parts.size() == 1 && stream.send_at_once(parts[0].iov_base, parts[0].iov_len)) [[likely]] {
            return static_cast<ssize_t>(parts[0].iov_len);
        }
        const auto sent = returned<ssize_t>(stream.send(parts));
        send_waits_ = sent == -FI_EAGAIN;
        return sent;
    });
}

// Returns what a receive would: 0 if it would give bytes, or the end.
ssize_t Endpoint::can_receive() {
    return try_served([](stream::Connection &stream) -> ssize_t {
        stream.mutex().assert_held();
        const auto bytes = stream.receive({}, stream::Reading::Count);
        return bytes || stream.readable() != 0 ? 0 : ssize_t{status_of(bytes.error().number)};
    });
}

ssize_t Endpoint::can_send() {
    return try_served([this](stream::Connection &stream) -> ssize_t {
        stream.mutex().assert_held();
        const stream::Life &life = stream.life();
        const int error = life.may_send() ? (stream.can_send() ? 0 : EAGAIN) : life.why_not_send();
        send_waits_ = error == EAGAIN;
        return status_of(error);
    });
}

}  // namespace rstream
