// SPDX-License-Identifier: BSD-3-Clause
// A program posts random requests to many queue pairs through this class, and tells the class their
// completions. The class asserts (cmocka) that each request completes once and in the order of its
// queue, that it brings the bytes that the peer pretends to have (answers.hpp), and that the device
// writes to no memory but that of posted requests.
#pragma once

#include <cstdint>
#include <deque>
#include <map>

#include "disorder.hpp"
#include "sinks.hpp"

namespace test {

class Ledger {
public:
    struct Counts {
        std::uint64_t posted = 0;
        std::uint64_t answered = 0;  // reads, flushes and atomic operations that succeeded
        std::uint64_t failed = 0;
    };

    // Writes and sends take their bytes from `source`.
    Ledger(ibv_pd *pd, const ibv_sge &source, Dice &dice) : dice_{dice}, source_{source}, sinks_{pd} {}

    // Each of these functions posts one request, and post_request() posts one of any kind. They post nothing
    // when the queue has no room or the queue pair is not connected.
    void post_receive(ibv_qp *qp);
    void post_request(ibv_qp *qp);

    void completed(const ibv_wc &completion);
    // Returns whether all requests of this queue pair, whose connection has ended, are completed.
    [[nodiscard]] bool is_settled(const ibv_qp &qp) const;
    // Notes that the queue pair was destroyed and its completions are polled.
    // No other of its requests will complete.
    void forget(std::uint32_t qp_num);
    // Asserts that the device wrote to no memory that it was not given.
    void check_sinks() const { assert_true(sinks_.are_untouched()); }

    [[nodiscard]] const Counts &counts() const { return counts_; }

private:
    struct Posted {
        std::uint64_t wr_id = 0;
        int opcode = 0;
        bool signaled = true;
        std::uint64_t address = 0;  // in the peer's memory
        Sinks::Cell *sink = nullptr;
    };
    struct Queues {
        std::deque<Posted> requests;
        std::deque<Posted> receives;
    };
    [[nodiscard]] ibv_send_wr any_request();
    [[nodiscard]] std::size_t any_size();
    void succeeded(const Posted &request);
    void give_back(const Posted &posted);

    Dice &dice_;
    const ibv_sge source_;
    Sinks sinks_;
    std::map<std::uint32_t, Queues> queues_;  // by the number of the queue pair
    std::uint64_t next_wr_id_ = 1;
    Counts counts_;
};

}  // namespace test
