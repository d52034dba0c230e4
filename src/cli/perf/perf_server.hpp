// SPDX-License-Identifier: BSD-3-Clause
// cli/perf/perf_server: the parts of a server that serve `rpma perf`: memory, answers to messages, and a
// TCP baseline. No committed content is accessible.
#pragma once

#include <memory>
#include <thread>
#include <utility>

#include "cli/mapping.hpp"
#include "cli/peer.hpp"
#include "cli/perf/tcp_answers.hpp"
#include "cli/protocol/protocol.hpp"
#include "cli/store/store.hpp"

namespace cli {

// The receives that one client may ask for. Every connection of the server has queues for this many.
inline constexpr std::uint32_t most_messages = 64;

// The memory in which clients measure, and which they share.
struct PerfArea {
    Mapping scratch;  // empty when it is memory of the store
    std::size_t size;
    LocalRegion region;
};

// Takes the messages of one client, and sends an empty one for each, in a thread of its own.
class MessageAnswers {
public:
    MessageAnswers(const PerfArea &area, Hello hello) : area_{area}, hello_{std::move(hello)} {}
    MessageAnswers(const MessageAnswers &) = delete;
    MessageAnswers &operator=(const MessageAnswers &) = delete;
    ~MessageAnswers();

    // Posts the receives, before the connection is accepted.
    [[nodiscard]] Outcome<> prepare(rpma_conn_req *request) const;
    // Starts the thread when the connection is established. The connection outlives this object.
    [[nodiscard]] Outcome<> start(rpma_conn *connection);

private:
    void run();
    [[nodiscard]] bool serve(const ibv_wc &completion) const;
    [[nodiscard]] std::size_t offset(std::uint64_t message) const;

    const PerfArea &area_;
    Hello hello_;
    rpma_conn *connection_ = nullptr;
    rpma_cq *completions_ = nullptr;
    StopEvent stop_;
    std::thread thread_;
};

// The threads of one client. They are ended before its connection, and that before the area.
struct PerfClient {
    std::unique_ptr<MessageAnswers> messages;  // if the client asked for receives
    std::unique_ptr<TcpAnswers> baseline;
};

// One thread uses it. The store and the device outlive it and its clients.
class PerfServer {
public:
    PerfServer(Store &store, const DevicePeer &device) : store_{store}, device_{device} {}

    // Prepares to accept a client that wants to measure, and fills in `area` and `offer`. The status is not
    // Ok when the client asks for too much.
    [[nodiscard]] Outcome<PerfClient> admit(const Hello &hello, rpma_conn_req *request,
                                            std::shared_ptr<PerfArea> &area, Offer &offer);

private:
    [[nodiscard]] Outcome<std::shared_ptr<PerfArea>> scratch();
    [[nodiscard]] Outcome<std::shared_ptr<PerfArea>> measured(bool durable);

    Store &store_;
    const DevicePeer &device_;
    std::weak_ptr<PerfArea> scratch_;
    std::weak_ptr<PerfArea> measured_;
};

}  // namespace cli
