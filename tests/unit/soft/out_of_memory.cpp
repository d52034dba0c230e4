// SPDX-License-Identifier: BSD-3-Clause
// The device's thread finds no memory. A connection may end because of it, but the process does not, and the
// program learns the result of each.
#include <poll.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

#include "failing_new.hpp"

// This comes last, because it asserts.
#include "device.hpp"

namespace {

using namespace soft::wire;
using test::Bytes;
using test::Ends;
using test::fpdu;

std::atomic<std::size_t> memory_left{SIZE_MAX};  // the largest piece that there is
thread_local bool is_the_test = false;           // this thread always has memory

}  // namespace

bool test::allocation_fails(std::size_t size) {
    return size > memory_left.load() && !is_the_test;
}

namespace {

constexpr int patience_ms = 40'000;
constexpr MpaFrame promising{.peer_to_peer = true, .rtr_write = true, .ird = 4, .ord = 4};

// There is no memory while this object lives. The test's thread then only sleeps, so that
// the device's thread does all the work.
class Outage {
public:
    explicit Outage(std::size_t left = 0) { memory_left.store(left); }
    ~Outage() { memory_left.store(SIZE_MAX); }
    Outage(const Outage &) = delete;
    Outage &operator=(const Outage &) = delete;

    static void last_until_an_event(const rdma_cm_id *id) {
        pollfd readable{.fd = id->channel->fd, .events = POLLIN, .revents = 0};
        const bool told = ::poll(&readable, 1, patience_ms) == 1;
        memory_left.store(SIZE_MAX);
        assert_true(told);
    }
};

void the_end_of_a_connection(Ends &ends) {
    auto &[device, peer, other] = ends;
    // The peer closes, breaks a rule, or sends a message that finds no receive and cannot be kept.
    const Bytes last[] = {{}, Bytes(64), fpdu({.opcode = Opcode::Send, .msn = 1}, Bytes(100))};
    for (const Bytes &bytes : last) {
        rdma_cm_id *const id = device.establish(peer, {});
        {
            const Outage outage;
            if (bytes.empty()) {
                peer.close();
            } else {
                peer.send(bytes);
            }
            Outage::last_until_an_event(id);
        }
        (void)device.wait_for(RDMA_CM_EVENT_DISCONNECTED, id);
        device.close(id);
        peer.close();
    }
}

void the_outcome_of_connecting(Ends &ends) {
    auto &[device, peer, other] = ends;
    constexpr MpaFrame accepts{.role = MpaRole::Reply, .ird = 4, .ord = 4};
    constexpr MpaFrame wants_crc{.role = MpaRole::Reply, .crc = true, .ird = 4, .ord = 4};
    constexpr MpaFrame rejects{.role = MpaRole::Reply, .reject = true, .ird = 4, .ord = 4};
    constexpr std::size_t small = 8192;  // too little for the sum of CRC32C
    const struct {
        MpaFrame reply;
        std::size_t left;
        rdma_cm_event_type event;
        int status;
    } outcomes[] = {
        {rejects, 0, RDMA_CM_EVENT_REJECTED, -ECONNREFUSED},
        {accepts, 0, RDMA_CM_EVENT_CONNECT_ERROR, -ENOMEM},
        {wants_crc, small, RDMA_CM_EVENT_CONNECT_ERROR, -ENOMEM},
    };
    for (const auto &outcome : outcomes) {
        rdma_cm_id *const id = device.connect(peer.listen());
        peer.accept();
        (void)peer.receive_frame(MpaRole::Request);
        {
            const Outage outage{outcome.left};
            peer.send_frame(outcome.reply);
            Outage::last_until_an_event(id);
        }
        assert_int_equal(device.wait_for(outcome.event, id).status, outcome.status);
        device.close(id);
        peer.close();
    }
    (void)device.establish(peer, {});  // nothing of the others is left in its way
}

void a_connection_that_is_established(Ends &ends) {
    auto &[device, peer, other] = ends;
    (void)device.establish(other, {});  // there is a buffer to receive into
    peer.connect(device.port());
    peer.send_frame(promising);
    rdma_cm_id *const id = device.take_request();
    device.accept(id);
    (void)peer.receive_frame(MpaRole::Reply);
    {
        const Outage outage;
        peer.send(test::ready_to_receive());
        Outage::last_until_an_event(id);
    }
    (void)device.wait_for(RDMA_CM_EVENT_ESTABLISHED, id);
}

void a_request_is_dropped(Ends &ends) {
    auto &[device, peer, other] = ends;
    peer.connect(device.port());
    device.work();  // accepts the connection
    {
        const Outage outage;
        peer.send_frame({});
        assert_int_equal(peer.receive_rest().size(), 0);
    }
    assert_false(device.has_event());
    (void)device.establish(other, {});
}

// Returns an id that is resolved to that port of 127.0.0.1.
rdma_cm_id *resolved(rdma_event_channel *events, std::uint16_t port) {
    rdma_cm_id *id = nullptr;
    assert_int_equal(softrdma_rdma_create_id(events, &id, nullptr, RDMA_PS_UDP), 0);
    sockaddr_in there = test::loopback(port);
    rdma_cm_event *event = nullptr;
    assert_int_equal(
        softrdma_rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr *>(&there), patience_ms), 0);
    assert_int_equal(softrdma_rdma_get_cm_event(events, &event), 0);
    assert_int_equal(softrdma_rdma_ack_cm_event(event), 0);
    assert_int_equal(softrdma_rdma_resolve_route(id, patience_ms), 0);
    assert_int_equal(softrdma_rdma_get_cm_event(events, &event), 0);
    assert_int_equal(softrdma_rdma_ack_cm_event(event), 0);
    return id;
}

