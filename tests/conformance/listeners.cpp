// SPDX-License-Identifier: BSD-3-Clause
// conformance: tests listeners: addresses, many clients, strangers, and the end of a listener with clients
// half way. The slow tests wait for the device's time-outs.
#include <arpa/inet.h>

#include <array>
#include <cerrno>

#include "raw_socket.hpp"
#include "suite.hpp"

namespace conformance {

namespace {

struct Bound {
    explicit Bound(std::uint16_t port) {
        assert_int_equal(provider().cm.create_id(nullptr, &id, nullptr, RDMA_PS_TCP), 0);
        auto here = subject_address(port);
        result = provider().cm.bind_addr(id, reinterpret_cast<sockaddr *>(&here));
        error = errno;
    }
    ~Bound() { (void)provider().cm.destroy_id(id); }
    Bound(const Bound &) = delete;
    Bound &operator=(const Bound &) = delete;

    rdma_cm_id *id = nullptr;
    int result = 0;
    int error = 0;
};

void a_port_is_taken_once(void **) {
    Listener &listener = make<Listener>();
    assert_int_not_equal(listener.port, 0);
    Bound &again = make<Bound>(listener.port);
    assert_int_equal(again.result, -1);
    assert_int_equal(again.error, EADDRINUSE);
    listener.destroy();
    assert_int_equal(make<Bound>(listener.port).result, 0);
}

void addresses_of_other_machines(void **) {
    rdma_cm_id *const id = make<Bound>(std::uint16_t{0}).id;
    assert_non_null(id->verbs);
    rdma_cm_id *other = nullptr;
    assert_int_equal(provider().cm.create_id(nullptr, &other, nullptr, RDMA_PS_TCP), 0);
    sockaddr_storage elsewhere{};
    auto &v4 = reinterpret_cast<sockaddr_in &>(elsewhere);
    v4.sin_family = AF_INET;
    assert_int_equal(inet_pton(AF_INET, "192.0.2.1", &v4.sin_addr), 1);  // documentation's own
    const int result = provider().cm.bind_addr(other, reinterpret_cast<sockaddr *>(&elsewhere));
    const int error = errno;
    (void)provider().cm.destroy_id(other);
    assert_int_equal(result, -1);
    assert_true(error == EADDRNOTAVAIL || error == ENODEV);
}

// A socket of both families tells IPv4 addresses as parts of IPv6 ones, but a
// program sees them as IPv4 addresses.
void an_ipv4_client_of_a_listener_for_both(void **) {
    if (!subject.is_soft || subject_address(0).ss_family != AF_INET) {
        skip();
    }
    Ends &ends = make<Ends>(Sizes{}, "::");
    ends.connect();
    settle(ends.client, ends.server);
    const rdma_addr &near = ends.server.id->route.addr;
    const rdma_addr &far = ends.client.id->route.addr;
    assert_memory_equal(&near.src_sin, &far.dst_sin, sizeof(sockaddr_in));
    assert_memory_equal(&near.dst_sin, &far.src_sin, sizeof(sockaddr_in));
    assert_ptr_equal(ends.server.id->verbs, ends.client.id->verbs);
}

// The listener and the client have the same address, in its two forms.
void ipv4_addresses_that_are_mapped_into_ipv6(void **) {
    if (!subject.is_soft || subject_address(0).ss_family != AF_INET) {
        skip();
    }
    const std::string mapped = "::ffff:" + subject.address;
    Ends &ends = make<Ends>(Sizes{}, mapped);
    assert_int_equal(ends.listener.id->route.addr.src_addr.sa_family, AF_INET);
    assert_non_null(ends.listener.id->verbs);
    rdma_cm_id *const id = make<Bound>(std::uint16_t{0}).id;
    auto there = numeric_address(mapped, ends.listener.port);
    assert_int_equal(
        provider().cm.resolve_addr(id, nullptr, reinterpret_cast<sockaddr *>(&there), patience_ms), 0);
    assert_int_equal(id->route.addr.dst_addr.sa_family, AF_INET);
    ends.connect();
    settle(ends.client, ends.server);
}

// A server that ended its connections itself starts again on its port.
void a_port_is_free_again_after_its_connections(void **) {
    Ends &ends = connected();
    const std::uint16_t port = ends.listener.port;
    assert_int_equal(provider().cm.disconnect(ends.server.id), 0);
    ends.expect_disconnected();
    ends.server.destroy();
    ends.client.destroy();
    ends.listener.destroy();
    Bound &again = make<Bound>(port);
    assert_int_equal(again.result, 0);
    assert_int_equal(provider().cm.listen(again.id, 1), 0);
}

void many_clients_before_any_is_accepted(void **) {
    static constexpr std::size_t count = 40;
    const Sizes small{.memory_bytes = 4096};
    Listener &listener = make<Listener>(static_cast<int>(count));
    std::array<End *, count> clients{};
    std::array<End *, count> servers{};
    for (std::size_t i = 0; i < count; ++i) {
        clients[i] = &make<End>(small);
        clients[i]->resolve(listener.port);
        clients[i]->request(std::string(1, static_cast<char>('A' + i)));
    }
    for (std::size_t i = 0; i < count; ++i) {
        const CmEvent request = listener.take_request();
        const auto which = static_cast<std::size_t>(request.data.at(0) - 'A');
        assert_in_range(which, 0, count - 1);
        assert_null(servers[which]);
        servers[which] = &make<End>(small);
        servers[which]->take(request.id);
        servers[which]->accept(request.data.substr(0, 1));
    }
    for (std::size_t i = 0; i < count; ++i) {
        const CmEvent established = expect_event(clients[i]->events, RDMA_CM_EVENT_ESTABLISHED);
        assert_int_equal(established.data.at(0), 'A' + i);
        expect_event(servers[i]->events, RDMA_CM_EVENT_ESTABLISHED);
        fill(*clients[i], 0, 64, static_cast<unsigned>(i));
        assert_int_equal(post(*clients[i], {unsignaled(write_request(*clients[i], *servers[i], 0, 64))}), 0);
        settle(*clients[i], *servers[i]);
        assert_true(holds(*servers[i], 0, 64, static_cast<unsigned>(i)));
    }
}

void requests_that_nobody_fetched_are_rejected(void **) {
    Listener &listener = make<Listener>();
    std::array<End *, 3> clients{};
    for (End *&client : clients) {
        client = &make<End>();
        client->resolve(listener.port);
        client->request();
    }
    listener.destroy();
    for (End *const client : clients) {
        const CmEvent event = next_event(client->events);
        assert_true(event.type == RDMA_CM_EVENT_REJECTED || event.type == RDMA_CM_EVENT_UNREACHABLE);
    }
}

void a_request_that_was_fetched_outlives_its_listener(void **) {
    Ends &ends = make<Ends>();
    ends.request();
    ends.take_request();
    ends.listener.destroy();
    ends.accept();
    ends.expect_established();
    settle(ends.client, ends.server);
}

// A stranger sends nothing, half a start-up frame, or bytes that are no start-up frame at all.
constexpr std::string_view starts[] = {"", "MPA ID", "MPA ID Req Frame\x10",
                                       "GET / HTTP/1.1\r\nHost: nobody\r\n\r\n"};

void a_listener_goes_with_clients_half_way(void **) {
    if (!subject.is_soft) {
        skip();
    }
    Listener &listener = make<Listener>();
    std::array<RawSocket *, std::size(starts)> strangers{};
    for (std::size_t i = 0; i < strangers.size(); ++i) {
        strangers[i] = &make<RawSocket>();
        strangers[i]->connect(listener.port);
        strangers[i]->send(starts[i]);
    }
    listener.destroy();
    for (RawSocket *const stranger : strangers) {
        stranger->expect_end();
    }
}

void strangers_do_not_disturb_a_listener(void **) {
    if (!subject.is_soft) {
        skip();
    }
    Ends &ends = make<Ends>();
    for (const std::string_view start : starts) {
        RawSocket &stranger = make<RawSocket>();
        stranger.connect(ends.listener.port);
        stranger.send(start);
    }
    RawSocket &refused = make<RawSocket>();
    refused.connect(ends.listener.port);
    refused.send(std::string(2000, 'x'));
    refused.expect_end();
    ends.connect();
    settle(ends.client, ends.server);
}

// The last answer is shorter than a start-up frame, and the server waits for more bytes from the client.
void a_server_that_says_nonsense(void **) {
    if (!subject.is_soft) {
        skip();
    }
    for (const std::string_view answer : {"HTTP/1.1 400 Bad Request\r\n\r\n", "-ERR\r\n"}) {
        RawSocket &server = make<RawSocket>();
        server.bind();
        server.listen();
        End &client = make<End>();
        client.resolve(server.port());
        client.request();
        server.accept();
        server.send(answer);
        assert_int_equal(expect_event(client.events, RDMA_CM_EVENT_CONNECT_ERROR).status, -EPROTO);
        server.expect_end();
    }
}

// The peers have all the time that the device gives them.
void peers_that_say_nothing_are_given_up(void **) {
    if (!subject.is_soft) {
        skip();
    }
    Listener &listener = make<Listener>();
    RawSocket &silent_client = make<RawSocket>();
    silent_client.connect(listener.port);
    RawSocket &silent_server = make<RawSocket>();
    silent_server.bind();
    silent_server.listen();
    End &client = make<End>();
    client.resolve(silent_server.port());
    client.request();
    assert_int_equal(expect_event(client.events, RDMA_CM_EVENT_UNREACHABLE).status, -ETIMEDOUT);
    silent_client.expect_end();
    assert_false(has_event(listener.events->fd));
}

constexpr CMUnitTest tests[] = {
    cmocka_unit_test(a_port_is_taken_once),
    cmocka_unit_test(addresses_of_other_machines),
    cmocka_unit_test(an_ipv4_client_of_a_listener_for_both),
    cmocka_unit_test(ipv4_addresses_that_are_mapped_into_ipv6),
    cmocka_unit_test(a_port_is_free_again_after_its_connections),
    cmocka_unit_test(many_clients_before_any_is_accepted),
    cmocka_unit_test(requests_that_nobody_fetched_are_rejected),
    cmocka_unit_test(a_request_that_was_fetched_outlives_its_listener),
    cmocka_unit_test(a_listener_goes_with_clients_half_way),
    cmocka_unit_test(strangers_do_not_disturb_a_listener),
    cmocka_unit_test(a_server_that_says_nonsense),
};

constexpr CMUnitTest slow_tests[] = {
    cmocka_unit_test(peers_that_say_nothing_are_given_up),
};

}  // namespace

std::span<const CMUnitTest> listener_tests() {
    return tests;
}
std::span<const CMUnitTest> timeout_tests() {
    return slow_tests;
}

}  // namespace conformance
