// SPDX-License-Identifier: BSD-3-Clause
// A peer that is nothing but a TCP socket on 127.0.0.1: it says what a test tells it to. Every function
// asserts (cmocka) that it succeeds; nothing waits longer than 40 s.
#pragma once

#include "../../loopback.hpp"
#include "fpdu.hpp"

namespace test {

// A start-up frame with its private data.
struct Frame {
    soft::wire::MpaFrame mpa;
    Bytes private_data;
    Bytes raw;
};

class Peer {
public:
    Peer() = default;
    ~Peer() { close(); }
    Peer(const Peer &) = delete;
    Peer &operator=(const Peer &) = delete;

    // As initiator. max_segment_bytes: what TCP is told to use at most, 0 for its own choice. From
    // 127.0.0.host, with room for so many bytes that are not received, 0 for TCP's own choice.
    void connect(std::uint16_t port, int max_segment_bytes = 0, unsigned host = 1, int room_bytes = 0);
    // As responder: the port, then the one connection.
    [[nodiscard]] std::uint16_t listen();
    void accept();

    void send(std::span<const std::byte> bytes);
    [[nodiscard]] Bytes receive(std::size_t size);
    [[nodiscard]] Fpdu receive_fpdu();
    [[nodiscard]] Frame receive_frame(soft::wire::MpaRole role);
    // Sends the start-up frame.
    void send_frame(const soft::wire::MpaFrame &frame);
    // Nothing has arrived that was not received. Loopback delivers at once.
    [[nodiscard]] bool silent() const;
    // Something has arrived.
    [[nodiscard]] bool has_data() const;
    // Throws away what has arrived; whether the device has closed its side, or reset the connection.
    [[nodiscard]] bool has_ended();
    // What comes until the device closes its side or resets the connection.
    [[nodiscard]] Bytes receive_rest();
    void finish();  // no more to send
    void close();
    [[nodiscard]] int socket() const { return socket_; }
    // By send() and what is made of it, since connect() or accept().
    [[nodiscard]] std::uint64_t sent_bytes() const { return sent_bytes_; }

private:
    int listener_ = -1;
    int socket_ = -1;
    std::uint64_t sent_bytes_ = 0;
};

[[nodiscard]] Bytes encoded(const soft::wire::MpaFrame &frame);

// What an initiator's first FPDU is when its peer asked for one.
[[nodiscard]] Bytes ready_to_receive(bool crc = false);

}  // namespace test