void a_service_that_is_not_there(Ends &) {
    rdma_event_channel *const events = softrdma_rdma_create_event_channel();
    rdma_cm_id *const id = resolved(events, 1);
    {
        const Outage outage;
        assert_int_equal(softrdma_rdma_connect(id, nullptr), 0);
        Outage::last_until_an_event(id);
    }
    rdma_cm_event *event = nullptr;
    assert_int_equal(softrdma_rdma_get_cm_event(events, &event), 0);
    assert_int_equal(event->event, RDMA_CM_EVENT_UNREACHABLE);
    assert_int_equal(softrdma_rdma_ack_cm_event(event), 0);
    assert_int_equal(softrdma_rdma_destroy_id(id), 0);
    softrdma_rdma_destroy_event_channel(events);
}

// The dropped request has left no record, so the device does not take the next one for a repeated request.
void a_request_for_a_service_comes_again(void **) {
    test::watch_log();
    rdma_event_channel *const events = softrdma_rdma_create_event_channel();
    rdma_event_channel *const of_asker = softrdma_rdma_create_event_channel();
    rdma_cm_id *listener = nullptr;
    sockaddr_in here = test::loopback(0);
    assert_int_equal(softrdma_rdma_create_id(events, &listener, nullptr, RDMA_PS_UDP), 0);
    assert_int_equal(softrdma_rdma_bind_addr(listener, reinterpret_cast<sockaddr *>(&here)), 0);
    assert_int_equal(softrdma_rdma_listen(listener, 1), 0);
    rdma_cm_id *const asker = resolved(of_asker, ntohs(softrdma_rdma_get_src_port(listener)));
    {
        const Outage outage;
        assert_int_equal(softrdma_rdma_connect(asker, nullptr), 0);
        pollfd nothing{.fd = events->fd, .events = POLLIN, .revents = 0};
        while (test::logged().errors == 0) {
            assert_int_equal(::poll(&nothing, 1, 1), 0);
        }
    }
    Outage::last_until_an_event(listener);
    rdma_cm_event *event = nullptr;
    assert_int_equal(softrdma_rdma_get_cm_event(events, &event), 0);
    assert_int_equal(event->event, RDMA_CM_EVENT_CONNECT_REQUEST);
    rdma_cm_id *const request = event->id;
    assert_int_equal(softrdma_rdma_ack_cm_event(event), 0);
    for (rdma_cm_id *const id : {request, asker, listener}) {
        assert_int_equal(softrdma_rdma_destroy_id(id), 0);
    }
    softrdma_rdma_destroy_event_channel(of_asker);
    softrdma_rdma_destroy_event_channel(events);
}

}  // namespace

int main() {
    is_the_test = true;
    const CMUnitTest tests[] = {
        fixture_test(the_end_of_a_connection),          fixture_test(the_outcome_of_connecting),
        fixture_test(a_connection_that_is_established), fixture_test(a_request_is_dropped),
        fixture_test(a_service_that_is_not_there),      cmocka_unit_test(a_request_for_a_service_comes_again),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
