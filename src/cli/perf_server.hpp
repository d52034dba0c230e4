// SPDX-License-Identifier: BSD-3-Clause
// cli/perf_server: what the server of a pool has for `rpma perf`: memory, answers to messages, and a TCP
// baseline. The committed content of the pool stays out of reach.
#pragma once

#include <memory>
#include <thread>

#include "cli/mapping.hpp"
#include "cli/peer.hpp"
#include "cli/pool.hpp"
#include "cli/protocol.hpp"
#include "cli/tcp_answers.hpp"

namespace cli {

// The receives that one client may ask for; every connection of the server has queues for so many.
inline constexpr std::uint32_t most_messages = 64;

// Memory that clients measure in, shared by them.
struct PerfArea {
    Mapping scratch;  // none when it is the pool's
    std::size_t size;
    LocalRegion region;
};

// Takes the messages of one client, and sends an empty one for each, in a thread of its own.
class MessageAnswers {
public:
    MessageAnswers(const PerfArea &area, const Hello &hello) : area_{area}, hello_{hello} {}
    MessageAnswers(const MessageAnswers &) = delete;
    MessageAnswers &operator=(const MessageAnswers &) = delete;
    ~MessageAnswers();

    // Posts the receives, before the connection is accepted.
    [[nodiscard]] Outcome<> prepare(rpma_conn_req *request) const;
    // Once it is established; it outlives this object.
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

// One client has this. It goes before the client's connection: the area's last takes the right to
// access it away.
struct PerfClient {
    std::shared_ptr<PerfArea> area;
    std::unique_ptr<MessageAnswers> messages;  // if it asked for receives
    std::unique_ptr<TcpAnswers> baseline;
};

// One thread. The pool and the device outlive it and its clients.
class PerfServer {
public:
    PerfServer(const Pool &pool, const DevicePeer &device) : pool_{pool}, device_{device} {}

    // Prepares to accept a client who wants to measure, and fills in what `offer` says to it. Its status is
    // not Ok when it asks for too much. `slot` is the pool's that is not committed.
    [[nodiscard]] Outcome<PerfClient> admit(const Hello &hello, rpma_conn_req *request, unsigned slot,
                                            Offer &offer);

    // Somebody measures in the slot that a push would write.
    [[nodiscard]] bool uses_pool() const { return !slot_.expired(); }

private:
    [[nodiscard]] Outcome<std::shared_ptr<PerfArea>> scratch();
    [[nodiscard]] Outcome<std::shared_ptr<PerfArea>> slot(unsigned slot, bool durable);

    const Pool &pool_;
    const DevicePeer &device_;
    std::weak_ptr<PerfArea> scratch_;
    std::weak_ptr<PerfArea> slot_;
};

}  // namespace cli
