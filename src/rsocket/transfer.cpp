// SPDX-License-Identifier: BSD-3-Clause
#include "rsocket/transfer.hpp"

#include <algorithm>
#include <cerrno>

#include "base/parts.hpp"

namespace rsockets {

void PartsLeft::move(std::size_t bytes) {
    moved_ += bytes;
    rest_.clear();
    base::for_pieces(all_, moved_, SIZE_MAX, [this](std::span<std::byte> piece, std::size_t) {
        rest_.push_back({.iov_base = piece.data(), .iov_len = piece.size()});
    });
    left_ = rest_;
}

namespace {

stream::Reading reading_of(int flags) {
    const bool copies = (flags & MSG_TRUNC) == 0;
    const auto taking = copies ? stream::Reading::Take : stream::Reading::Discard;
    const auto peeking = copies ? stream::Reading::Peek : stream::Reading::Count;
    return (flags & MSG_PEEK) != 0 ? peeking : taking;
}

}  // namespace

Receiving::Receiving(Carrier &carrier, std::span<const iovec> parts, int flags, bool blocks)
    : carrier_{carrier},
      parts_{parts},
      reading_{reading_of(flags)},
      blocks_{blocks},
      wanted_{base::size_of(parts)},
      least_{(flags & MSG_WAITALL) != 0 ? wanted_ : std::min(wanted_, carrier_.open_stream().low_water())} {}

[[gnu::always_inline]] inline Result<std::size_t> Receiving::attempt() {
    carrier_.assert_looks();
    if (carrier_.state() != Carrier::State::Streaming) {
        return base::failure(carrier_.why_no_stream());
    }
    // A peek leaves the bytes there, so that it has to wait for all of them together.
    const std::size_t at_once = peeks() || parts_.moved() == 0
                                    ? std::min(least_, carrier_.stream()->settings().receive_bytes / 2UL)
                                    : 1;
    if (blocks_ && wanted_ != 0 && !carrier_.stream()->can_receive(at_once)) {
        return base::failure(EAGAIN);
    }
    return carrier_.stream()->receive(parts_.left(), reading_);
}

Result<std::size_t> Receiving::run() {
    Wait wait{carrier_, blocks_};
    const auto got = wait.look([this] { return attempt(); });
    return got && is_granted(*got) ? got : run_rest(wait, got);
}

Result<std::size_t> Receiving::run_rest(Wait &wait, Result<std::size_t> first) {
    carrier_.mutex().assert_held();
    wait.end_at(Wait::deadline_of(carrier_.options().receive_timeout()));
    for (auto got = first;; got = wait.look([this] { return attempt(); })) {
        if (Wait::is_waiting(got)) {
            got = wait.keep_looking([this] { return attempt(); });
        }
        if (!got && blocks_ && (Wait::is_waiting(got) || got.error().number == EINTR)) {
            // The wait is over before there were enough bytes. The program gets the bytes that are there.
            blocks_ = false;
            const auto some = wait.look([this] { return attempt(); });
            got = some ? some : got;
            return got                   ? Result<std::size_t>{parts_.moved() + *got}
                   : parts_.moved() != 0 ? Result<std::size_t>{parts_.moved()}
                                         : got;
        }
        if (!got) {
            return parts_.moved() != 0 ? Result<std::size_t>{parts_.moved()} : got;
        }
        if (*got == 0 || is_granted(parts_.moved() + *got)) {
            return parts_.moved() + *got;
        }
        parts_.move(*got);
    }
}

[[gnu::always_inline]] inline Result<std::size_t> Sending::attempt() {
    carrier_.assert_looks();
    const std::span<const iovec> parts = parts_.left();
    if (carrier_.state() != Carrier::State::Streaming) {
        return base::failure(carrier_.why_no_stream());
    }
    // A send of nothing succeeds as in TCP, which does not ask whether the peer reads.
    const std::size_t bytes = base::size_of(parts);
    if (bytes == 0 && carrier_.stream()->life().may_write() && carrier_.stream()->life().error() == 0) {
        return 0;
    }
    // Bytes that have left give their place in the send buffer back, and the next bytes take the same one.
    // Where all have left already there is nothing to look for.
    if (carrier_.stream()->looks_before_send(bytes)) {
        (void)carrier_.stream()->serve_shard();
    }
    return carrier_.stream()->send(parts);
}

Result<std::size_t> Sending::run() {
    Wait wait{carrier_, blocks_};
    const auto put = wait.look([this] { return attempt(); });
    return put && *put == base::size_of(parts_.all()) ? put : run_rest(wait, put);
}

Result<std::size_t> Sending::run_rest(Wait &wait, Result<std::size_t> first) {
    carrier_.mutex().assert_held();
    wait.end_at(Wait::deadline_of(carrier_.options().send_timeout()));
    const std::size_t wanted = base::size_of(parts_.all());
    for (auto put = first;; put = wait.look([this] { return attempt(); })) {
        if (Wait::is_waiting(put)) {
            put = wait.keep_looking([this] { return attempt(); });
        }
        if (!put) {
            return parts_.moved() != 0 ? Result<std::size_t>{parts_.moved()} : put;
        }
        if (parts_.moved() + *put == wanted) {
            return wanted;
        }
        parts_.move(*put);
    }
}

}  // namespace rsockets
