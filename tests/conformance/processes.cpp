// SPDX-License-Identifier: BSD-3-Clause
// conformance: tests the end of a process: one process is killed, and one leaves right after its last write.
#include "peer_process.hpp"
#include "suite.hpp"

namespace conformance {

namespace {

constexpr std::size_t mebibyte = 1 << 20;

// The requests that the peer never looked at are lost with the peer.
void a_peer_is_killed_with_a_read_open(void **) {
    RemoteEnds &ends = make<RemoteEnds>();
    ends.connect();
    const End &client = ends.client;
    assert_int_equal(post_receive(client, 9, {sge(client, 0, 8)}), 0);
    ends.peer.stop();
    assert_int_equal(post(client, {aimed(read_request(client, client, 0, 64, 1), ends.region, 0),
                                   aimed(read_request(client, client, 0, 64, 2), ends.region, 0),
                                   aimed(write_request(client, client, 0, 64, 3), ends.region, 0)}),
                     0);
    ends.peer.kill();
    expect_completion(client.cq, 1, IBV_WC_RETRY_EXC_ERR);
    expect_completion(client.cq, 2, IBV_WC_WR_FLUSH_ERR);
    expect_completion(client.cq, 3, IBV_WC_WR_FLUSH_ERR);
    expect_completion(client.cq, 9, IBV_WC_WR_FLUSH_ERR);
    expect_event(client.events, RDMA_CM_EVENT_DISCONNECTED);
    assert_int_equal(post(client, {aimed(read_request(client, client, 0, 64, 4), ends.region, 0)}), 0);
    expect_completion(client.cq, 4, IBV_WC_WR_FLUSH_ERR);
}

void an_idle_peer_is_killed(void **) {
    RemoteEnds &ends = make<RemoteEnds>();
    ends.connect();
    assert_int_equal(post_receive(ends.client, 9, {sge(ends.client, 0, 8)}), 0);
    ends.peer.kill();
    expect_event(ends.client.events, RDMA_CM_EVENT_DISCONNECTED);
    expect_completion(ends.client.cq, 9, IBV_WC_WR_FLUSH_ERR);
}

// A Left has a server in this process, whose client, a process of its own, is about to leave.
struct Left {
    void connect() {
        peer.tell("connect " + std::to_string(listener.port));
        const CmEvent request = listener.take_request();
        region = RemoteRegion::from(request.data);
        server.take(request.id);
        server.accept(RemoteRegion::of(server).text());
        expect_event(server.events, RDMA_CM_EVENT_ESTABLISHED);
        assert_string_equal(peer.answer().c_str(), "ok");
    }
    void expect_everything_arrived(std::size_t count, std::size_t bytes, unsigned seed) {
        // The process has connected by rdma_cm, also where other ends connect by number.
        assert_int_equal(next_event(server.events).type, RDMA_CM_EVENT_DISCONNECTED);
        for (std::size_t i = 0; i < count; ++i) {
            assert_true(holds(server, i * bytes, bytes, seed + static_cast<unsigned>(i)));
        }
    }

    PeerProcess peer;
    Listener listener;
    End server{{.send_wr = 512, .cqe = 1024, .memory_bytes = 16 * mebibyte}};
    RemoteRegion region;  // the client's memory
};

Left &connected_client() {
    Left &left = make<Left>();
    left.connect();
    return left;
}

void large_writes_of_a_process_that_leaves(void **) {
    Left &left = connected_client();
    left.peer.expect_ok("write 16 1048576 1");
    left.peer.tell("leave");
    left.peer.expect_good_end();
    left.expect_everything_arrived(16, mebibyte, 1);
}

// Nobody serves the connection while the writes are on their way. The writes
// wait in TCP, and so does the end.
void large_writes_of_a_process_that_leaves_a_sleeping_target(void **) {
    RemoteEnds &ends = make<RemoteEnds>();
    ends.connect();
    const End &client = ends.client;
    ends.peer.stop();
    std::vector<Request> writes;
    // The writes are few enough for TCP to take them all.
    for (std::uint64_t i = 0; i < 4; ++i) {
        fill(ends.client, i * 4096, 4096, static_cast<unsigned>(i));
        writes.push_back(aimed(write_request(client, client, i * 4096, 4096, i), ends.region, i * 4096));
    }
    assert_int_equal(post(client, writes), 0);
    for (std::uint64_t i = 0; i < 4; ++i) {
        expect_completion(client.cq, i);
    }
    assert_int_equal(provider().cm.disconnect(client.id), 0);
    ends.client.destroy();
    ends.peer.go_on();
    ends.peer.expect_ok("closed");
    for (unsigned i = 0; i < 4; ++i) {
        assert_string_equal(
            ends.peer.ask("holds " + std::to_string(i * 4096) + " 4096 " + std::to_string(i)).c_str(), "yes");
    }
}

// TCP must not throw away the writes of a process that leaves without reading all of its input.
void large_writes_of_a_process_that_leaves_with_input_unread(void **) {
    if (!subject.is_soft) {
        skip();  // sends without receives
    }
    Left &left = connected_client();
    // The server sends more than the device keeps without receives, so that the rest stays in TCP.
    for (std::uint64_t i = 0; i < 400; ++i) {
        assert_int_equal(post(left.server, {send_request(left.server, 0, 1024, i)}), 0);
    }
    for (std::uint64_t i = 0; i < 400; ++i) {
        expect_completion(left.server.cq, i);
    }
    left.peer.expect_ok("write 8 1048576 3");
    left.peer.tell("leave");
    left.peer.expect_good_end();
    left.expect_everything_arrived(8, mebibyte, 3);
}

void large_writes_of_a_process_that_just_exits(void **) {
    Left &left = connected_client();
    left.peer.expect_ok("write 16 1048576 5");
    left.peer.tell("exit");
    left.peer.expect_good_end();
    left.expect_everything_arrived(16, mebibyte, 5);
}

constexpr CMUnitTest tests[] = {
    cmocka_unit_test(a_peer_is_killed_with_a_read_open),
    cmocka_unit_test(an_idle_peer_is_killed),
    cmocka_unit_test(large_writes_of_a_process_that_leaves),
    cmocka_unit_test(large_writes_of_a_process_that_leaves_a_sleeping_target),
    cmocka_unit_test(large_writes_of_a_process_that_leaves_with_input_unread),
    cmocka_unit_test(large_writes_of_a_process_that_just_exits),
};

}  // namespace

std::span<const CMUnitTest> process_tests() {
    return tests;
}

}  // namespace conformance
