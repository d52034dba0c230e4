// SPDX-License-Identifier: BSD-3-Clause
#include "soft/tls/tls_link.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "persist/guard.hpp"
#include "soft/tls/openssl.hpp"

namespace soft {

using Came = TlsSession::Came;

// The bytes of some pieces that have not been used yet.
class TlsLink::Rest {
public:
    explicit Rest(std::span<const iovec> pieces) : pieces_{pieces} {}

    // Returns the unused bytes of the first piece that has some; none when all are used.
    [[nodiscard]] std::span<std::byte> next() {
        while (!pieces_.empty() && used_ == pieces_[0].iov_len) {
            pieces_ = pieces_.subspan(1);
            used_ = 0;
        }
        if (pieces_.empty()) {
            return {};
        }
        return {static_cast<std::byte *>(pieces_[0].iov_base) + used_, pieces_[0].iov_len - used_};
    }
    void use(std::size_t bytes) { used_ += bytes; }
    // Uses up to so many bytes, and returns how many.
    std::size_t skip(std::size_t most) {
        std::size_t skipped = 0;
        for (auto piece = next(); skipped < most && !piece.empty(); piece = next()) {
            const std::size_t bytes = std::min(most - skipped, piece.size());
            use(bytes);
            skipped += bytes;
        }
        return skipped;
    }

private:
    std::span<const iovec> pieces_;
    std::size_t used_ = 0;  // of the first piece
};

TlsLink::TlsLink(std::unique_ptr<Link> below, std::unique_ptr<TlsSession> session)
    : below_{std::move(below)}, session_{std::move(session)} {}

// ---- sending ----

Link::Sent TlsLink::send(std::span<const iovec> pieces) {
    const base::Lock lock{mutex_};
    if (finished_) {
        return {.error = EPIPE};
    }
    Rest rest{pieces};
    std::size_t told = 0;
    while (session_->flush()) {
        if (session_->sending_error() != 0) {
            return {.error = session_->sending_error()};
        }
        const std::size_t sent = rest.skip(untold_);
        untold_ -= sent;
        told += sent;
        if (rest.next().empty()) {
            break;
        }
        if (!encrypt(rest)) {
            // The next call meets the cause again.
            const int error = session_->sending_error() != 0 ? session_->sending_error() : EFAULT;
            return told != 0 ? Sent{.bytes = told} : Sent{.error = error};
        }
    }
    return {.bytes = told};
}

bool TlsLink::encrypt(Rest rest) {
    std::array<std::byte, TlsSession::record_bytes> record;
    bool memory_is_gone = false;
    bool any = false;
    while (session_->has_room() && !memory_is_gone) {
        std::size_t size = 0;
        for (auto piece = rest.next(); size < record.size() && !piece.empty(); piece = rest.next()) {
            const std::size_t bytes = std::min(record.size() - size, piece.size());
            memory_is_gone = !persist::guarded_copy(record.data() + size, piece.data(), bytes);
            if (memory_is_gone) {
                break;
            }
            rest.use(bytes);
            size += bytes;
        }
        if (size == 0) {
            break;
        }
        if (!session_->encrypt(std::span{record}.first(size))) {
            return false;
        }
        untold_ += size;
        any = true;
    }
    return any;
}

bool TlsLink::finish() {
    const base::Lock lock{mutex_};
    finished_ = true;
    return session_->close() && below_->finish();
}

bool TlsLink::undelivered() const {
    const base::Lock lock{mutex_};
    return !session_->flush() || below_->undelivered();
}

bool TlsLink::change_key(bool both) {
    const base::Lock lock{mutex_};
    return session_->sending_error() == 0 && session_->change_key(both) &&
           (session_->flush() || session_->sending_error() == 0);
}

// ---- receiving ----

Link::Received TlsLink::receive(std::span<const iovec> pieces) {
    using State = Received::State;
    const base::Lock lock{mutex_};
    session_->look_again();
    Rest rest{pieces};
    std::size_t received = 0;
    for (auto piece = rest.next(); !piece.empty(); piece = rest.next()) {
        const Came came = session_->fetch();
        if (came == Came::Bytes) {
            const auto from = session_->decrypted();
            const std::size_t bytes = std::min(piece.size(), from.size());
            if (persist::guarded_copy(piece.data(), from.data(), bytes)) {
                session_->drop(bytes);
                rest.use(bytes);
                received += bytes;
                continue;
            }
            return received != 0 ? Received{.bytes = received, .state = State::More}
                                 : Received{.state = State::Failed, .error = EFAULT};
        }
        if (came == Came::Nothing) {
            return {.bytes = received, .state = State::Drained};
        }
        if (received != 0) {
            break;  // the next call tells the end
        }
        // After an abort the link below ends without the end of TLS.
        return came == Came::Ended || aborted_ ? Received{.state = State::Ended}
                                               : Received{.state = State::Failed, .error = session_->error()};
    }
    return {.bytes = received, .state = State::More};
}

std::size_t TlsLink::unread_bytes() const {
    const base::Lock lock{mutex_};
    session_->look_again();
    session_->fetch_all();
    return session_->decrypted().size();
}

// ---- rest ----

bool TlsLink::want(Interest interest) {
    const base::Lock lock{mutex_};
    wanted_ = interest;
    return below_->want(interest) && !(interest.readable && has_event());
}

bool TlsLink::rest() {
    const base::Lock lock{mutex_};
    if (wanted_.readable && has_event()) {
        return false;
    }
    session_->release_buffers();
    return below_->rest();
}

Link::Ready TlsLink::ready() const {
    const base::Lock lock{mutex_};
    Ready ready = below_->ready();
    ready.readable = has_event() || ready.readable;
    ready.ended = ready.ended || session_->sending_error() != 0;
    ready.writable = ready.writable || session_->sending_error() != 0;
    return ready;
}

// ---- the end ----

void TlsLink::abort() {
    const base::Lock lock{mutex_};
    finished_ = aborted_ = true;
    (void)session_->close();
    below_->abort();
}

// The end of TLS comes now, because the descriptor has no other owner that knows of it.
base::Fd TlsLink::take_descriptor() {
    const base::Lock lock{mutex_};
    finished_ = true;
    (void)session_->close();
    return below_->take_descriptor();
}

int TlsLink::failure() {
    const base::Lock lock{mutex_};
    if (session_->fetch() == Came::Failed && !aborted_ && !std::exchange(failure_told_, true)) {
        return session_->error();
    }
    return failure_told_ ? 0 : below_->failure();
}

std::optional<int> TlsLink::alert() const {
    const base::Lock lock{mutex_};
    const int alert = session_->reason() - SSL_AD_REASON_OFFSET;
    return alert >= 0 ? std::optional{alert} : std::nullopt;
}

std::optional<TlsLink::Secret> TlsLink::secret(std::string_view context) const {
    const base::Lock lock{mutex_};
    Secret secret;
    return session_->derive(context, secret) ? std::optional{secret} : std::nullopt;
}

}  // namespace soft
