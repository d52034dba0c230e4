// SPDX-License-Identifier: BSD-3-Clause
// A hostile peer's bytes go this way: a TCP socket, with TLS on it when RPMA_TLS is set. No function here
// waits. With TLS the peer has the right key, and can also spoil what it sends below TLS, as somebody on the
// way would who has none.
#pragma once

#include <openssl/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace test {

// Has this process, and those that it starts, use TLS with the key of every Wire. It writes a file of keys
// into the current folder. Returns false, with errno, when it cannot.
[[nodiscard]] bool use_tls();

class Wire {
public:
    enum class Side : std::uint8_t { Client, Server };

    // The socket, which is connected, outlives the wire. The process ends without memory.
    Wire(int socket, Side side);
    Wire(const Wire &) = delete;
    Wire &operator=(const Wire &) = delete;
    ~Wire() = default;

    // Gives the wire bytes. Returns how many it has taken, perhaps none.
    [[nodiscard]] std::size_t give(std::span<const std::byte> bytes);
    // Appends the bytes that have come. Returns nothing while the connection lasts, 0 after the other side's
    // end, and an errno value after a failure; EPROTO means that TLS has failed.
    [[nodiscard]] std::optional<int> take(std::vector<std::byte> &to);
    // Ends this direction once what was given is on its way.
    void finish();

    [[nodiscard]] bool uses_tls() const { return ssl_ != nullptr; }
    // Changes the key with which this side sends, and asks the other side for the same.
    void change_key();
    // Gives the socket at most so many bytes at a time.
    void drip(std::size_t bytes) { most_at_once_ = bytes; }
    // After this many bytes on the socket comes one that is not what TLS has made, and then nonsense.
    void spoil_after(std::uint64_t bytes, std::uint64_t choice);
    // Returns whether that has happened. What is given from then on is lost.
    [[nodiscard]] bool is_spoilt() const { return is_spoilt_; }

private:
    struct Free {
        void operator()(SSL *ssl) const;
    };
    [[nodiscard]] bool shake();
    void pull();
    void push();
    void take_encrypted();
    void spoil(std::size_t at);

    const int socket_;
    std::unique_ptr<SSL, Free> ssl_;
    std::vector<std::byte> out_;  // encrypted
    std::uint64_t made_ = 0;      // the number of encrypted bytes
    std::size_t most_at_once_ = SIZE_MAX;
    std::optional<std::uint64_t> spoil_after_;
    std::uint64_t spoil_choice_ = 0;
    bool is_spoilt_ = false;
    bool has_finished_ = false;
    std::optional<int> end_;  // of the socket
};

}  // namespace test
