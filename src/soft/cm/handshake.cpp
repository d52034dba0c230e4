// SPDX-License-Identifier: BSD-3-Clause
#include "soft/cm/handshake.hpp"

#include <cerrno>
#include <new>
#include <optional>
#include <utility>

#include "base/error_text.hpp"
#include "base/log.hpp"
#include "base/origin.hpp"
#include "soft/ground/limits.hpp"
#include "soft/ground/tcp.hpp"
#include "soft/ground/wrong_keys.hpp"
#include "soft/link/multipath_link.hpp"

namespace soft {

Handshake::Handshake(HandshakeOwner &owner, std::shared_ptr<Group> group, std::unique_ptr<Link> link,
                     const tcp::Address &peer, const base::SharedTls &tls, const wire::MpaFrame *request,
                     base::Milliseconds delay)
    : owner_{owner},
      group_{std::move(group)},
      link_{std::move(link)},
      peer_{peer},
      role_{request != nullptr ? Role::Initiator : Role::Responder},
      connecting_{request != nullptr},
      delayed_{delay.count() != 0} {
    if (tls->is_required()) {
        tls_ = std::make_unique<TlsStart>(
            role_ == Role::Initiator ? TlsStart::Side::Client : TlsStart::Side::Server, tls, *link_, peer_);
    }
    if (request != nullptr) {
        private_data_.assign(request->private_data.begin(), request->private_data.end());
        request_ = *request;
        request_.private_data = private_data_;
    }
    group_->add(*this, link_->descriptor(), {.readable = !connecting_ && !delayed_, .writable = connecting_});
    group_->set_deadline(*this, base::Clock::now() + (delayed_ ? delay : limits::handshake_timeout));
}

std::unique_ptr<Handshake> Handshake::begin(HandshakeOwner &owner, const std::shared_ptr<Group> &group,
                                            base::Fd socket, const tcp::Address &peer,
                                            const base::SharedTls &tls, const wire::MpaFrame *request) {
    std::optional<base::Milliseconds> delay{0};
    if (request == nullptr) {
        delay = WrongKeys::instance().turn(base::origin_of(peer), base::Clock::now());
    }
    if (!delay) {
        BASE_LOG_PEER(Warning,
                      "no connection with %s: its address guesses keys, and too many from there wait",
                      tcp::text_of(peer).c_str());
        return nullptr;
    }
    return std::make_unique<Handshake>(owner, group, link_on(std::move(socket), limits::silence_timeout),
                                       peer, tls, request, *delay);
}

Handshake::~Handshake() {
    if (link_) {
        group_->remove(*this, link_->descriptor());
    }
}

std::unique_ptr<Link> Handshake::take_link() {
    group_->mutex().assert_held();
    group_->remove(*this, link_->descriptor());
    return std::move(link_);
}

void Handshake::expire() {
    group_->mutex().assert_held();
    if (std::exchange(delayed_, false)) {
        group_->change(*this, link_->descriptor(), {}, {.readable = true});
        group_->set_deadline(*this, base::Clock::now() + limits::handshake_timeout);
        return;
    }
    // The time for which it waited for its turn is none that the peer took.
    if (const auto waited = std::exchange(waited_, {}); waits_ || waited != base::Clock::duration::zero()) {
        group_->set_deadline(*this, base::Clock::now() + waited);
        return;
    }
    // When this process did not run for a while, the link may have bytes that the peer sent in time. Each
    // such look advances the connection, or one frame by a byte, or is the last, so the looks end. Records of
    // TLS may come without a byte of the frame.
    const Link::Ready ready = link_->ready();
    const bool looks = connecting_ || std::exchange(last_look_, frame_bytes_) != frame_bytes_;
    if (looks && (connecting_ ? ready.writable : ready.readable)) {
        const base::Milliseconds more{connecting_ ? limits::handshake_timeout : base::Milliseconds{}};
        group_->set_deadline(*this, base::Clock::now() + more);
        progress();
        return;
    }
    fail(ETIMEDOUT, missing());
}

const char *Handshake::missing() const {
    if (role_ == Role::Responder) {
        return tls_ != nullptr ? "no handshake of TLS" : "no MPA request";
    }
    return tls_ != nullptr && !connecting_ ? "no answer to the handshake of TLS" : "no answer";
}

void Handshake::give_way() {
    fail(ETIMEDOUT, "no MPA request, and too many others wait with theirs");
}

void Handshake::fail(int error, const char *text) {
    BASE_LOG_PEER_AT(static_cast<int>(owner_.level_of_failure(error)), "no connection with %s: %s",
                     tcp::text_of(peer_).c_str(), text);
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
    if (tls_ != nullptr && !go_on_with_tls()) {
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

// Is called when the link is writable: it is connected, or cannot be.
void Handshake::connected() {
    if (!link_->ready().writable) {
        return;  // the connection is not made yet
    }
    if (const int error = link_->failure(); error != 0) {
        fail(error, base::error_text(error));
        return;
    }
    connecting_ = false;
    group_->change(*this, link_->descriptor(), {.writable = true}, {.readable = true});
    (void)(tls_ != nullptr ? go_on_with_tls() : send_request());
}

bool Handshake::send_request() {
    try {
        request_.same_host = owner_.offers_memory(*this);
    } catch (const std::bad_alloc &) {
        fail(ENOMEM, "out of memory");
        return false;
    }
    std::array<std::byte, wire::mpa_max_frame_bytes> bytes;
    const std::size_t size = wire::encode_mpa_frame(request_, bytes);
    if (const auto sent = link_->send_all(std::span{bytes}.first(size)); !sent) {
        // The peer has closed, during the handshake of TLS or right behind it.
        const int error = sent.error().number == EPIPE ? ECONNRESET : sent.error().number;
        fail(error, base::error_text(error));
        return false;
    }
    return true;
}

// The responder's steps use its private key. The initiator's are for the program that asked for them.
bool Handshake::has_its_turn() {
    group_->mutex().assert_held();
    if (role_ == Role::Initiator) {
        return true;
    }
    if (!link_->ready().readable) {
        return false;  // there is no step
    }
    if (!group_->take_long_turn(base::origin_of(peer_))) {
        waits_ = waits_.value_or(base::Clock::now());
        return false;
    }
    if (const auto since = std::exchange(waits_, std::nullopt)) {
        waited_ += base::Clock::now() - *since;
    }
    return true;
}

// Goes on with the handshake of TLS. Returns true when the link is secure, and the initiator's request is
// sent.
bool Handshake::go_on_with_tls() {
    if (!has_its_turn()) {
        return false;
    }
    try {
        switch (tls_->go_on()) {
            case TlsStart::State::Waits:
                return false;
            case TlsStart::State::Failed: {
                const auto failed = std::move(tls_);
                fail(failed->error(), failed->text());
                return false;
            }
            case TlsStart::State::Done:
                break;
        }
        BASE_LOG_PEER(Info, "TLS with %s: %s %s", tcp::text_of(peer_).c_str(), tls_->words(),
                      tls_->identity().c_str());
        link_ = tls_->secured(std::move(link_));
    } catch (const std::bad_alloc &) {
        fail(ENOMEM, "out of memory");
        return false;
    }
    shaken_ = std::move(tls_);
    return role_ == Role::Responder || send_request();
}

void Handshake::fail_to_receive(int error) {
    if (const auto tls = std::move(shaken_); tls != nullptr && tls->is_refused(*link_)) {
        fail(tls->error(), tls->text());
    } else {
        fail(error, base::error_text(error));
    }
}

// It reads not a byte more, because the bytes after the frame belong to the queue pair.
bool Handshake::read_up_to(std::size_t bytes) {
    while (frame_bytes_ < bytes) {
        const iovec room{.iov_base = frame_.data() + frame_bytes_, .iov_len = bytes - frame_bytes_};
        const Link::Received got = link_->receive({&room, 1});
        if (got.bytes > 0) {
            frame_bytes_ += got.bytes;
            // Any first bytes, however few, reveal a peer that speaks another protocol.
            if (!wire::may_begin_mpa_frame(std::span{frame_}.first(frame_bytes_), expected_role())) {
                fail(EPROTO,
                     role_ == Role::Initiator ? "not an MPA reply frame" : "not an MPA request frame");
                return false;
            }
            continue;
        }
        if (got.state == Link::Received::State::Ended) {
            fail(ECONNRESET, "closed before the end of the MPA start-up frame");
        } else if (got.state == Link::Received::State::Failed) {
            fail_to_receive(got.error);
        }
        return false;
    }
    return true;
}

}  // namespace soft
