// SPDX-License-Identifier: BSD-3-Clause
// conformance: tests connections: private data, refusals, and every way to end one.
#include <poll.h>

#include <array>
#include <cerrno>

#include "raw_socket.hpp"
#include "suite.hpp"

namespace conformance {

namespace {

std::string private_bytes(std::size_t size) {
    std::string bytes(size, '\0');
    for (std::size_t i = 0; i < size; ++i) {
        bytes[i] = static_cast<char>(i * 5 + size);
    }
    return bytes;
}

// RDMA_PS_TCP takes 56 bytes from a client and 196 from a server. The soft device takes 196 from both.
void private_data_of_every_size_goes_both_ways(void **) {
    for (const std::size_t size : {0U, 1U, 3U, 55U, 56U, 57U, 195U, 196U}) {
        const std::string from_server = private_bytes(size);
        const std::string from_client =
            private_bytes(subject.is_soft ? size : std::min<std::size_t>(size, 56));
        Ends &ends = make<Ends>();
        ends.connect(from_client, from_server);
        // InfiniBand and RoCE pad the data with zeros.
        assert_true(ends.client_data_seen.starts_with(from_client));
        assert_true(ends.server_data_seen.starts_with(from_server));
        if (ends.client.is_iwarp()) {
            assert_int_equal(ends.client_data_seen.size(), from_client.size());
            assert_int_equal(ends.server_data_seen.size(), from_server.size());
        }
        ends.client.destroy();
        ends.server.destroy();
    }
}

void too_much_private_data_is_refused(void **) {
    Ends &ends = make<Ends>();
    const std::string too_much = private_bytes(197);
    ends.client.resolve(ends.listener.port);
    auto parameters = connection_parameters(too_much, 1);
    assert_int_equal(provider().cm.connect(ends.client.id, &parameters), -1);
    assert_int_equal(errno, EINVAL);
    ends.client.request();
    ends.take_request();
    assert_int_equal(provider().cm.accept(ends.server.id, &parameters), -1);
    assert_int_equal(errno, EINVAL);
    ends.accept();
    ends.expect_established();
    settle(ends.client, ends.server);
}

void no_parameters_are_the_most_there_is(void **) {
    if (!subject.is_soft) {
        skip();
    }
    Ends &ends = make<Ends>();
    ends.client.resolve(ends.listener.port);
    assert_int_equal(provider().cm.connect(ends.client.id, nullptr), 0);
    ends.take_request();
    assert_int_equal(provider().cm.accept(ends.server.id, nullptr), 0);
    ends.expect_established();
    assert_int_equal(post(ends.client, {read_request(ends.client, ends.server, 0, 8, 1)}), 0);
    expect_completion(ends.client.cq, 1);
}

void a_rejection_is_seen_with_its_data(void **) {
    for (const std::size_t size : {0U, 2U, 148U}) {
        const std::string data = private_bytes(size);
        Ends &ends = make<Ends>();
        ends.request("please");
        ends.take_request();
        assert_int_equal(provider().cm.reject(ends.server.id, data.data(), static_cast<std::uint8_t>(size)),
                         0);
        const CmEvent event = expect_event(ends.client.events, RDMA_CM_EVENT_REJECTED);
        assert_int_not_equal(event.status, 0);
        assert_true(event.data.starts_with(data));
        // The program can use neither end any more.
        assert_int_equal(provider().cm.disconnect(ends.client.id), -1);
        auto parameters = connection_parameters(no_data, 1);
        assert_int_equal(provider().cm.accept(ends.server.id, &parameters), -1);
        ends.client.destroy();
        ends.server.destroy();
    }
}

void nobody_listens(void **) {
    RawSocket &bound_only = make<RawSocket>();
    bound_only.bind();  // a port that nobody else can take
    End &client = make<End>();
    client.resolve(bound_only.port());
    client.request();
    const CmEvent event = next_event(client.events);
    assert_true(event.type == RDMA_CM_EVENT_REJECTED || event.type == RDMA_CM_EVENT_UNREACHABLE);
    assert_int_not_equal(event.status, 0);
    if (subject.is_soft) {
        assert_int_equal(event.type, RDMA_CM_EVENT_REJECTED);
        assert_int_equal(event.status, -ECONNREFUSED);
    }
}

void either_end_disconnects(void **) {
    for (const bool by_client : {true, false}) {
        Ends &ends = connected();
        rdma_cm_id *const first = by_client ? ends.client.id : ends.server.id;
        rdma_cm_id *const second = by_client ? ends.server.id : ends.client.id;
        assert_int_equal(provider().cm.disconnect(first), 0);
        ends.expect_disconnected();
        // The second end disconnects too, as programs do.
        (void)provider().cm.disconnect(
            second);  // the call returns 0, or EINVAL from devices that are done with it
        assert_false(has_event(ends.client.events->fd));
        assert_false(has_event(ends.server.events->fd));
    }
}

void both_ends_disconnect_at_once(void **) {
    for (unsigned round = 0; round < 10; ++round) {
        Ends &ends = connected();
        auto &server = make<Thread>([&ends]() -> std::string {
            (void)provider().cm.disconnect(ends.server.id);
            return {};
        });
        (void)provider().cm.disconnect(ends.client.id);
        server.expect_well();
        ends.expect_disconnected();
    }
}

// Some programs destroy the queue pair at once, and count the events.
void the_end_is_told_when_the_queue_pair_is_gone(void **) {
    Ends &ends = make<Ends>();
    ends.connect();
    assert_int_equal(provider().cm.disconnect(ends.client.id), 0);
    ends.client.destroy_queue_pair();
    ends.expect_disconnected();
}

void an_end_is_destroyed_without_a_disconnect(void **) {
    for (const bool client_goes : {true, false}) {
        Ends &ends = connected();
        End &going = client_goes ? ends.client : ends.server;
        End &staying = client_goes ? ends.server : ends.client;
        assert_int_equal(post_receive(staying, 1, {sge(staying, 0, 8)}), 0);
        going.destroy();
        expect_event(staying.events, RDMA_CM_EVENT_DISCONNECTED);
        expect_completion(staying.cq, 1, IBV_WC_WR_FLUSH_ERR);
    }
}

void a_client_goes_before_it_is_accepted(void **) {
    Ends &ends = make<Ends>();
    ends.request();
    ends.take_request();
    ends.client.destroy();
    auto parameters = connection_parameters(no_data, 1);
    if (provider().cm.accept(ends.server.id, &parameters) == 0) {
        const CmEvent event = next_event(ends.server.events);
        if (!subject.is_soft && event.type == RDMA_CM_EVENT_ESTABLISHED) {
            // The kernel ends the client's connection later (siw does that in a work queue).
            expect_event(ends.server.events, RDMA_CM_EVENT_DISCONNECTED);
        } else {
            assert_int_not_equal(event.type, RDMA_CM_EVENT_ESTABLISHED);
        }
    }
}

void a_client_goes_before_it_is_rejected(void **) {
    Ends &ends = make<Ends>();
    ends.request();
    ends.take_request();
    ends.client.destroy();
    (void)provider().cm.reject(ends.server.id, nullptr, 0);
}

void a_request_that_is_destroyed_is_rejected(void **) {
    if (!subject.is_soft) {
        skip();  // elsewhere its client may wait for a time-out
    }
    Ends &ends = make<Ends>();
    ends.request();
    ends.take_request();
    ends.server.destroy();
    expect_event(ends.client.events, RDMA_CM_EVENT_REJECTED);
}

// The side that disconnects gets the event of the end in any case, as cmtime needs it.
void a_queue_pair_goes_while_it_disconnects(void **) {
    Ends &ends = connected();
    assert_int_equal(provider().cm.disconnect(ends.client.id), 0);
    ends.client.destroy_queue_pair();
    ends.expect_disconnected();
}

// The client's first message tells the server that it may send (RFC 6581).
void a_server_may_speak_first(void **) {
    Ends &ends = make<Ends>();
    ends.request();
    assert_int_equal(post_receive(ends.client, 1, {sge(ends.client, 0, 8)}), 0);
    ends.take_request();
    ends.accept();
    expect_event(ends.client.events, RDMA_CM_EVENT_ESTABLISHED);
    if (ends.client.is_iwarp() && !subject.is_soft) {
        skip();
    }
    assert_int_equal(post(ends.server, {send_request(ends.server, 0, 8, 2)}), 0);
    expect_completion(ends.client.cq, 1);
    expect_completion(ends.server.cq, 2);
    expect_event(ends.server.events, RDMA_CM_EVENT_ESTABLISHED);
}

void one_after_another_from_one_listener(void **) {
    Listener &listener = make<Listener>();
    for (unsigned round = 0; round < 40; ++round) {
        End &client = make<End>();
        End &server = make<End>();
        client.resolve(listener.port);
        client.request(std::to_string(round));
        const CmEvent request = listener.take_request();
        assert_true(request.data.starts_with(std::to_string(round)));
        assert_ptr_equal(request.listen_id, listener.id);
        server.take(request.id);
        server.accept();
        expect_event(client.events, RDMA_CM_EVENT_ESTABLISHED);
        expect_event(server.events, RDMA_CM_EVENT_ESTABLISHED);
        settle(client, server);
        assert_int_equal(provider().cm.disconnect(round % 2 == 0 ? client.id : server.id), 0);
        if (round % 2 != 0) {
            expect_event(client.events, RDMA_CM_EVENT_DISCONNECTED);
        }
        expect_event(server.events, RDMA_CM_EVENT_DISCONNECTED);
        client.destroy();
        server.destroy();
    }
}

// A client that is established connects again at once. Its server accepts one connection at a time, with one
// channel for all events, and takes the next event for that of the connection that it has just accepted. The
// server polls its completion queue in vain first: the device then leaves to the server's polls the queue
// where the connection is established, while the server waits on its event channel.
void established_is_told_before_the_same_clients_next_request(void **) {
    if (!subject.is_soft) {
        skip();  // rdma_cm does not promise it
    }
    constexpr std::size_t connections = 3;
    constexpr int polls_in_vain = 100;
    const Sizes small{.memory_bytes = 4096};
    Listener &listener = make<Listener>();
    std::array<End *, connections> clients{};
    for (End *&client : clients) {
        client = &make<End>(small);
        client->resolve(listener.port);
    }
    clients[0]->request();
    for (std::size_t i = 0; i < connections; ++i) {
        const CmEvent request = listener.take_request();
        End &server = make<End>(small);
        server.id = request.id;
        server.create_objects();
        for (int poll = 0; poll < polls_in_vain; ++poll) {
            expect_no_completion(server.cq);
        }
        server.accept();
        expect_event(clients[i]->events, RDMA_CM_EVENT_ESTABLISHED);
        if (i + 1 < connections) {
            clients[i + 1]->request();
        }
        assert_ptr_equal(expect_event(listener.events, RDMA_CM_EVENT_ESTABLISHED).id, request.id);
    }
}

void an_empty_channel_that_does_not_block(void **) {
    Ends &ends = connected();
    make_non_blocking(ends.client.events->fd);
    rdma_cm_event *event = nullptr;
    assert_int_equal(provider().cm.get_cm_event(ends.client.events, &event), -1);
    assert_int_equal(errno, EAGAIN);
    assert_false(has_event(ends.client.events->fd));
    assert_int_equal(provider().cm.disconnect(ends.server.id), 0);
    pollfd ready{.fd = ends.client.events->fd, .events = POLLIN, .revents = 0};
    assert_int_equal(poll(&ready, 1, patience_ms), 1);
    expect_event(ends.client.events, RDMA_CM_EVENT_DISCONNECTED);
    assert_false(has_event(ends.client.events->fd));
}

constexpr CMUnitTest tests[] = {
    cmocka_unit_test(private_data_of_every_size_goes_both_ways),
    cmocka_unit_test(too_much_private_data_is_refused),
    cmocka_unit_test(no_parameters_are_the_most_there_is),
    cmocka_unit_test(a_rejection_is_seen_with_its_data),
    cmocka_unit_test(nobody_listens),
    cmocka_unit_test(either_end_disconnects),
    cmocka_unit_test(both_ends_disconnect_at_once),
    cmocka_unit_test(the_end_is_told_when_the_queue_pair_is_gone),
    cmocka_unit_test(an_end_is_destroyed_without_a_disconnect),
    cmocka_unit_test(a_client_goes_before_it_is_accepted),
    cmocka_unit_test(a_client_goes_before_it_is_rejected),
    cmocka_unit_test(a_request_that_is_destroyed_is_rejected),
    cmocka_unit_test(a_queue_pair_goes_while_it_disconnects),
    cmocka_unit_test(a_server_may_speak_first),
    cmocka_unit_test(one_after_another_from_one_listener),
    cmocka_unit_test(established_is_told_before_the_same_clients_next_request),
    cmocka_unit_test(an_empty_channel_that_does_not_block),
};

}  // namespace

std::span<const CMUnitTest> connection_tests() {
    return tests;
}

}  // namespace conformance
