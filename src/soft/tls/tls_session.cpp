// SPDX-License-Identifier: BSD-3-Clause
#include "soft/tls/tls_session.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "soft/tls/openssl.hpp"

namespace soft {

namespace {

const OpenSsl &openssl() {
    return OpenSsl::found();
}

}  // namespace

void SslFree::operator()(SSL *ssl) const {
    if (inherited()) {
        base::leave_to_parent(std::unique_ptr<SSL, SslFree>{ssl});
        return;
    }
    const OpenSslErrors own;
    openssl().SSL_free(ssl);
}

bio_method_st *TlsSession::calls() {
    constexpr auto make = [] {
        BIO_METHOD *const method =
            openssl().BIO_meth_new(openssl().BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "link");
        if (method != nullptr) {
            (void)openssl().BIO_meth_set_read_ex(method, pull);
            (void)openssl().BIO_meth_set_write_ex(method, push);
            (void)openssl().BIO_meth_set_ctrl(method, control);
        }
        return method;
    };
    return made_once<make>();
}

TlsSession::TlsSession(std::unique_ptr<SSL, SslFree> ssl, Link &link, std::uint64_t most_records)
    : ssl_{std::move(ssl)}, link_{link}, most_records_{most_records} {
    const OpenSslErrors own;
    BIO *const bio = ssl_ && calls() != nullptr ? openssl().BIO_new(calls()) : nullptr;
    if (bio == nullptr) {
        throw std::bad_alloc{};
    }
    openssl().BIO_set_data(bio, this);
    openssl().BIO_set_init(bio, 1);
    openssl().SSL_set_bio(ssl_.get(), bio, bio);
    openssl().SSL_set_read_ahead(ssl_.get(),
                                 1);  // one call of the link brings more than the header of a record
    (void)openssl().SSL_ctrl(ssl_.get(), SSL_CTRL_MODE, SSL_MODE_RELEASE_BUFFERS, nullptr);
    openssl().SSL_set_msg_callback(ssl_.get(), heard);
    (void)openssl().SSL_ctrl(ssl_.get(), SSL_CTRL_SET_MSG_CALLBACK_ARG, 0, this);
}

void TlsSession::heard(int is_sent, int, int type, const void *bytes, std::size_t size, SSL *, void *self) {
    if (is_sent != 0 || type != SSL3_RT_HANDSHAKE || size == 0) {
        return;
    }
    const auto message = *static_cast<const unsigned char *>(bytes);
    if (message == SSL3_MT_KEY_UPDATE || message == SSL3_MT_NEWSESSION_TICKET) {
        ++static_cast<TlsSession *>(self)->extra_;
    }
}

int TlsSession::pull(BIO *bio, char *to, std::size_t size, std::size_t *count) {
    auto &self = *static_cast<TlsSession *>(openssl().BIO_get_data(bio));
    openssl().BIO_clear_flags(bio, BIO_FLAGS_RWS | BIO_FLAGS_SHOULD_RETRY);
    const iovec room{.iov_base = to, .iov_len = size};
    if (self.extra_ > most_extra) {
        self.link_error_ = EPROTO;
    }
    Link::Received got;
    while (!self.drained_ && got.bytes == 0 && self.link_error_ == 0) {
        got = self.link_.receive({&room, 1});
        self.drained_ = got.state != Link::Received::State::More;
        self.link_ended_ = got.state == Link::Received::State::Ended;
        self.link_error_ = got.state == Link::Received::State::Failed ? got.error : 0;
    }
    *count = got.bytes;
    if (got.bytes != 0) {
        return 1;
    }
    if (!self.link_ended_ && self.link_error_ == 0) {
        openssl().BIO_set_flags(bio, BIO_FLAGS_READ | BIO_FLAGS_SHOULD_RETRY);
    }
    return 0;
}

// OpenSSL's records all come here. So a link that is full is not OpenSSL's matter, and needs no second try of
// the same call.
int TlsSession::push(BIO *bio, const char *from, std::size_t size, std::size_t *count) {
    auto &self = *static_cast<TlsSession *>(openssl().BIO_get_data(bio));
    openssl().BIO_clear_flags(bio, BIO_FLAGS_RWS | BIO_FLAGS_SHOULD_RETRY);
    *count = 0;
    if (self.out_ == nullptr) {
        self.out_.reset(new (std::nothrow) std::byte[kept_bytes + reserve_bytes]);
    }
    // A peer that asks for one change of keys after another, and does not read the answers, fills the
    // reserve.
    if (self.out_ == nullptr || size > kept_bytes + reserve_bytes - self.out_end_) {
        self.link_error_ = self.out_ == nullptr ? ENOMEM : EPROTO;
        return 0;
    }
    std::memcpy(self.out_.get() + self.out_end_, from, size);
    self.out_end_ += size;
    *count = size;
    return 1;
}

long TlsSession::control(BIO *, int command, long, void *) {
    return command == BIO_CTRL_FLUSH ? 1 : 0;
}

// Notes why OpenSSL's last call failed. The peer gets the alert that OpenSSL has composed.
void TlsSession::fail() {
    reason_ = ERR_GET_REASON(openssl().ERR_peek_error());
    const int error = link_error_ != 0 ? link_error_ : link_ended_ ? ECONNRESET : EPROTO;
    (void)flush();
    error_ = error;
    out_begin_ = out_end_ = 0;
}

TlsSession::Shake TlsSession::shake() {
    look_again();
    const OpenSslErrors own;
    const int result = openssl().SSL_do_handshake(ssl_.get());
    if (result != 1 && openssl().SSL_get_error(ssl_.get(), result) != SSL_ERROR_WANT_READ) {
        fail();
    } else {
        (void)flush();  // a new link has room for a handshake
        // Nothing is to be received from a peer that has closed meanwhile.
        error_ = sending_error() == EPIPE ? ECONNRESET : sending_error();
    }
    return error_ != 0 ? Shake::Failed : result == 1 ? Shake::Done : Shake::Waits;
}

bool TlsSession::uses_key() const {
    return openssl().SSL_session_reused(ssl_.get()) == 1;
}

bool TlsSession::derive(std::string_view context, std::span<std::byte> secret) const {
    // A label that is not registered begins like this (RFC 5705 section 4).
    constexpr std::string_view label = "EXPERIMENTAL softrdma meeting";
    const OpenSslErrors own;
    return openssl().SSL_export_keying_material(
               ssl_.get(), reinterpret_cast<unsigned char *>(secret.data()), secret.size(), label.data(),
               label.size(), reinterpret_cast<const unsigned char *>(context.data()), context.size(), 1) == 1;
}

// ---- sending ----

bool TlsSession::encrypt(std::span<const std::byte> bytes) {
    if (++records_ > most_records_ && !change_key(false)) {
        return false;
    }
    const OpenSslErrors own;
    std::size_t written = 0;
    if (openssl().SSL_write_ex(ssl_.get(), bytes.data(), bytes.size(), &written) != 1 ||
        written != bytes.size()) {
        fail();
        return false;
    }
    return true;
}

bool TlsSession::flush() {
    while (out_begin_ != out_end_ && sending_error() == 0) {
        const iovec rest{.iov_base = out_.get() + out_begin_, .iov_len = out_end_ - out_begin_};
        const Link::Sent sent = link_.send({&rest, 1});
        sending_error_ = sent.error;
        if (sent.bytes == 0 && sent.error == 0) {
            return false;
        }
        out_begin_ += sent.bytes;
    }
    out_begin_ = out_end_ = 0;
    return true;
}

bool TlsSession::close() {
    if (!closed_ && sending_error() == 0) {
        closed_ = true;
        const OpenSslErrors own;
        (void)openssl().SSL_shutdown(ssl_.get());
    }
    return flush();
}

bool TlsSession::change_key(bool both) {
    records_ = 0;
    const OpenSslErrors own;
    if (openssl().SSL_key_update(ssl_.get(),
                                 both ? SSL_KEY_UPDATE_REQUESTED : SSL_KEY_UPDATE_NOT_REQUESTED) != 1 ||
        openssl().SSL_do_handshake(ssl_.get()) != 1) {
        fail();
        return false;
    }
    return true;
}

// ---- receiving ----

TlsSession::Came TlsSession::fetch() {
    if (in_begin_ != in_end_) {
        return Came::Bytes;
    }
    in_begin_ = in_end_ = 0;
    if (error_ == 0 && !ended_ && read_record()) {
        return Came::Bytes;
    }
    return ended_ ? Came::Ended : error_ != 0 ? Came::Failed : Came::Nothing;
}

void TlsSession::fetch_all() {
    if (fetch() == Came::Bytes) {
        std::memmove(in_.get(), in_.get() + in_begin_, in_end_ - in_begin_);
        in_end_ -= in_begin_;
        in_begin_ = 0;
        while (error_ == 0 && !ended_ && in_end_ != record_bytes && read_record()) {
        }
    }
}

// Decrypts bytes of one record. Returns false when there is no whole record, or the session has ended.
bool TlsSession::read_record() {
    if (in_ == nullptr) {
        in_.reset(new (std::nothrow) std::byte[record_bytes]);
        if (in_ == nullptr) {
            error_ = ENOMEM;
            return false;
        }
    }
    const OpenSslErrors own;
    std::size_t count = 0;
    const int result = openssl().SSL_read_ex(ssl_.get(), in_.get() + in_end_, record_bytes - in_end_, &count);
    if (result == 1) {
        in_end_ += count;
        extra_ -= extra_ != 0 ? 1 : 0;
    } else {
        switch (openssl().SSL_get_error(ssl_.get(), result)) {
            case SSL_ERROR_WANT_READ:
                break;
            case SSL_ERROR_ZERO_RETURN:
                ended_ = true;
                break;
            default:
                fail();
                return false;
        }
    }
    (void)flush();  // the answer to the peer's change of keys
    return result == 1;
}

void TlsSession::release_buffers() {
    if (in_begin_ == in_end_) {
        in_begin_ = in_end_ = 0;
        in_.reset();
    }
    if (out_begin_ == out_end_) {
        out_.reset();
    }
}

}  // namespace soft
