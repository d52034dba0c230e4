// SPDX-License-Identifier: BSD-3-Clause
// cli/perf/tcp_answers: the server's end of the baseline of `rpma perf`: plain TCP that takes requests and
// sends answers of agreed sizes.
//
// The client first sends both sizes, then requests. A request whose first byte is not 0 gets an answer. The
// other bytes have no meaning, and are not kept.
#pragma once

#include <sys/socket.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <thread>

#include "base/fd.hpp"
#include "cli/failure.hpp"
#include "cli/thread.hpp"

namespace cli {

//    0               4              8
//    | request bytes | answer bytes |      little-endian, each 1 to largest_message
using TcpHeader = std::array<std::byte, 8>;

struct TcpSizes {
    std::uint32_t request;
    std::uint32_t answer;
};

[[nodiscard]] TcpHeader encode_tcp_header(const TcpSizes &sizes);
[[nodiscard]] Outcome<TcpSizes> decode_tcp_header(std::span<const std::byte, sizeof(TcpHeader)> bytes);

// Finds the requests in the bytes that arrive, in any pieces.
class RequestStream {
public:
    explicit RequestStream(std::uint32_t request_bytes) : request_bytes_{request_bytes} {}
    // Returns how many requests that want an answer end in the next bytes.
    [[nodiscard]] std::uint64_t take(std::span<const std::byte> bytes);

private:
    std::uint32_t request_bytes_;
    std::uint32_t left_ = 0;  // bytes of the request that is arriving
    bool wants_answer_ = false;
};

// Serves one connection of one client, on a port and in a thread of its own. It ends with the connection or
// the object.
class TcpAnswers {
public:
    // Listens at the address at which the client reached the server. Connections from other addresses are
    // closed.
    [[nodiscard]] static Outcome<std::unique_ptr<TcpAnswers>> listen(const sockaddr_storage &local,
                                                                     const sockaddr_storage &client);
    TcpAnswers(const TcpAnswers &) = delete;
    TcpAnswers &operator=(const TcpAnswers &) = delete;
    ~TcpAnswers();

    [[nodiscard]] std::uint16_t port() const { return port_; }
    // Returns when the client sent its last bytes; the epoch when it never did.
    [[nodiscard]] std::chrono::steady_clock::time_point active() const {
        // Relaxed is enough, because it publishes nothing else.
        return std::chrono::steady_clock::time_point{active_.load(std::memory_order_relaxed)};
    }

private:
    TcpAnswers() = default;
    void run();
    [[nodiscard]] base::Fd accept_client();
    void serve(int connection);
    // Receives at least one byte; returns 0 when the connection is over.
    [[nodiscard]] std::size_t receive(int connection, std::span<std::byte> into);
    [[nodiscard]] bool send(int connection, std::uint64_t size);

    sockaddr_storage client_{};
    base::Fd listener_;
    std::uint16_t port_ = 0;
    StopEvent stop_;
    std::atomic<std::chrono::steady_clock::duration> active_;
    // Plain TCP is fastest with a buffer of this size, which stays in the cache.
    std::array<std::byte, std::size_t{256} << 10> buffer_{};
    std::thread thread_;
};

}  // namespace cli
