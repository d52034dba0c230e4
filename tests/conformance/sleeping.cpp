// SPDX-License-Identifier: BSD-3-Clause
// conformance: one-sided operations complete while the target's process sleeps in a system call of its own.
#include "peer_process.hpp"
#include "suite.hpp"

namespace conformance {

namespace {

// These operations need the device of the target, and not its program.
void operate(RemoteEnds &ends, unsigned seed) {
    End &client = ends.client;
    for (const std::size_t size : {std::size_t{8}, std::size_t{5000}, std::size_t{500'000}}) {
        ++seed;
        fill(client, 0, size, seed);
        Request back = aimed(read_request(client, client, 0, size, 3), ends.region, 4096);
        back.sges = {sge(client, 512 * 1024, size)};
        std::vector<Request> requests{aimed(write_request(client, client, 0, size, 1), ends.region, 4096)};
        if (client.native(verbs::native_flush)) {
            requests.push_back(
                aimed(flush_request(client, 0, size, SOFTRDMA_FLUSH_GLOBAL, 2), ends.region, 4096));
        }
        requests.push_back(back);
        assert_int_equal(post(client, requests), 0);
        for (const Request &request : requests) {
            expect_completion(client.cq, request.wr_id);
        }
        assert_memory_equal(client.memory.data(), client.memory.data() + 512 * 1024, size);
    }
    if (client.native(verbs::native_atomic_write)) {
        fill(client, 0, 8, seed + 50);
        Request back = aimed(fenced(read_request(client, client, 0, 8, 2)), ends.region, 0);
        back.sges = {sge(client, 64, 8)};
        assert_int_equal(
            post(client, {aimed(atomic_write_request(client, client, 0, 1), ends.region, 0), back}), 0);
        expect_completion(client.cq, 1);
        expect_completion(client.cq, 2);
        assert_memory_equal(client.memory.data(), client.memory.data() + 64, 8);
    }
    assert_string_equal(ends.peer.ask("holds 4096 500000 " + std::to_string(seed)).c_str(), "yes");
}

RemoteEnds &connected_to_peer() {
    RemoteEnds &ends = make<RemoteEnds>();
    ends.connect();
    return ends;
}

void a_target_that_never_looked(void **) {
    operate(connected_to_peer(), 1);
}

// A program that polls in a loop takes the connection from the background thread, and then stops polling
// without a call.
void a_target_that_polled_before(void **) {
    RemoteEnds &ends = connected_to_peer();
    for (unsigned round = 0; round < 5; ++round) {
        ends.peer.expect_ok("poll 20000");
        operate(ends, 10 * round);
    }
}

// The target stops polling while the operations are under way.
void a_target_that_stops_polling_meanwhile(void **) {
    RemoteEnds &ends = connected_to_peer();
    for (unsigned round = 0; round < 5; ++round) {
        ends.peer.tell("poll 20000");
        for (unsigned i = 0; i < 200; ++i) {
            assert_int_equal(
                post(ends.client, {aimed(read_request(ends.client, ends.client, 0, 64, i), ends.region, 0)}),
                0);
            expect_completion(ends.client.cq, i);
        }
        assert_string_equal(ends.peer.answer().c_str(), "ok");
    }
}

void a_target_that_waited_for_an_event_before(void **) {
    RemoteEnds &ends = connected_to_peer();
    for (unsigned round = 0; round < 5; ++round) {
        ends.peer.expect_ok("receive 1");
        ends.peer.tell("wait");
        assert_int_equal(post(ends.client, {send_request(ends.client, 0, 8, 7)}), 0);
        expect_completion(ends.client.cq, 7);
        assert_string_equal(ends.peer.answer().c_str(), "ok");
        operate(ends, 10 * round);
    }
}

constexpr CMUnitTest tests[] = {
    cmocka_unit_test(a_target_that_never_looked),
    cmocka_unit_test(a_target_that_polled_before),
    cmocka_unit_test(a_target_that_stops_polling_meanwhile),
    cmocka_unit_test(a_target_that_waited_for_an_event_before),
};

}  // namespace

std::span<const CMUnitTest> sleeping_tests() {
    return tests;
}

}  // namespace conformance
