// SPDX-License-Identifier: BSD-3-Clause
// See the header.
#include "wire.hpp"

#include <fcntl.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

#include "shared_key.hpp"

namespace test {

namespace {

constexpr std::size_t most_given = std::size_t{64} * 1024;
// No record is longer, so the other side does not wait for the rest of one.
constexpr std::size_t nonsense_bytes = 20'000;

void require(bool holds) {
    if (!holds) {
        std::fputs("no memory for a peer with TLS\n", stderr);
        std::abort();
    }
}

bool is_tls_set() {
    const char *const value = std::getenv("RPMA_TLS");
    return value != nullptr && *value != '\0';
}

}  // namespace

bool use_tls() {
    std::array<char, PATH_MAX> folder{};
    if (getcwd(folder.data(), folder.size()) == nullptr) {
        return false;
    }
    const std::string file = std::string{folder.data()} + "/keys_of_the_wire";
    const std::string text = line_of_one_key();
    const int fd = open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, S_IRUSR | S_IWUSR);
    if (fd < 0) {
        return false;
    }
    const bool written = write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    return close(fd) == 0 && written && setenv("RPMA_TLS", ("psk:" + file).c_str(), 1) == 0;
}

void Wire::Free::operator()(SSL *ssl) const {
    SSL_free(ssl);
}

Wire::Wire(int socket, Side side) : socket_{socket} {
    if (!is_tls_set()) {
        return;
    }
    require(context_of_one_key() != nullptr);
    ssl_.reset(SSL_new(context_of_one_key()));
    BIO *const in = BIO_new(BIO_s_mem());
    BIO *const out = BIO_new(BIO_s_mem());
    require(ssl_ != nullptr && in != nullptr && out != nullptr);
    SSL_set_bio(ssl_.get(), in, out);
    if (side == Side::Client) {
        SSL_set_connect_state(ssl_.get());
    } else {
        SSL_set_accept_state(ssl_.get());
    }
}

std::size_t Wire::give(std::span<const std::byte> bytes) {
    if (ssl_ == nullptr) {
        const ssize_t count = send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        return count > 0 ? static_cast<std::size_t>(count) : 0;
    }
    push();
    if (is_spoilt_) {
        return bytes.size();
    }
    pull();
    if (!shake() || !out_.empty() || bytes.empty()) {
        return 0;
    }
    ERR_clear_error();
    const int count =
        SSL_write(ssl_.get(), bytes.data(), static_cast<int>(std::min(bytes.size(), most_given)));
    take_encrypted();
    push();
    return count > 0 ? static_cast<std::size_t>(count) : 0;
}

std::optional<int> Wire::take(std::vector<std::byte> &to) {
    std::array<std::byte, 16 * 1024> some;
    if (ssl_ == nullptr) {
        ssize_t count = 0;
        while ((count = recv(socket_, some.data(), some.size(), MSG_DONTWAIT)) > 0) {
            to.insert(to.end(), some.begin(), some.begin() + count);
        }
        if (count == 0) {
            return 0;
        }
        return errno == EAGAIN || errno == EINTR ? std::nullopt : std::optional{errno};
    }
    pull();
    push();
    if (!shake()) {
        return end_;
    }
    ERR_clear_error();
    int count = 0;
    while ((count = SSL_read(ssl_.get(), some.data(), static_cast<int>(some.size()))) > 0) {
        to.insert(to.end(), some.begin(), some.begin() + count);
    }
    const int error = SSL_get_error(ssl_.get(), count);
    take_encrypted();  // the answer to a change of keys
    push();
    if (error == SSL_ERROR_ZERO_RETURN) {
        return 0;
    }
    return error == SSL_ERROR_WANT_READ ? end_ : std::optional{EPROTO};
}

void Wire::finish() {
    has_finished_ = true;
    if (ssl_ == nullptr) {
        (void)shutdown(socket_, SHUT_WR);
        return;
    }
    ERR_clear_error();
    if (!is_spoilt_ && SSL_is_init_finished(ssl_.get()) == 1) {
        (void)SSL_shutdown(ssl_.get());
        take_encrypted();
    }
    push();
}

void Wire::change_key() {
    if (ssl_ != nullptr && !is_spoilt_ && SSL_is_init_finished(ssl_.get()) == 1) {
        ERR_clear_error();
        (void)SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_REQUESTED);  // goes with the next bytes
    }
}

void Wire::spoil_after(std::uint64_t bytes, std::uint64_t choice) {
    spoil_after_ = bytes;
    spoil_choice_ = choice;
}

// Returns whether the handshake is done. A failure of the handshake ends the connection.
bool Wire::shake() {
    if (SSL_is_init_finished(ssl_.get()) == 1) {
        return true;
    }
    if (is_spoilt_) {
        return false;
    }
    ERR_clear_error();
    const int result = SSL_do_handshake(ssl_.get());
    const int error = SSL_get_error(ssl_.get(), result);
    take_encrypted();
    push();
    if (result != 1 && error != SSL_ERROR_WANT_READ && !end_) {
        end_ = EPROTO;
    }
    return result == 1;
}

// Gives TLS the bytes that have come to the socket.
void Wire::pull() {
    std::array<std::byte, 16 * 1024> some;
    ssize_t count = -1;
    while (!end_ && (count = recv(socket_, some.data(), some.size(), MSG_DONTWAIT)) > 0) {
        require(BIO_write(SSL_get_rbio(ssl_.get()), some.data(), static_cast<int>(count)) == count);
    }
    if (!end_ && count == 0) {
        end_ = ECONNRESET;  // without the end of TLS
    } else if (!end_ && errno != EAGAIN && errno != EINTR) {
        end_ = errno;
    }
}

void Wire::push() {
    while (!out_.empty()) {
        const ssize_t count =
            send(socket_, out_.data(), std::min(out_.size(), most_at_once_), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (count <= 0) {
            return;
        }
        out_.erase(out_.begin(), out_.begin() + count);
        if (most_at_once_ != SIZE_MAX) {
            return;
        }
    }
    if (has_finished_) {
        (void)shutdown(socket_, SHUT_WR);
    }
}

void Wire::take_encrypted() {
    std::array<std::byte, 16 * 1024> some;
    int count = 0;
    while ((count = BIO_read(SSL_get_wbio(ssl_.get()), some.data(), static_cast<int>(some.size()))) > 0) {
        const std::size_t begin = out_.size();
        const auto bytes = static_cast<std::uint64_t>(count);
        if (!is_spoilt_) {
            out_.insert(out_.end(), some.begin(), some.begin() + count);
            if (spoil_after_ && *spoil_after_ < made_ + bytes) {
                spoil(begin + static_cast<std::size_t>(*spoil_after_ - made_));
            }
        }
        made_ += bytes;
    }
}

// Changes, removes or doubles this byte.
void Wire::spoil(std::size_t at) {
    is_spoilt_ = true;
    std::mt19937_64 random{spoil_choice_};
    const auto place = out_.begin() + static_cast<std::ptrdiff_t>(at);
    switch (random() % 3) {
        case 0:
            *place ^= static_cast<std::byte>(1 + random() % 255);
            break;
        case 1:
            out_.erase(place);
            break;
        default:
            out_.insert(place, *place);
            break;
    }
    for (std::size_t left = nonsense_bytes; left != 0; --left) {
        out_.push_back(static_cast<std::byte>(random()));
    }
}

}  // namespace test
