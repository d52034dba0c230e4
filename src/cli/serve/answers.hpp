// SPDX-License-Identifier: BSD-3-Clause
// cli/serve/answers: the messages between a server and one client: where they are, and the answers. A client
// that pulls has a thread for them.
#pragma once

#include <librpma.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>

#include "base/mutex.hpp"
#include "cli/peer.hpp"
#include "cli/protocol/protocol.hpp"
#include "cli/store/upload.hpp"
#include "cli/thread.hpp"

namespace cli {

// The client's requests, behind them an answer for each, and the last.
struct Messages {
    std::span<std::byte> bytes;
    rpma_mr_local *region = nullptr;
};

// Why a request is refused.
inline constexpr const char *no_store_here = "asks to store (expected that of a push that was admitted)";
inline constexpr const char *no_look_here =
    "asks for a text (expected that of a client that lists, asks for the status, pushes, or pulls, once)";

// Returns the request that a completed receive has brought.
[[nodiscard]] Outcome<Request> request_of(const Messages &messages, const ibv_wc &message);

// Answers the request in this place. The receive is posted again before its answer is sent, because a client
// that has the answer may send the next request. The answer's completion only frees its place in the send
// queue.
[[nodiscard]] Outcome<> reply(rpma_conn *connection, const Messages &messages, std::uint64_t place,
                              const Answer &answer);

// Tells the client why its connection ends, as far as it listens, and how long a client may be silent.
void say_end(rpma_conn *connection, const Messages &messages, Ending ending, std::chrono::seconds patience);

// Registers a text for the client to read, and names it in the answer.
[[nodiscard]] Outcome<LocalRegion> grant(rpma_conn *connection, const DevicePeer &device, const Memory &text,
                                         Answer &answer);

// Answers a client that pulls, in a thread of its own: each call on its connection may have to wait for the
// storage of the content (doc/SOFT_DEVICE.md).
class PullAnswers {
public:
    using Clock = std::chrono::steady_clock;
    // The memory of the messages, the device, and the connection outlive this object. `look` makes the text
    // for which the client may ask once, and may wait for storage.
    PullAnswers(const Messages &messages, const DevicePeer &device, std::function<std::string()> look)
        : messages_{messages}, device_{device}, look_{std::move(look)} {}
    PullAnswers(const PullAnswers &) = delete;
    PullAnswers &operator=(const PullAnswers &) = delete;
    // Waits for the thread.
    ~PullAnswers();

    // Starts the thread when the connection is established.
    [[nodiscard]] Outcome<> start(rpma_conn *connection);
    // Returns when the client was active last. A client that waits for its text is.
    [[nodiscard]] Clock::time_point active() const;
    // Returns what the client did for which its connection ended; nothing when it did nothing wrong.
    [[nodiscard]] std::string fault() const EXCLUDES(mutex_);

private:
    void run();
    [[nodiscard]] Outcome<> serve(const ibv_wc &message);
    [[nodiscard]] Outcome<> give_look(std::uint64_t place);

    const Messages messages_;
    const DevicePeer &device_;
    const std::function<std::string()> look_;
    rpma_conn *connection_ = nullptr;
    rpma_cq *completions_ = nullptr;
    bool has_looked_ = false;
    std::atomic<bool> looks_{false};
    std::atomic<Clock::time_point> active_{Clock::time_point{}};
    Memory text_;
    LocalRegion text_region_;
    mutable base::Mutex mutex_;
    std::string fault_ GUARDED_BY(mutex_);
    StopEvent stop_;
    std::thread thread_;
};

}  // namespace cli
