// SPDX-License-Identifier: BSD-3-Clause
// soft/tls/tls_link: a link whose bytes go over another link in records of TLS 1.3. It begins when the
// handshake is done. Its end is the end of TLS (close_notify) and then the end of the link below; an end
// without the first is a failure (ECONNRESET), because anybody on the way can make it. Bytes that are not
// TLS, or were changed on the way, are a failure too (EPROTO).
//
// A record takes several pieces. The link tells its user that it has taken the bytes of a record when the
// link below has all of the record. So a user that was told of all its bytes need not come back, and a user
// that was not waits until the link is writable, as with any link.
#pragma once

#include <memory>
#include <string>

#include "base/mutex.hpp"
#include "soft/link/link.hpp"
#include "soft/tls/tls_session.hpp"

namespace soft {

class TlsLink final : public Link {
public:
    // `session` is over `below`, and its handshake is done.
    TlsLink(std::unique_ptr<Link> below, std::unique_ptr<TlsSession> session);

    [[nodiscard]] Sent send(std::span<const iovec> pieces) override EXCLUDES(mutex_);
    bool finish() override EXCLUDES(mutex_);
    [[nodiscard]] Received receive(std::span<const iovec> pieces) override EXCLUDES(mutex_);
    void abort() override EXCLUDES(mutex_);
    void abandon() override { below_->abandon(); }
    [[nodiscard]] int descriptor() const override { return below_->descriptor(); }
    [[nodiscard]] Interest watched(Interest wanted) const override { return below_->watched(wanted); }
    [[nodiscard]] bool want(Interest interest) override EXCLUDES(mutex_);
    [[nodiscard]] bool rest() override EXCLUDES(mutex_);
    [[nodiscard]] bool own_lent_descriptor() override { return below_->own_lent_descriptor(); }
    [[nodiscard]] base::Fd take_descriptor() override EXCLUDES(mutex_);
    [[nodiscard]] Ready ready() const override EXCLUDES(mutex_);
    [[nodiscard]] int failure() override EXCLUDES(mutex_);
    [[nodiscard]] std::size_t unread_bytes() const override EXCLUDES(mutex_);
    [[nodiscard]] bool undelivered() const override EXCLUDES(mutex_);
    [[nodiscard]] base::Clock::time_point gives_up_at() const override { return below_->gives_up_at(); }
    [[nodiscard]] base::Clock::time_point look_at_peer() override { return below_->look_at_peer(); }
    [[nodiscard]] std::optional<std::size_t> paths() const override { return below_->paths(); }
    void limit_unsent(std::size_t bytes) override { below_->limit_unsent(bytes); }
    [[nodiscard]] TlsLink *tls() override { return this; }
    [[nodiscard]] const char *name() const override { return "tls"; }
    [[nodiscard]] std::size_t max_segment() const override { return below_->max_segment(); }

    // Returns the number of the alert with which the peer has ended the link; none when it has not.
    [[nodiscard]] std::optional<int> alert() const EXCLUDES(mutex_);
    // Returns bytes that the two ends know if both ask with this context, and nobody else; none when OpenSSL
    // cannot derive them.
    using Secret = std::array<std::byte, 48>;
    [[nodiscard]] std::optional<Secret> secret(std::string_view context) const EXCLUDES(mutex_);
    // Takes the link below, for ends that continue without TLS.
    [[nodiscard]] std::unique_ptr<Link> take_below() { return std::move(below_); }

    // Changes the key with which this side sends; with `both` it asks the peer to do the same. Returns false
    // when the link has failed.
    [[nodiscard]] bool change_key(bool both) EXCLUDES(mutex_);

private:
    class Rest;
    [[nodiscard]] bool has_event() const REQUIRES(mutex_) {
        return session_->fetch() != TlsSession::Came::Nothing;
    }
    // Encrypts bytes as far as there is room. Returns false when the memory of the first piece is gone, or
    // the session has failed.
    [[nodiscard]] bool encrypt(Rest rest) REQUIRES(mutex_);

    std::unique_ptr<Link> below_;  // null once it is taken
    // The two threads that use the link share OpenSSL's object. No lock is taken with it but those of the
    // link below.
    mutable base::Mutex mutex_;
    const std::unique_ptr<TlsSession> session_ PT_GUARDED_BY(mutex_);
    // The bytes that are encrypted, of which the user has not been told.
    std::size_t untold_ GUARDED_BY(mutex_) = 0;
    Interest wanted_ GUARDED_BY(mutex_){.readable = true};
    bool finished_ GUARDED_BY(mutex_) = false;
    bool aborted_ GUARDED_BY(mutex_) = false;
    bool failure_told_ GUARDED_BY(mutex_) = false;
};

}  // namespace soft
