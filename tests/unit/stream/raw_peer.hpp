// SPDX-License-Identifier: BSD-3-Clause
// This peer of a stream speaks the protocol of rsockets itself, on a connection of librpma. It keeps the
// rules or breaks them, as its test wants.
#pragma once

#include <span>
#include <vector>

#include "base/fd.hpp"
#include "stream/allowance.hpp"
#include "stream/owned.hpp"
#include "stream/receive_ring.hpp"
#include "stream/window_list.hpp"

namespace test {

class RawPeer {
public:
    enum class Side { Asks, IsAsked };
    // Takes a TCP connection. The peer sends private_data instead of a Hello, unless private_data is empty.
    RawPeer(rpma_peer *peer, Side side, base::Fd socket, std::vector<std::byte> private_data = {});

    // Takes the completions and events that have come. Returns false when the connection is over.
    bool step();
    // Returns whether words may be sent, which is when those before have left.
    [[nodiscard]] bool is_ready() const { return established_ && !over_ && unsent_ == 0; }
    [[nodiscard]] bool is_over() const { return over_; }
    [[nodiscard]] bool is_established() const { return established_; }
    // Returns the Hello of the other end.
    [[nodiscard]] const stream::Hello &hello() const { return theirs_; }
    [[nodiscard]] std::uint64_t words() const { return words_; }

    // ---- the next send() sends these together ----
    void word(std::uint32_t word);
    void word(stream::Op op, std::uint32_t value) { word(stream::encode(op, value)); }
    // Adds a message of any length up to 64 bytes.
    void message(std::size_t bytes);
    void write(std::uint64_t address, std::uint32_t key, std::span<const std::byte> bytes);
    // Grants the other end a window by writing the next entry of its list.
    void window(const stream::KeyedMemory &window);
    // These functions keep the rules. data() sends as many bytes as it may, up to `most`. update() sends
    // the credits and the window that are due.
    void data(std::size_t most);
    void update();
    void send();

    // Returns the number of bytes that data() has sent. Byte number i is pattern(i).
    [[nodiscard]] std::uint64_t sent() const { return sent_; }
    [[nodiscard]] static std::byte pattern(std::uint64_t i) {
        return static_cast<std::byte>(i * 7 + (i >> 8));
    }
    // Returns the limit that this peer has given the other end.
    [[nodiscard]] std::uint16_t limit() const { return limit_; }
    [[nodiscard]] std::uint32_t half() const { return half_bytes; }
    [[nodiscard]] stream::KeyedMemory window_of_ours() const;
    // Returns how many bytes the next word may bring at most.
    [[nodiscard]] std::uint32_t room() const { return allowance_ ? allowance_->room() : 0; }

private:
    static constexpr std::uint32_t half_bytes = 3000;
    static constexpr std::uint16_t receives = 64;
    static constexpr std::uint16_t credits = 48;
    static constexpr std::uint32_t sends = 256;
    static constexpr std::size_t most_inline = 64;

    rpma_op &add(rpma_op_type type, std::span<const std::byte> bytes);
    void connect();
    void established(const rpma_conn_private_data &data);
    void take(const ibv_wc &completion);
    [[nodiscard]] std::byte *list() const { return memory_base_; }
    [[nodiscard]] std::size_t buffer_at() const { return stream::windows * stream::window_bytes; }
    [[nodiscard]] std::size_t words_at() const { return buffer_at() + std::size_t{2} * half_bytes; }

    const Side side_;
    const base::Fd socket_;
    std::vector<std::byte> private_data_;
    // The connection is destroyed before the memory that it uses.
    stream::Memory memory_;
    std::byte *memory_base_ = nullptr;
    std::uint32_t key_ = 0;
    stream::Queue queue_;
    stream::Events events_;
    stream::Request request_;
    stream::Connected conn_;

    bool established_ = false;
    bool over_ = false;
    stream::Hello theirs_;
    std::optional<stream::Allowance> allowance_;
    std::optional<stream::WindowList> granted_;
    stream::ReceiveRing ring_{half_bytes, credits};
    std::uint16_t limit_ = credits;
    std::uint32_t their_window_ = 1;
    std::uint64_t sent_ = 0;
    std::uint64_t words_ = 0;
    std::vector<rpma_op> ops_;
    std::vector<std::vector<std::byte>> bytes_;
    std::size_t unsent_ = 0;
};

// The stream belongs to the program and does not block. The socket is for its peer.
struct Ends {
    int stream = -1;
    base::Fd peer;
};
// Connects two ends. `side` is that of the peer.
[[nodiscard]] Ends connect_ends(RawPeer::Side side, int receive_bytes);
// Returns the device of 127.0.0.1, for peers.
[[nodiscard]] rpma_peer *device();

}  // namespace test
