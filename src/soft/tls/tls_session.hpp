// SPDX-License-Identifier: BSD-3-Clause
// soft/tls/tls_session: one connection of TLS 1.3 over a link: OpenSSL's object, the bytes that it has
// encrypted and the link has not taken, and the bytes that it has decrypted and nobody has taken. A session
// is not thread-safe. It calls its link, from whichever thread calls the session.
#pragma once

#include <openssl/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/fork.hpp"
#include "soft/link/link.hpp"

struct bio_method_st;  // of <openssl/bio.h>

namespace soft {

// In the child of the process that made the object, a thread of the parent may have been changing it while
// the process forked: it is left, and not freed.
struct SslFree : base::Inheritable {
    void operator()(SSL *ssl) const;
};

class TlsSession {
public:
    static constexpr std::size_t record_bytes =
        16384;  // the most that one record carries (RFC 8446 section 5.1)

    // The number of records that are sent with one key, long before the limit of AES-GCM (RFC 8446 section
    // 5.5).
    static constexpr std::uint64_t records_of_a_key = std::uint64_t{1} << 22;

    // `ssl` knows its side and its key. The link outlives the session. After `most_records` records the
    // session changes the key with which it sends. Throws std::bad_alloc.
    TlsSession(std::unique_ptr<SSL, SslFree> ssl, Link &link, std::uint64_t most_records = records_of_a_key);
    TlsSession(const TlsSession &) = delete;
    TlsSession &operator=(const TlsSession &) = delete;
    ~TlsSession() = default;

    // Goes on with the handshake as far as that is possible now. The user calls it again when the link is
    // readable.
    enum class Shake : std::uint8_t { Done, Waits, Failed };
    [[nodiscard]] Shake shake();

    // Returns the errno value of the failure that ended the session: ECONNRESET when the peer's bytes ended
    // without the end of TLS, EPROTO when they are not TLS, the link's own errors; 0 while there is none.
    [[nodiscard]] int error() const { return error_; }
    // Returns the errno value for which nothing more is sent; 0 while there is none. The link below may fail
    // to send while bytes that came before are still to be received.
    [[nodiscard]] int sending_error() const { return error_ != 0 ? error_ : sending_error_; }
    // Returns OpenSSL's reason for the failure, or 0. A reason from SSL_AD_REASON_OFFSET on is the peer's
    // alert.
    [[nodiscard]] int reason() const { return reason_; }

    // When the handshake is done: returns whether it used a key that both ends had before.
    [[nodiscard]] bool uses_key() const;
    // When the handshake is done: fills `secret` with bytes that only the two ends can derive from their
    // keys, for this context (RFC 8446 section 7.5). Returns false when OpenSSL cannot.
    [[nodiscard]] bool derive(std::string_view context, std::span<std::byte> secret) const;

    // ---- sending ----
    // Returns whether there is room for one more record.
    [[nodiscard]] bool has_room() const { return out_end_ + record_bytes + overhead_bytes <= kept_bytes; }
    // Makes a record of at most record_bytes bytes, for which there is room. Returns false when the session
    // has failed.
    [[nodiscard]] bool encrypt(std::span<const std::byte> bytes);
    // Gives the link the encrypted bytes. Returns whether it has taken all of them; also when there is an
    // error, because then there is nothing more to give.
    bool flush();
    // Sends the end of TLS, once. Returns as flush().
    bool close();
    // Changes the key with which this side sends; with `both` it asks the peer to do the same.
    [[nodiscard]] bool change_key(bool both);

    // ---- receiving ----
    enum class Came : std::uint8_t { Bytes, Nothing, Ended, Failed };
    // Decrypts the next record, unless decrypted bytes are there. After look_again() it asks the link for
    // more.
    [[nodiscard]] Came fetch();
    // Decrypts as many bytes as the session keeps.
    void fetch_all();
    // Lets the next fetches ask the link again.
    void look_again() { drained_ = false; }
    [[nodiscard]] std::span<const std::byte> decrypted() const {
        return {in_.get() + in_begin_, in_end_ - in_begin_};
    }
    void drop(std::size_t bytes) { in_begin_ += bytes; }

    // Gives back the memory that is not in use.
    void release_buffers();

private:
    static constexpr std::size_t overhead_bytes = 256;  // of one record, at most (RFC 8446 section 5.2)
    // The link gets a few records with one call. Behind them is room for an alert and the answers to the
    // peer's changes of keys.
    static constexpr std::size_t kept_bytes = 4 * (record_bytes + overhead_bytes);
    static constexpr std::size_t reserve_bytes = 1024;

    // OpenSSL's calls for the bytes on the link.
    static bio_method_st *calls();
    static int pull(BIO *bio, char *to, std::size_t size, std::size_t *count);
    static int push(BIO *bio, const char *from, std::size_t size, std::size_t *count);
    static long control(BIO *bio, int command, long number, void *pointer);

    // OpenSSL's call for each message of TLS.
    static void heard(int is_sent, int version, int type, const void *bytes, std::size_t size, SSL *ssl,
                      void *self);

    [[nodiscard]] bool read_record();
    void fail();

    const std::unique_ptr<SSL, SslFree> ssl_;
    Link &link_;
    const std::uint64_t most_records_;
    std::unique_ptr<std::byte[]> in_;  // decrypted
    std::size_t in_begin_ = 0;
    std::size_t in_end_ = 0;
    std::unique_ptr<std::byte[]> out_;  // encrypted
    std::size_t out_begin_ = 0;
    std::size_t out_end_ = 0;
    std::uint64_t records_ = 0;  // with the key of now
    bool drained_ = false;       // the link has no more bytes for now
    // A peer may change its key, or give a ticket. One that sends more such messages than records with
    // content, by this many, is given up: it would keep the thread for as long as it sends them.
    static constexpr std::size_t most_extra = 32;
    std::size_t extra_ = 0;
    bool link_ended_ = false;
    bool ended_ = false;   // by the peer, with the end of TLS
    bool closed_ = false;  // by this side
    int link_error_ = 0;
    int error_ = 0;
    int sending_error_ = 0;
    int reason_ = 0;
};

}  // namespace soft
