// SPDX-License-Identifier: BSD-3-Clause
// conformance: tests ids: their states, events that nobody fetched, other channels, calls
// that wait, and several threads.
#include <poll.h>

#include <atomic>
#include <cerrno>

#include "suite.hpp"

namespace conformance {

namespace {

// Tests without an End use an event channel and ids on it.
struct Channel {
    Channel() : events{provider().cm.create_event_channel()} { assert_non_null(events); }
    ~Channel() {
        for (rdma_cm_id *const id : ids) {
            (void)provider().cm.destroy_id(id);
        }
        provider().cm.destroy_event_channel(events);
    }
    Channel(const Channel &) = delete;
    Channel &operator=(const Channel &) = delete;

    rdma_cm_id *add() {
        rdma_cm_id *id = nullptr;
        assert_int_equal(provider().cm.create_id(events, &id, this, RDMA_PS_TCP), 0);
        assert_ptr_equal(id->context, this);
        assert_ptr_equal(id->channel, events);
        ids.push_back(id);
        return id;
    }
    void destroy_newest() {
        assert_int_equal(provider().cm.destroy_id(ids.back()), 0);
        ids.pop_back();
    }

    rdma_event_channel *events;
    std::vector<rdma_cm_id *> ids;
};

void wait_readable(int fd) {
    pollfd ready{.fd = fd, .events = POLLIN, .revents = 0};
    assert_int_equal(poll(&ready, 1, patience_ms), 1);
}

void calls_out_of_their_order(void **) {
    Listener &listener = make<Listener>();
    rdma_cm_id *const id = make<Channel>().add();
    auto parameters = connection_parameters(no_data, 1);
    assert_int_equal(provider().cm.resolve_route(id, 100), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(provider().cm.connect(id, &parameters), -1);
    assert_int_equal(provider().cm.accept(id, &parameters), -1);
    assert_int_equal(provider().cm.reject(id, nullptr, 0), -1);
    assert_int_equal(provider().cm.disconnect(id), -1);
    resolve_address(id, listener.port);
    expect_event(id->channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    assert_int_equal(provider().cm.connect(id, &parameters), -1);
    auto here = subject_address(0);
    assert_int_equal(provider().cm.bind_addr(id, reinterpret_cast<sockaddr *>(&here)), -1);
    assert_int_equal(provider().cm.bind_addr(listener.id, reinterpret_cast<sockaddr *>(&here)), -1);
}

void a_port_space_that_the_device_does_not_have(void **) {
    if (!subject.is_soft) {
        skip();
    }
    rdma_cm_id *id = nullptr;
    assert_int_equal(provider().cm.create_id(make<Channel>().events, &id, nullptr, RDMA_PS_IB), -1);
    assert_int_equal(errno, EPROTONOSUPPORT);
    assert_null(id);
}

void events_that_nobody_fetched_go_with_their_id(void **) {
    Listener &listener = make<Listener>();
    Channel &channel = make<Channel>();
    resolve_address(channel.add(), listener.port);
    wait_readable(channel.events->fd);
    channel.destroy_newest();
    assert_false(has_event(channel.events->fd));
    // The events of the other ids stay.
    rdma_cm_id *const stays = channel.add();
    resolve_address(stays, listener.port);
    resolve_address(channel.add(), listener.port);
    channel.destroy_newest();
    assert_ptr_equal(expect_event(channel.events, RDMA_CM_EVENT_ADDR_RESOLVED).id, stays);
    assert_false(has_event(channel.events->fd));
}

void a_connection_goes_with_its_events_unfetched(void **) {
    Ends &ends = make<Ends>();
    ends.request();
    ends.take_request();
    ends.accept();
    wait_readable(ends.client.events->fd);
    wait_readable(ends.server.events->fd);
    assert_int_equal(provider().cm.disconnect(ends.client.id), 0);
    ends.client.destroy();
    ends.server.destroy();
}

void destroying_an_id_waits_for_its_acknowledgements(void **) {
    Listener &listener = make<Listener>();
    Channel &channel = make<Channel>();
    rdma_cm_id *const id = channel.add();
    resolve_address(id, listener.port);
    rdma_cm_event *event = nullptr;
    assert_int_equal(provider().cm.get_cm_event(channel.events, &event), 0);
    channel.ids.clear();
    auto &acknowledged = make<std::atomic<bool>>(false);
    auto &destroyer = make<Thread>([&acknowledged, id]() -> std::string {
        (void)provider().cm.destroy_id(id);
        return acknowledged.load() ? "" : "destroyed while an event is not acknowledged";
    });
    std::this_thread::yield();
    acknowledged.store(true);
    assert_int_equal(provider().cm.ack_cm_event(event), 0);
    destroyer.expect_well();
}

void events_move_with_their_id(void **) {
    Listener &listener = make<Listener>();
    Channel &from = make<Channel>();
    Channel &to = make<Channel>();
    rdma_cm_id *const stays = from.add();
    rdma_cm_id *const moves = from.add();
    resolve_address(moves, listener.port);
    wait_readable(from.events->fd);
    assert_int_equal(provider().cm.migrate_id(moves, to.events), 0);
    from.ids.pop_back();
    to.ids.push_back(moves);
    assert_ptr_equal(moves->channel, to.events);
    assert_false(has_event(from.events->fd));
    wait_readable(to.events->fd);
    assert_int_equal(provider().cm.resolve_route(moves, patience_ms), 0);
    assert_ptr_equal(expect_event(to.events, RDMA_CM_EVENT_ADDR_RESOLVED).id, moves);
    assert_ptr_equal(expect_event(to.events, RDMA_CM_EVENT_ROUTE_RESOLVED).id, moves);
    resolve_address(stays, listener.port);
    assert_ptr_equal(expect_event(from.events, RDMA_CM_EVENT_ADDR_RESOLVED).id, stays);
    assert_false(has_event(to.events->fd));
}

void a_client_migrates_while_it_connects(void **) {
    Ends &ends = make<Ends>();
    ends.request();
    Channel &to = make<Channel>();
    assert_int_equal(provider().cm.migrate_id(ends.client.id, to.events), 0);
    // Nobody looks at the first channel any more, so that it may go.
    provider().cm.destroy_event_channel(std::exchange(ends.client.events, nullptr));
    ends.take_request();
    ends.accept();
    assert_ptr_equal(expect_event(to.events, RDMA_CM_EVENT_ESTABLISHED).id, ends.client.id);
    expect_event(ends.server.events, RDMA_CM_EVENT_ESTABLISHED);
    settle(ends.client, ends.server);
    assert_int_equal(provider().cm.disconnect(ends.server.id), 0);
    expect_event(to.events, RDMA_CM_EVENT_DISCONNECTED);
    ends.client.destroy();
}

void a_connection_migrates(void **) {
    Ends &ends = connected();
    Channel &to = make<Channel>();
    assert_int_equal(provider().cm.migrate_id(ends.client.id, to.events), 0);
    provider().cm.destroy_event_channel(std::exchange(ends.client.events, nullptr));
    settle(ends.client, ends.server);
    assert_int_equal(provider().cm.disconnect(ends.server.id), 0);
    expect_event(to.events, RDMA_CM_EVENT_DISCONNECTED);
    ends.client.destroy();
}

// Each event goes to one of the two threads.
void two_threads_fetch_from_one_channel(void **) {
    static constexpr unsigned ids = 50;
    Listener &listener = make<Listener>();
    Channel &channel = make<Channel>();
    auto &seen = make<std::atomic<unsigned>>(0U);
    std::vector<Thread *> threads;
    for (unsigned thread = 0; thread < 2; ++thread) {
        threads.push_back(&make<Thread>([&channel, &seen]() -> std::string {
            // Each thread asks for half of all events, because a thread that
            // asked for more would wait for ever.
            for (unsigned i = 0; i < ids; ++i) {
                rdma_cm_event *event = nullptr;
                if (provider().cm.get_cm_event(channel.events, &event) != 0) {
                    return "no event";
                }
                rdma_cm_id *const id = event->id;
                const bool address = event->event == RDMA_CM_EVENT_ADDR_RESOLVED;
                (void)provider().cm.ack_cm_event(event);
                seen.fetch_add(1);
                if (address && provider().cm.resolve_route(id, patience_ms) != 0) {
                    return "the route is not resolved";
                }
            }
            return {};
        }));
    }
    for (unsigned i = 0; i < ids; ++i) {
        resolve_address(channel.add(), listener.port);
    }
    for (Thread *const thread : threads) {
        thread->expect_well();
    }
    assert_int_equal(seen.load(), 2 * ids);
    assert_false(has_event(channel.events->fd));
}

constexpr CMUnitTest tests[] = {
    cmocka_unit_test(calls_out_of_their_order),
    cmocka_unit_test(a_port_space_that_the_device_does_not_have),
    cmocka_unit_test(events_that_nobody_fetched_go_with_their_id),
    cmocka_unit_test(a_connection_goes_with_its_events_unfetched),
    cmocka_unit_test(destroying_an_id_waits_for_its_acknowledgements),
    cmocka_unit_test(events_move_with_their_id),
    cmocka_unit_test(a_client_migrates_while_it_connects),
    cmocka_unit_test(a_connection_migrates),
    cmocka_unit_test(two_threads_fetch_from_one_channel),
};

}  // namespace

std::span<const CMUnitTest> id_tests() {
    return tests;
}

}  // namespace conformance
