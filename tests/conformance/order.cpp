// SPDX-License-Identifier: BSD-3-Clause
// conformance: tests many operations at once: order, fences, depth, both directions, several threads.
#include <algorithm>
#include <array>
#include <atomic>

#include "suite.hpp"

namespace conformance {

namespace {

// The read has arrived before the fenced write, which would spoil it, has begun.
void a_fenced_write_waits_for_the_read(void **) {
    static constexpr std::size_t half = Sizes{}.memory_bytes / 2;
    Ends &ends = connected();
    for (unsigned round = 1; round <= 8; ++round) {
        fill(ends.server, 0, half, round);
        fill(ends.client, half, half, round + 100);
        Request spoil = fenced(write_request(ends.client, ends.server, 0, half, 2));
        spoil.sges = {sge(ends.client, half, half)};
        assert_int_equal(post(ends.client, {read_request(ends.client, ends.server, 0, half, 1), spoil}), 0);
        expect_completion(ends.client.cq, 1);
        expect_completion(ends.client.cq, 2);
        assert_true(holds(ends.client, 0, half, round));
        settle(ends.client, ends.server);
        assert_true(holds(ends.server, 0, half, round + 100));
    }
}

// The fenced send carries the bytes that the read has brought.
void a_fenced_send_carries_what_the_read_brought(void **) {
    static constexpr std::size_t bytes = 200'000;
    Ends &ends = connected();
    for (unsigned round = 1; round <= 8; ++round) {
        fill(ends.server, 0, bytes, round);
        std::ranges::fill(ends.client.memory, std::byte{0});
        assert_int_equal(post_receive(ends.server, 9, {sge(ends.server, bytes, bytes)}), 0);
        assert_int_equal(post(ends.client, {read_request(ends.client, ends.server, 0, bytes, 1),
                                            fenced(send_request(ends.client, 0, bytes, 2))}),
                         0);
        expect_completion(ends.client.cq, 1);
        expect_completion(ends.client.cq, 2);
        expect_completion(ends.server.cq, 9);
        assert_true(holds(ends.server, bytes, bytes, round));
    }
}

// A read follows the message into the memory that it reads, also when the device could do it at once.
void a_read_sees_the_message_before_it(void **) {
    static constexpr std::size_t half = Sizes{}.memory_bytes / 2;
    static constexpr std::size_t bytes = 3000;
    Ends &ends = connected();
    for (unsigned round = 1; round <= 16; ++round) {
        std::ranges::fill(ends.server.memory, std::byte{0});
        fill(ends.client, half, bytes, round);
        assert_int_equal(post(ends.client, {read_request(ends.client, ends.server, 0, bytes, 1)}), 0);
        expect_completion(ends.client.cq, 1);
        assert_int_equal(post_receive(ends.server, 9, {sge(ends.server, 0, bytes)}), 0);
        assert_int_equal(post(ends.client, {send_request(ends.client, half, bytes, 2),
                                            read_request(ends.client, ends.server, 0, bytes, 3)}),
                         0);
        expect_completion(ends.client.cq, 2);
        expect_completion(ends.client.cq, 3);
        expect_completion(ends.server.cq, 9);
        assert_true(holds(ends.client, 0, bytes, round));
    }
}

void more_reads_than_the_connection_allows_at_once(void **) {
    static constexpr std::size_t count = 64;
    static constexpr std::size_t bytes = 5000;
    for (const std::uint8_t granted : {std::uint8_t{1}, std::uint8_t{4}}) {
        Ends &ends = make<Ends>(Sizes{.send_wr = count, .depth = granted});
        ends.client.sizes.depth = 16;
        ends.connect();
        fill(ends.server, 0, count * bytes, granted);
        std::vector<Request> reads;
        for (std::size_t i = 0; i < count; ++i) {
            reads.push_back(read_request(ends.client, ends.server, i * bytes, bytes, i));
        }
        assert_int_equal(post(ends.client, reads), 0);
        for (std::size_t i = 0; i < count; ++i) {
            expect_completion(ends.client.cq, i);
        }
        assert_true(holds(ends.client, 0, count * bytes, granted));
    }
}

void flushes_and_reads_share_the_depth(void **) {
    Ends &ends = connected({.send_wr = 64, .depth = 2});
    if (!ends.client.native(verbs::native_flush)) {
        skip();
    }
    fill(ends.server, 0, 64, 1);
    std::vector<Request> requests;
    for (std::uint64_t i = 0; i < 64; ++i) {
        requests.push_back(i % 2 == 0 ? read_request(ends.client, ends.server, i, 1, i)
                                      : flush_request(ends.server, 0, 64, SOFTRDMA_FLUSH_GLOBAL, i));
    }
    assert_int_equal(post(ends.client, requests), 0);
    for (std::uint64_t i = 0; i < 64; ++i) {
        expect_completion(ends.client.cq, i);
    }
    for (std::size_t i = 0; i < 64; i += 2) {
        assert_int_equal(ends.client.memory[i], ends.server.memory[i]);
    }
}

// Does one side's rounds of every operation with `there` as the target, from a thread of its own. Each side
// uses its half of the memories.
std::string talk(const End &here, const End &there, std::size_t offset) {
    static constexpr unsigned rounds = 200;
    static constexpr std::size_t bytes = 3000;
    for (unsigned round = 0; round < rounds; ++round) {
        Request back = read_request(here, there, offset, bytes, 2);
        back.sges = {sge(here, offset + bytes, bytes)};
        auto send = send_request(here, offset, 64, 3);
        if (post_receive(here, 4, {sge(here, offset + 2 * bytes, 64)}) != 0 ||
            post(here, {write_request(here, there, offset, bytes, 1), back, send}) != 0) {
            return "a post is refused";
        }
        for (unsigned left = 4; left != 0; --left) {
            ibv_wc completion{};
            if (!poll_for(here.cq, completion) || completion.status != IBV_WC_SUCCESS) {
                return std::string{"round "} + std::to_string(round) + ": " +
                       ibv_wc_status_str(completion.status);
            }
        }
        if (!std::equal(here.memory.begin() + static_cast<std::ptrdiff_t>(offset),
                        here.memory.begin() + static_cast<std::ptrdiff_t>(offset + bytes),
                        here.memory.begin() + static_cast<std::ptrdiff_t>(offset + bytes))) {
            return "what was read is not what was written";
        }
    }
    return {};
}

void both_ways_at_once(void **) {
    Ends &ends = connected();
    static constexpr std::size_t half = Sizes{}.memory_bytes / 2;
    fill(ends.client, 0, 3000, 1);
    fill(ends.server, half, 3000, 2);
    // Each side posts one receive more than a round takes, because the other side may be a round ahead.
    assert_int_equal(post_receive(ends.client, 4, {sge(ends.client, 6000, 64)}), 0);
    assert_int_equal(post_receive(ends.server, 4, {sge(ends.server, half + 6000, 64)}), 0);
    auto &server = make<Thread>([&ends] { return talk(ends.server, ends.client, half); });
    auto &client = make<Thread>([&ends] { return talk(ends.client, ends.server, 0); });
    client.expect_well();
    server.expect_well();
}

// Neither side looks at its completions before both have posted more than TCP takes.
void large_messages_both_ways_do_not_block_each_other(void **) {
    static constexpr std::size_t count = 12;
    Ends &ends = connected({.memory_bytes = 4 << 20});
    static constexpr std::size_t half = 2 << 20;
    fill(ends.client, 0, half, 1);
    fill(ends.server, half, half, 2);
    const auto burst = [](const End &from, const End &to, std::size_t offset, std::size_t other) {
        std::vector<Request> requests;
        for (std::size_t i = 0; i < count; ++i) {
            requests.push_back(i % 3 == 2 ? read_request(from, to, other, half, i)
                                          : write_request(from, to, offset, half, i));
        }
        return requests;
    };
    assert_int_equal(post(ends.client, burst(ends.client, ends.server, 0, half)), 0);
    assert_int_equal(post(ends.server, burst(ends.server, ends.client, half, 0)), 0);
    for (std::size_t i = 0; i < count; ++i) {
        expect_completion(ends.client.cq, i);
        expect_completion(ends.server.cq, i);
    }
    assert_true(same(ends.client, ends.server, 0, 2 * half));
    assert_true(holds(ends.server, 0, half, 1));
}

// Every wr_id comes once, whichever thread polls it. Requests that are posted together stay in order.
void several_threads_post_and_poll_one_queue_pair(void **) {
    static constexpr unsigned threads = 3;
    static constexpr std::size_t posts = 400;
    static constexpr std::size_t bytes = 256;
    Ends &ends = connected({.send_wr = 64, .cqe = 256});
    auto &seen = make<std::array<std::atomic<unsigned>, threads * posts>>();
    auto &polled = make<std::atomic<std::size_t>>(0U);
    std::vector<Thread *> all;
    for (unsigned thread = 0; thread < threads; ++thread) {
        all.push_back(&make<Thread>([&ends, &seen, &polled, thread]() -> std::string {
            const auto poll = [&]() -> std::string {
                ibv_wc completion{};
                const int count = ibv_poll_cq(ends.client.cq, 1, &completion);
                if (count < 0 || (count == 1 && completion.status != IBV_WC_SUCCESS)) {
                    return std::string{"completion: "} + ibv_wc_status_str(completion.status);
                }
                if (count == 1) {
                    seen[completion.wr_id].fetch_add(1);
                    polled.fetch_add(1);
                } else {
                    std::this_thread::yield();
                }
                return {};
            };
            for (std::size_t i = 0; i < posts;) {
                const std::size_t wr_id = thread * posts + i;
                const std::size_t offset = (wr_id % 512) * bytes;
                const int result =
                    post(ends.client,
                         {i % 4 == 3 ? read_request(ends.client, ends.server, offset, bytes, wr_id)
                                     : write_request(ends.client, ends.server, offset, bytes, wr_id)});
                i += result == 0 ? 1 : 0;
                if (result != 0 && result != ENOMEM) {
                    return "a post gives " + std::to_string(result);
                }
                if (auto wrong = poll(); !wrong.empty()) {
                    return wrong;
                }
            }
            while (polled.load() < threads * posts) {
                if (auto wrong = poll(); !wrong.empty()) {
                    return wrong;
                }
            }
            return {};
        }));
    }
    for (Thread *const thread : all) {
        thread->expect_well();
    }
    for (const auto &count : seen) {
        assert_int_equal(count.load(), 1);
    }
    expect_no_completion(ends.client.cq);
}

constexpr CMUnitTest tests[] = {
    cmocka_unit_test(a_fenced_write_waits_for_the_read),
    cmocka_unit_test(a_fenced_send_carries_what_the_read_brought),
    cmocka_unit_test(a_read_sees_the_message_before_it),
    cmocka_unit_test(more_reads_than_the_connection_allows_at_once),
    cmocka_unit_test(flushes_and_reads_share_the_depth),
    cmocka_unit_test(both_ways_at_once),
    cmocka_unit_test(large_messages_both_ways_do_not_block_each_other),
    cmocka_unit_test(several_threads_post_and_poll_one_queue_pair),
};

}  // namespace

std::span<const CMUnitTest> order_tests() {
    return tests;
}

}  // namespace conformance
