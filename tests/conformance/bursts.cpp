// SPDX-License-Identifier: BSD-3-Clause
// conformance: tests posts in a loop, one request each, without a poll between them: a device may send
// several with one call, and no request may wait for a call that the program does not make.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>

#include "suite.hpp"

namespace conformance {

namespace {

constexpr std::size_t burst = 200;
constexpr Sizes sizes{.send_wr = 256, .receive_wr = 256, .cqe = 1024};

// Posts writes of 8 bytes, one after the other, to as many places. The wr_ids begin with `first`.
void post_burst(const End &from, const End &to, std::uint64_t first = 0, unsigned flags = IBV_SEND_SIGNALED) {
    for (std::size_t i = 0; i < burst; ++i) {
        Request request = write_request(from, to, i * 8, 8, first + i);
        request.flags = flags;
        assert_int_equal(post(from, {request}), 0);
    }
}

// Makes no call of the device until the last place has what was written.
void look_until_written(const End &from, const End &to) {
    const auto value_at = [](const End &end, std::size_t place) {
        return std::atomic_ref{*std::launder(reinterpret_cast<std::uint64_t *>(end.address(place * 8)))}.load(
            std::memory_order_acquire);
    };
    const auto give_up = std::chrono::steady_clock::now() + patience;
    for (std::size_t i = burst; i != 0; --i) {
        const std::uint64_t expected = value_at(from, i - 1);
        while (value_at(to, i - 1) != expected) {
            assert_true(std::chrono::steady_clock::now() < give_up);
        }
    }
}

void expect_burst(const End &end, std::uint64_t first = 0) {
    for (std::size_t i = 0; i < burst; ++i) {
        expect_completion(end.cq, first + i);
    }
}

void a_burst_arrives_without_another_call(void **) {
    Ends &ends = connected(sizes);
    for (unsigned round = 1; round <= 50; ++round) {
        fill(ends.client, 0, burst * 8, round);
        post_burst(ends.client, ends.server);
        look_until_written(ends.client, ends.server);
        expect_burst(ends.client);
        expect_no_completion(ends.client.cq);
    }
}

// The thread does not exist any more when its last writes leave.
void a_burst_of_a_thread_that_ends(void **) {
    Ends &ends = connected(sizes);
    for (unsigned round = 1; round <= 10; ++round) {
        fill(ends.client, 0, burst * 8, round);
        Thread &thread = make<Thread>([&ends]() -> std::string {
            for (std::size_t i = 0; i < burst; ++i) {
                if (post(ends.client, {write_request(ends.client, ends.server, i * 8, 8, i)}) != 0) {
                    return "a post is refused";
                }
            }
            return {};
        });
        thread.expect_well();
        look_until_written(ends.client, ends.server);
        expect_burst(ends.client);
    }
}

// The program waits for the last completion in its channel, and has not polled.
void a_burst_and_then_a_sleep(void **) {
    Ends &ends = connected(sizes);
    for (unsigned round = 1; round <= 10; ++round) {
        fill(ends.client, 0, burst * 8, round);
        post_burst(ends.client, ends.server, 0, 0);
        arm(ends.client.cq);
        assert_int_equal(post(ends.client, {write_request(ends.client, ends.server, 0, 8, burst)}), 0);
        expect_cq_event(ends.client, ends.client.cq);
        expect_completion(ends.client.cq, burst);
        settle(ends.client, ends.server);
        assert_true(same(ends.client, ends.server, 0, burst * 8));
    }
}

// The soft device sends what was posted before a disconnect, and completes it. A kernel's device flushes it.
void a_burst_and_a_disconnect(void **) {
    if (!subject.is_soft) {
        skip();
    }
    for (unsigned round = 1; round <= 4; ++round) {
        Ends &ends = connected(sizes);
        fill(ends.client, 0, burst * 8, round);
        post_burst(ends.client, ends.server);
        ends.disconnect();
        look_until_written(ends.client, ends.server);
        expect_burst(ends.client);
        expect_no_completion(ends.client.cq);
    }
}

// A kernel's device drops what a queue pair has not sent.
void a_burst_and_the_end_of_its_queue_pair(void **) {
    if (!subject.is_soft) {
        skip();
    }
    for (unsigned round = 1; round <= 4; ++round) {
        Ends &ends = connected(sizes);
        settle(ends.client, ends.server);  // by number, the link's responder may not send yet
        fill(ends.client, 0, burst * 8, round);
        post_burst(ends.client, ends.server);
        ends.client.destroy_queue_pair();
        look_until_written(ends.client, ends.server);
    }
}

// A request whose answer the program needs, and one that is long, take along what was posted before them.
void bursts_of_requests_of_all_kinds(void **) {
    Ends &ends = connected({.send_wr = 256, .cqe = 1024, .depth = 4});
    static constexpr std::size_t lengths[] = {8, 1, 64, 0, 512, 8, 513, 8, 4000, 8, 70'000, 16};
    static constexpr std::size_t place = 80'000;
    static constexpr std::size_t places = 6;
    std::uint64_t posted = 0;
    std::uint64_t done = 0;
    for (unsigned round = 1; round <= 300; ++round) {
        const std::size_t offset = round % places * place;
        const std::size_t length = lengths[round % std::size(lengths)];
        if (round % places == 0) {
            settle(ends.client, ends.server);
            posted = done = 0;
            fill(ends.client, 0, places * place, round);
        }
        Request request = write_request(ends.client, ends.server, offset, length, posted);
        if (round % 5 == 0 && length <= ends.client.sizes.max_inline) {
            request = inlined(request);
        }
        assert_int_equal(post(ends.client, {request}), 0);
        ++posted;
        for (unsigned small = 0; small < round % 40; ++small) {
            const std::size_t at = offset + place - 8 * (small + 1);
            assert_int_equal(post(ends.client, {write_request(ends.client, ends.server, at, 8, posted)}), 0);
            ++posted;
        }
        if (round % 7 == 0) {
            Request back = read_request(ends.client, ends.server, offset, length, posted);
            back.sges = {sge(ends.client, places * place, length)};
            assert_int_equal(post(ends.client, {back}), 0);
            ++posted;
        }
        for (; done < posted; ++done) {
            expect_completion(ends.client.cq, done);
        }
        if (round % 7 == 0) {
            assert_memory_equal(&ends.client.memory[offset], &ends.client.memory[places * place], length);
        }
        expect_no_completion(ends.client.cq);
    }
}

void a_burst_of_messages(void **) {
    Ends &ends = connected(sizes);
    for (unsigned round = 1; round <= 10; ++round) {
        for (std::size_t i = 0; i < burst; ++i) {
            assert_int_equal(post_receive(ends.server, i, {sge(ends.server, i * 64, 64)}), 0);
        }
        fill(ends.client, 0, burst * 64, round);
        for (std::size_t i = 0; i < burst; ++i) {
            assert_int_equal(post(ends.client, {send_request(ends.client, i * 64, 64, i)}), 0);
        }
        expect_burst(ends.server);
        assert_true(same(ends.client, ends.server, 0, burst * 64));
        expect_burst(ends.client);
    }
}

// The peer has fewer receives than messages come, so that it stops to read, and the sender's TCP is full. The
// kernel's iWARP device ends such a connection.
void bursts_to_a_peer_that_does_not_receive(void **) {
    Ends &ends = connected({.send_wr = 4096, .receive_wr = 4096, .cqe = 8192});
    if (ends.client.is_iwarp() && !subject.is_soft) {
        skip();
    }
    static constexpr std::size_t messages = 4000;
    fill(ends.client, 0, 512, 1);
    for (std::size_t i = 0; i < messages; ++i) {
        assert_int_equal(post(ends.client, {send_request(ends.client, 0, 512, i)}), 0);
    }
    for (std::size_t i = 0; i < messages; ++i) {
        assert_int_equal(post_receive(ends.server, i, {sge(ends.server, 0, 512)}), 0);
    }
    for (std::size_t i = 0; i < messages; ++i) {
        expect_completion(ends.client.cq, i);
    }
    for (std::size_t i = 0; i < messages; ++i) {
        expect_completion(ends.server.cq, i);
    }
    assert_true(same(ends.client, ends.server, 0, 512));
}

// One of the writes names memory that this side has not. Those before it are done; a kernel's device may
// flush them.
void a_request_that_fails_inside_a_burst(void **) {
    if (!subject.is_soft) {
        skip();
    }
    Ends &ends = connected(sizes);
    static constexpr std::size_t bad = 100;
    fill(ends.client, 0, burst * 8, 1);
    for (std::size_t i = 0; i < burst; ++i) {
        Request request = write_request(ends.client, ends.server, i * 8, 8, i);
        if (i == bad) {
            request.sges[0].lkey ^= 1;
        }
        assert_int_equal(post(ends.client, {request}), 0);
    }
    for (std::size_t i = 0; i < bad; ++i) {
        expect_completion(ends.client.cq, i);
    }
    expect_completion(ends.client.cq, bad, IBV_WC_LOC_PROT_ERR);
    for (std::size_t i = bad + 1; i < burst; ++i) {
        expect_completion(ends.client.cq, i, IBV_WC_WR_FLUSH_ERR);
    }
}

constexpr CMUnitTest tests[] = {
    cmocka_unit_test(a_burst_arrives_without_another_call),
    cmocka_unit_test(a_burst_of_a_thread_that_ends),
    cmocka_unit_test(a_burst_and_then_a_sleep),
    cmocka_unit_test(a_burst_and_a_disconnect),
    cmocka_unit_test(a_burst_and_the_end_of_its_queue_pair),
    cmocka_unit_test(bursts_of_requests_of_all_kinds),
    cmocka_unit_test(a_burst_of_messages),
    cmocka_unit_test(bursts_to_a_peer_that_does_not_receive),
    cmocka_unit_test(a_request_that_fails_inside_a_burst),
};

}  // namespace

std::span<const CMUnitTest> burst_tests() {
    return tests;
}

}  // namespace conformance
