// SPDX-License-Identifier: BSD-3-Clause
// soft/queues: tests send_queue without a connection: what the peer acknowledges and answers, and what each
// of its pieces costs.
#include "soft/queues/send_queue.hpp"

#include <optional>
#include <vector>

#include "softrdma.h"

// These come last, because they assert.
#include "../base/fixture.hpp"

namespace {

using soft::CompletionQueue;
using soft::SendQueue;
using soft::SendRequest;

constexpr std::uint32_t most_requests = 16384;
constexpr std::uint32_t read_before = 1;
constexpr std::uint32_t read_behind = 2;

// A queue of many requests, which the link has taken: a read, writes, and another read.
struct Full final : soft::Completing {
    Full() {
        devices = softrdma_ibv_get_device_list(nullptr);
        ibv_context *const context = softrdma_ibv_open_device(devices[0]);
        assert_non_null(context);
        cq = softrdma_ibv_create_cq(context, most_requests, nullptr, nullptr, 0);
        assert_non_null(cq);
        ibv_qp_cap cap{};
        cap.max_send_wr = most_requests;
        cap.max_send_sge = 1;
        queue.emplace(cap, true, *CompletionQueue::of(cq), *this, 0);
        queue->begin(true);
        post(IBV_WR_RDMA_READ, read_before);
        for (std::uint32_t i = 0; i < writes; ++i) {
            post(IBV_WR_RDMA_WRITE, 0);
        }
        post(IBV_WR_RDMA_READ, read_behind);
        queue->sent();
    }
    ~Full() {
        queue.reset();
        assert_int_equal(softrdma_ibv_destroy_cq(cq), 0);
        softrdma_ibv_free_device_list(devices);
    }
    Full(const Full &) = delete;
    Full &operator=(const Full &) = delete;

    void release(WorkQueue, unsigned slots) override { queue->release(slots); }

    void post(ibv_wr_opcode opcode, std::uint64_t wr_id) {
        ibv_send_wr request{};
        request.opcode = opcode;
        request.wr_id = wr_id;
        SendRequest &pushed = queue->push(request, 0);
        if (pushed.needs_answer) {
            queue->awaits_answer();
        }
        queue->built(pushed, 0);
    }
    // Returns the numbers of the requests that are complete, and frees their places.
    [[nodiscard]] std::vector<std::uint64_t> completed() const {
        std::vector<ibv_wc> found(most_requests);
        const int count = ibv_poll_cq(cq, static_cast<int>(found.size()), found.data());
        assert_true(count >= 0);
        std::vector<std::uint64_t> numbers;
        for (int i = 0; i < count; ++i) {
            assert_int_equal(found[static_cast<std::size_t>(i)].status, IBV_WC_SUCCESS);
            numbers.push_back(found[static_cast<std::size_t>(i)].wr_id);
        }
        return numbers;
    }

    static constexpr std::uint32_t writes = most_requests - 2;
    ibv_device **devices = nullptr;
    ibv_cq *cq = nullptr;
    std::optional<SendQueue> queue;
};

void requests_complete_in_their_order(Full &full) {
    SendQueue &queue = *full.queue;
    assert_true(queue.acknowledge({.writes = 5}));
    assert_true(full.completed().empty());
    queue.answered(*queue.oldest_awaiting());
    assert_int_equal(full.completed().size(), 1 + 5);
    assert_true(queue.acknowledge({.writes = 7}));
    assert_int_equal(full.completed().size(), 2);
    queue.answered(*queue.oldest_awaiting());
    assert_null(queue.oldest_awaiting());
    assert_true(full.completed().empty());
    assert_true(queue.acknowledge({.writes = Full::writes}));
    const std::vector<std::uint64_t> rest = full.completed();
    assert_int_equal(rest.size(), Full::writes - 7 + 1);
    assert_int_equal(rest.back(), read_behind);
    assert_true(queue.empty());
}

// The indexes at which the walks begin go with the requests that leave, so the next ones are found too.
void the_next_requests_are_found(Full &full) {
    SendQueue &queue = *full.queue;
    queue.answered(*queue.oldest_awaiting());
    assert_true(queue.acknowledge({.writes = Full::writes}));
    queue.answered(*queue.oldest_awaiting());
    assert_int_equal(full.completed().size(), most_requests);
    for (std::uint32_t round = 1; round <= 3; ++round) {
        full.post(IBV_WR_RDMA_WRITE, 3);
        full.post(IBV_WR_RDMA_READ, read_behind);
        queue.sent();
        assert_int_equal(queue.oldest_awaiting()->wr_id, read_behind);
        queue.answered(*queue.oldest_awaiting());
        assert_true(queue.acknowledge({.writes = Full::writes + round}));
        assert_true(full.completed() == (std::vector<std::uint64_t>{3, read_behind}));
    }
    queue.reset();
    queue.begin(true);
    full.post(IBV_WR_RDMA_WRITE, 4);
    queue.sent();
    assert_true(queue.acknowledge({.writes = 1}));
    assert_true(full.completed() == std::vector<std::uint64_t>{4});
}

// A peer that repeats itself would take minutes of this thread if each piece had all requests looked at: one
// by acknowledgements while it owes an answer, the other by an answer in many pieces while it owes
// acknowledgements.
constexpr int most_pieces = 10'000'000;

void an_acknowledgement_looks_at_no_request_twice(Full &full) {
    for (int i = 0; i < most_pieces; ++i) {
        assert_true(full.queue->acknowledge({.writes = Full::writes}));
    }
    assert_true(full.completed().empty());
}

void a_piece_of_an_answer_looks_at_no_request_twice(Full &full) {
    SendQueue &queue = *full.queue;
    queue.answered(*queue.oldest_awaiting());
    assert_int_equal(full.completed().size(), 1);
    for (int i = 0; i < most_pieces; ++i) {
        const SendRequest *const request = queue.oldest_awaiting();
        assert_true(request != nullptr && request->wr_id == read_behind);
    }
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        fixture_test(requests_complete_in_their_order),
        fixture_test(the_next_requests_are_found),
        fixture_test(an_acknowledgement_looks_at_no_request_twice),
        fixture_test(a_piece_of_an_answer_looks_at_no_request_twice),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
