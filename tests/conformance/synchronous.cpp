// SPDX-License-Identifier: BSD-3-Clause
// conformance: tests ids without an event channel, whose calls wait for their events.
#include <cerrno>

#include "suite.hpp"

namespace conformance {

namespace {

// Makes an id without a channel that knows its way to the listener and has its queues.
void prepare(End &client, std::uint16_t port) {
    assert_int_equal(provider().cm.create_id(nullptr, &client.id, nullptr, RDMA_PS_TCP), 0);
    resolve_address(client.id, port);
    assert_int_equal(client.id->event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
    assert_int_equal(provider().cm.resolve_route(client.id, patience_ms), 0);
    assert_int_equal(client.id->event->event, RDMA_CM_EVENT_ROUTE_RESOLVED);
    client.create_objects();
}

// An id without a channel waits in its calls, and the events are in id->event.
void calls_of_a_synchronous_id_wait(void **) {
    Ends &ends = make<Ends>();
    End &client = ends.client;
    prepare(client, ends.listener.port);
    auto &connecting = make<Thread>([&client]() -> std::string {
        const std::string hello = "hello";
        auto parameters = connection_parameters(hello, 4);
        if (provider().cm.connect(client.id, &parameters) != 0) {
            return "connect fails";
        }
        return client.id->event->event == RDMA_CM_EVENT_ESTABLISHED ? "" : "connected without its event";
    });
    ends.take_request();
    assert_true(ends.client_data_seen.starts_with("hello"));
    ends.accept("welcome");
    connecting.expect_well();
    expect_event(ends.server.events, RDMA_CM_EVENT_ESTABLISHED);
    assert_memory_equal(client.id->event->param.conn.private_data, "welcome", 7);
    settle(client, ends.server);
    assert_int_equal(provider().cm.disconnect(client.id), 0);
    expect_event(ends.server.events, RDMA_CM_EVENT_DISCONNECTED);
    assert_int_equal(client.id->event->event, RDMA_CM_EVENT_DISCONNECTED);
}

void a_synchronous_id_hears_of_its_rejection(void **) {
    Ends &ends = make<Ends>();
    End &client = ends.client;
    prepare(client, ends.listener.port);
    auto &connecting = make<Thread>([&client]() -> std::string {
        auto parameters = connection_parameters(no_data, 4);
        if (provider().cm.connect(client.id, &parameters) != -1 || errno != ECONNREFUSED) {
            return "connect does not say ECONNREFUSED";
        }
        return client.id->event->event == RDMA_CM_EVENT_REJECTED ? "" : "no event says why";
    });
    const CmEvent request = ends.listener.take_request();
    assert_int_equal(provider().cm.reject(request.id, nullptr, 0), 0);
    assert_int_equal(provider().cm.destroy_id(request.id), 0);
    connecting.expect_well();
}

// librpma connects like this: its calls wait up to the route, and then the id moves to a channel.
void a_synchronous_id_migrates(void **) {
    Ends &ends = make<Ends>();
    End &client = ends.client;
    prepare(client, ends.listener.port);
    client.events = provider().cm.create_event_channel();
    assert_int_equal(provider().cm.migrate_id(client.id, client.events), 0);
    assert_null(client.id->event);
    client.request();
    ends.take_request();
    ends.accept();
    ends.expect_established();
    assert_int_equal(provider().cm.disconnect(ends.server.id), 0);
    ends.expect_disconnected();
}

constexpr CMUnitTest tests[] = {
    cmocka_unit_test(calls_of_a_synchronous_id_wait),
    cmocka_unit_test(a_synchronous_id_hears_of_its_rejection),
    cmocka_unit_test(a_synchronous_id_migrates),
};

}  // namespace

std::span<const CMUnitTest> synchronous_tests() {
    return tests;
}

}  // namespace conformance
