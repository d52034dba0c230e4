// SPDX-License-Identifier: BSD-3-Clause
// This peer is nothing but a TCP socket on 127.0.0.1, and sends what a test gives it. Every function asserts
// (cmocka) that it succeeds, and none waits longer than 40 s.
#pragma once

#include "../../loopback.hpp"
#include "fpdu.hpp"

namespace test {

// This is a start-up frame with its private data.
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

    // Connects as initiator. Host 1 is 127.0.0.1. Another one is 192.0.2.host, for which a test has a network
    // of its own (own_network.hpp). TCP uses segments of max_segment_bytes at most, and has room for
    // room_bytes that were not received. When a number is 0, TCP chooses it.
    void connect(std::uint16_t port, int max_segment_bytes = 0, unsigned host = 1, int room_bytes = 0);
    // Listens as responder and returns the port. accept() then takes the one connection.
    [[nodiscard]] std::uint16_t listen();
    void accept();

    void send(std::span<const std::byte> bytes);
    [[nodiscard]] Bytes receive(std::size_t size);
    [[nodiscard]] Fpdu receive_fpdu();
    [[nodiscard]] Frame receive_frame(soft::wire::MpaRole role);
    // Sends the start-up frame.
    void send_frame(const soft::wire::MpaFrame &frame);
    // Returns whether no bytes wait to be received. The loopback interface delivers at once.
    [[nodiscard]] bool silent() const;
    // Returns whether bytes wait to be received.
    [[nodiscard]] bool has_data() const;
    // Throws away the bytes that have arrived. Returns whether the device has
    // closed its side or reset the connection.
    [[nodiscard]] bool has_ended();
    // Receives until the device closes its side or resets the connection, and returns the bytes.
    [[nodiscard]] Bytes receive_rest();
    void finish();  // no more to send
    void close();
    [[nodiscard]] int socket() const { return socket_; }
    // Counts the bytes of send() and of the functions that call it, since connect() or accept().
    [[nodiscard]] std::uint64_t sent_bytes() const { return sent_bytes_; }

private:
    int listener_ = -1;
    int socket_ = -1;
    std::uint64_t sent_bytes_ = 0;
};

[[nodiscard]] Bytes encoded(const soft::wire::MpaFrame &frame);

// Returns the first FPDU of an initiator whose peer asked for one.
[[nodiscard]] Bytes ready_to_receive(bool crc = false);

}  // namespace test
