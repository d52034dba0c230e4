// SPDX-License-Identifier: BSD-3-Clause
// bench: the measurements, and the baselines beside them. Each measurement starts a process for the other end
// and stops it afterwards, so that no idle poller takes a core from another measurement.
#pragma once

#include <sys/types.h>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace bench {

inline constexpr std::size_t message_bytes = 1 << 20;
inline constexpr unsigned depth = 16;
inline constexpr std::size_t area_bytes = depth * message_bytes;

// A child process that serves one connection on 127.0.0.1 and ends with it.
class PeerProcess {
public:
    // `serve` runs in the child: it listens, hands its port to `listening`, and returns when its connection
    // is over.
    using Serve = std::function<void(const std::function<void(std::uint16_t port)> &listening)>;
    explicit PeerProcess(const Serve &serve);
    ~PeerProcess();
    PeerProcess(const PeerProcess &) = delete;
    PeerProcess &operator=(const PeerProcess &) = delete;

    [[nodiscard]] std::uint16_t port() const { return port_; }

private:
    pid_t pid_ = -1;
    std::uint16_t port_ = 0;
};

// Prints the text and ends the program: a benchmark has no caller that it could report to.
[[noreturn]] void die(const char *what);

// Returns the number that an argument of a program for scripts is. Ends the program when it is none above 0.
[[nodiscard]] std::size_t number(const char *text);

[[nodiscard]] double seconds_since(std::chrono::steady_clock::time_point start);

// ---- raw TCP, non-blocking and spinning ----
// Returns the bytes a second for `total` bytes in blocks of `block`.
[[nodiscard]] double tcp_bandwidth(std::size_t block, std::size_t total);
// Returns the block size from 32 KiB to 4 MiB with which `total` bytes are sent fastest.
[[nodiscard]] std::size_t best_tcp_block(std::size_t total);
// Returns the seconds of one round trip of `size` bytes.
[[nodiscard]] double tcp_round_trip(unsigned rounds, std::size_t size);
// Returns the median of the seconds that `size` bytes take until the peer answers that they are on storage:
// it writes them into a file of the folder. Both ends sleep while they wait.
[[nodiscard]] double tcp_stored(unsigned rounds, std::size_t size, const char *folder);

// ---- the soft device ----
enum class Target { Polls, Sleeps };
// Returns the bytes a second for writes of message_bytes, `depth` at once.
[[nodiscard]] double write_bandwidth(Target target, std::size_t total);
// Returns the seconds of one 8-byte write and flush, posted together.
[[nodiscard]] double write_flush(Target target, unsigned rounds);

}  // namespace bench
