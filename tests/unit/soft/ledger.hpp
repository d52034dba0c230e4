// SPDX-License-Identifier: BSD-3-Clause
// What a program has posted to many queue pairs, by chance, and what has become of it. Asserted (cmocka):
// each request completes once, in the order of its queue; what it brought is what the peer had (answers.hpp);
// and nothing but the memory of posted requests is filled.
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

    // `source`: what writes and sends are taken from.
    Ledger(ibv_pd *pd, const ibv_sge &source, Dice &dice) : dice_{dice}, source_{source}, sinks_{pd} {}

    // One receive, one request of any kind; nothing when the queue has no room, or is not connected.
    void post_receive(ibv_qp *qp);
    void post_request(ibv_qp *qp);

    void completed(const ibv_wc &completion);
    // Of an ended connection: all is completed.
    [[nodiscard]] bool is_settled(const ibv_qp &qp) const;
    // It was destroyed, and its completions are polled: what else was posted is over.
    void forget(std::uint32_t qp_num);
    // Asserts, of all memory.
    void check_sinks() const { assert_true(sinks_.are_untouched()); }

    [[nodiscard]] const Counts &counts() const { return counts_; }

private:
    struct Posted {
        std::uint64_t wr_id = 0;
        int opcode = 0;
        bool signaled = true;
        std::uint64_t address = 0;  // of the peer's memory
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
