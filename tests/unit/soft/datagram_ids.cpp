// SPDX-License-Identifier: BSD-3-Clause
// Tests ids of RDMA_PS_UDP: they ask a service for its queue pair, and join
// groups. Some peers are nothing but a socket.
#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "../../limits.hpp"
#include "soft/datagram/lookup.hpp"
#include "soft/wire/datagram.hpp"

// These come last, because they assert.
#include "datagram_end.hpp"

#include "../base/fixture.hpp"

namespace {

using test::DatagramEnd;
using test::gid_of;

constexpr int timeout_ms = 2000;
const char *const here = "127.0.0.1";
const char *const group = "239.255.77.3";

struct Seen {
    rdma_cm_event_type type;
    int status;
    rdma_cm_id *id;
    rdma_cm_id *listen_id;
    std::string private_data;
    const void *data_pointer;
    ibv_ah_attr to;
    std::uint32_t qp_num;
    std::uint32_t qkey;
};

sockaddr_in address_of(const char *host, std::uint16_t port = 0) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    assert_int_equal(inet_pton(AF_INET, host, &address.sin_addr), 1);
    return address;
}

sockaddr *general(sockaddr_in &address) {
    return reinterpret_cast<sockaddr *>(&address);
}

// This is an event channel with a listener. It destroys the ids that a test makes.
class Ids {
public:
    Ids() : events{softrdma_rdma_create_event_channel()} {
        assert_non_null(events);
        listener = create();
        sockaddr_in address = address_of(here);
        assert_int_equal(softrdma_rdma_bind_addr(listener, general(address)), 0);
        assert_int_equal(softrdma_rdma_listen(listener, 0), 0);
    }
    ~Ids() {
        for (auto id = all_.rbegin(); id != all_.rend(); ++id) {
            (void)softrdma_rdma_destroy_id(*id);
        }
        softrdma_rdma_destroy_event_channel(events);
    }
    Ids(const Ids &) = delete;
    Ids &operator=(const Ids &) = delete;

    rdma_cm_id *create(rdma_port_space port_space = RDMA_PS_UDP) {
        rdma_cm_id *id = nullptr;
        assert_int_equal(softrdma_rdma_create_id(events, &id, nullptr, port_space), 0);
        all_.push_back(id);
        return id;
    }
    // Returns an id that is resolved towards a port of this machine.
    rdma_cm_id *towards(std::uint16_t port) {
        rdma_cm_id *const id = create();
        sockaddr_in address = address_of(here, port);
        assert_int_equal(softrdma_rdma_resolve_addr(id, nullptr, general(address), timeout_ms), 0);
        (void)next(RDMA_CM_EVENT_ADDR_RESOLVED);
        assert_int_equal(softrdma_rdma_resolve_route(id, timeout_ms), 0);
        (void)next(RDMA_CM_EVENT_ROUTE_RESOLVED);
        return id;
    }
    rdma_cm_id *ask(std::uint16_t port, const std::string &data = {}) {
        rdma_cm_id *const id = towards(port);
        rdma_conn_param parameters{};
        parameters.private_data = data.data();
        parameters.private_data_len = static_cast<std::uint8_t>(data.size());
        assert_int_equal(softrdma_rdma_connect(id, &parameters), 0);
        return id;
    }
    Seen next(rdma_cm_event_type expected) {
        rdma_cm_event *event = nullptr;
        assert_int_equal(softrdma_rdma_get_cm_event(events, &event), 0);
        const auto &ud = event->param.ud;
        Seen seen{.type = event->event,
                  .status = event->status,
                  .id = event->id,
                  .listen_id = event->listen_id,
                  .private_data = {},
                  .data_pointer = ud.private_data,
                  .to = ud.ah_attr,
                  .qp_num = ud.qp_num,
                  .qkey = ud.qkey};
        seen.private_data.assign(static_cast<const char *>(ud.private_data), ud.private_data_len);
        if (seen.type == RDMA_CM_EVENT_CONNECT_REQUEST) {
            all_.push_back(seen.id);
        }
        assert_int_equal(softrdma_rdma_ack_cm_event(event), 0);
        assert_string_equal(softrdma_rdma_event_str(seen.type), softrdma_rdma_event_str(expected));
        return seen;
    }
    void destroy(rdma_cm_id *id) {
        std::erase(all_, id);
        assert_int_equal(softrdma_rdma_destroy_id(id), 0);
    }
    [[nodiscard]] std::uint16_t port() const { return ntohs(softrdma_rdma_get_src_port(listener)); }

    rdma_event_channel *events;
    rdma_cm_id *listener = nullptr;

private:
    std::vector<rdma_cm_id *> all_;
};

void a_service_is_found_and_used(Ids &ids) {
    rdma_cm_id *const client = ids.ask(ids.port(), "which queue pair?");
    const Seen request = ids.next(RDMA_CM_EVENT_CONNECT_REQUEST);
    assert_string_equal(request.private_data.c_str(), "which queue pair?");
    assert_ptr_equal(request.listen_id, ids.listener);
    assert_ptr_equal(request.id->verbs, client->verbs);
    assert_int_equal(softrdma_rdma_get_dst_port(request.id), softrdma_rdma_get_src_port(client));
    {
        DatagramEnd server{request.id};
        assert_int_equal(server.state(), IBV_QPS_RTS);
        server.post_receive(0);
        rdma_conn_param parameters{};
        parameters.private_data = "this one";
        parameters.private_data_len = 8;
        assert_int_equal(softrdma_rdma_accept(request.id, &parameters), 0);

        const Seen found = ids.next(RDMA_CM_EVENT_ESTABLISHED);
        assert_ptr_equal(found.id, client);
        assert_int_equal(found.status, 0);
        assert_string_equal(found.private_data.c_str(), "this one");
        assert_int_equal(found.qp_num, server.qp->qp_num);
        assert_int_equal(found.qkey, RDMA_UDP_QKEY);

        DatagramEnd end{client};
        ibv_ah_attr to = found.to;
        ibv_ah *const handle = softrdma_ibv_create_ah(end.pd, &to);
        assert_non_null(handle);
        end.send("hello", handle, found.qp_num, found.qkey);
        assert_string_equal(server.next_message().text.c_str(), "hello");
        assert_int_equal(softrdma_ibv_destroy_ah(handle), 0);
    }
    assert_int_equal(softrdma_rdma_disconnect(client), -1);
    assert_int_equal(errno, EINVAL);
}

// A datagram id has no connection that would end with its queue pair, so there is
// no event. librdmacm pushes none either.
void a_queue_pair_ends_without_an_event(Ids &ids) {
    rdma_cm_id *const client = ids.ask(ids.port());
    const Seen request = ids.next(RDMA_CM_EVENT_CONNECT_REQUEST);
    {
        const DatagramEnd server{request.id};
        assert_int_equal(softrdma_rdma_accept(request.id, nullptr), 0);
        (void)ids.next(RDMA_CM_EVENT_ESTABLISHED);
        const DatagramEnd end{client};
    }
    assert_int_equal(fcntl(ids.events->fd, F_SETFL, O_NONBLOCK), 0);
    rdma_cm_event *event = nullptr;
    const bool pushed = softrdma_rdma_get_cm_event(ids.events, &event) == 0;
    const int error = errno;
    if (pushed) {
        assert_int_equal(softrdma_rdma_ack_cm_event(event), 0);
    }
    assert_false(pushed);
    assert_int_equal(error, EAGAIN);
}

// rdma_init_qp_attr says how a queue pair that is not the id's climbs the states.
void attributes_of_the_states(Ids &ids) {
    rdma_cm_id *const id = ids.towards(ids.port());
    const auto end = std::make_unique<DatagramEnd>(IBV_QPS_RESET);
    for (const ibv_qp_state next : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
        ibv_qp_attr attributes{};
        attributes.qp_state = next;
        int mask = 0;
        assert_int_equal(softrdma_rdma_init_qp_attr(id, &attributes, &mask), 0);
        assert_int_equal(softrdma_ibv_modify_qp(end->qp, &attributes, mask), 0);
        assert_int_equal(end->state(), next);
    }
}

// The path says what an address handle needs.
void the_path_of_a_route(Ids &ids) {
    const rdma_cm_id *const id = ids.towards(ids.port());
    assert_int_equal(id->route.num_paths, 1);
    const ibv_gid gid = gid_of(here);
    const rdma_ib_addr &address = id->route.addr.addr.ibaddr;
    assert_memory_equal(&address.dgid, &gid, sizeof(gid));
    assert_memory_equal(&address.sgid, &gid, sizeof(gid));
}

void a_rejection(Ids &ids) {
    rdma_cm_id *const client = ids.ask(ids.port());
    const Seen request = ids.next(RDMA_CM_EVENT_CONNECT_REQUEST);
    assert_int_equal(softrdma_rdma_reject(request.id, "no", 2), 0);
    assert_int_equal(softrdma_rdma_reject(request.id, "no", 2), -1);
    const Seen answer = ids.next(RDMA_CM_EVENT_UNREACHABLE);
    assert_ptr_equal(answer.id, client);
    assert_int_equal(answer.status, 2);
    assert_string_equal(answer.private_data.c_str(), "no");
}

// A request is rejected when its id is destroyed without an answer, also when the program has never seen it.
void a_request_that_is_dropped(Ids &ids) {
    (void)ids.ask(ids.port());
    ids.destroy(ids.next(RDMA_CM_EVENT_CONNECT_REQUEST).id);
    assert_int_equal(ids.next(RDMA_CM_EVENT_UNREACHABLE).status, 2);
}

// The client gets its answer after the listener is gone.
void an_answer_outlives_the_listener(Ids &ids) {
    (void)ids.ask(ids.port());
    const Seen request = ids.next(RDMA_CM_EVENT_CONNECT_REQUEST);
    ids.destroy(ids.listener);
    rdma_conn_param parameters{};
    parameters.qp_num = 0x812345;  // of a queue pair that is not the id's
    assert_int_equal(softrdma_rdma_accept(request.id, &parameters), 0);
    assert_int_equal(ids.next(RDMA_CM_EVENT_ESTABLISHED).qp_num, 0x812345);
}

// This socket is bound to a free port on 127.0.0.1.
struct Socket {
    Socket() : fd{socket(AF_INET, SOCK_DGRAM, 0)} {
        sockaddr_in address = address_of(here);
        assert_int_equal(bind(fd, general(address), sizeof(address)), 0);
        socklen_t length = sizeof(address);
        assert_int_equal(getsockname(fd, general(address), &length), 0);
        port = ntohs(address.sin_port);
        const timeval patience{.tv_sec = 40, .tv_usec = 0};
        assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
    }
    ~Socket() { close(fd); }
    Socket(const Socket &) = delete;
    Socket &operator=(const Socket &) = delete;

    void send(std::span<const std::byte> bytes, std::uint16_t to) const {
        sockaddr_in address = address_of(here, to);
        assert_int_equal(sendto(fd, bytes.data(), bytes.size(), 0, general(address), sizeof(address)),
                         bytes.size());
    }
    [[nodiscard]] std::vector<std::byte> receive(sockaddr_in &from, int flags = 0) const {
        std::vector<std::byte> bytes(1024);
        socklen_t length = sizeof(from);
        const ssize_t size = recvfrom(fd, bytes.data(), bytes.size(), flags, general(from), &length);
        bytes.resize(size < 0 ? 0 : static_cast<std::size_t>(size));
        return bytes;
    }

    int fd;
    std::uint16_t port = 0;
};

void nobody_listens(Ids &ids) {
    std::uint16_t port = 0;
    {
        const Socket gone;
        port = gone.port;
    }
    (void)ids.ask(port);
    assert_int_equal(ids.next(RDMA_CM_EVENT_UNREACHABLE).status, -ECONNREFUSED);
}

// The device repeats a lost reply, and does not take the repeated request for a second one.
void a_request_comes_again(Ids &ids) {
    using namespace soft::wire;
    const auto peer = std::make_unique<Socket>();
    const auto request = encode(LookupRequest{.token = 77});
    peer->send(request, ids.port());
    peer->send(request, ids.port());
    const Seen seen = ids.next(RDMA_CM_EVENT_CONNECT_REQUEST);
    rdma_conn_param parameters{};
    parameters.qp_num = 0x812345;
    assert_int_equal(softrdma_rdma_accept(seen.id, &parameters), 0);
    peer->send(request, ids.port());
    sockaddr_in from{};
    const auto first = peer->receive(from);
    // Any thread that waits serves the listener's channel: this request comes after the repeated one.
    peer->send(encode(LookupRequest{.token = 78}), ids.port());
    (void)ids.next(RDMA_CM_EVENT_CONNECT_REQUEST);
    const auto second = peer->receive(from);
    assert_true(first == second);
    const auto reply = decode_lookup_reply(first);
    assert_true(reply && reply->token == 77 && reply->qp_num == 0x812345);
}

// Datagrams that were changed or cut are no requests. A datagram that comes from elsewhere,
// or answers another request, is no reply.
void bytes_that_mean_nothing(Ids &ids) {
    using namespace soft::wire;
    const auto peer = std::make_unique<Socket>();
    const auto request = encode(LookupRequest{.token = 1});
    for (std::size_t size = 0; size < request.size(); ++size) {
        peer->send(std::span{request}.first(size), ids.port());
    }
    for (std::size_t i = 0; i < request.size(); ++i) {
        auto changed = request;
        changed[i] ^= std::byte{0x40};
        const bool harmless = (i >= 8 && i < 16) || i == 7;  // the token, the bytes of private data
        if (!harmless) {
            peer->send(changed, ids.port());
        }
    }
    peer->send(encode(LookupRequest{.token = 2, .private_data = std::as_bytes(std::span{"last"})}),
               ids.port());
    assert_string_equal(ids.next(RDMA_CM_EVENT_CONNECT_REQUEST).private_data.c_str(), "last");

    const auto service = std::make_unique<Socket>();
    const rdma_cm_id *const client = ids.ask(service->port);
    sockaddr_in from{};
    const auto asked = service->receive(from);
    const auto question = decode_lookup_request(asked);
    assert_true(question.has_value());
    const auto answer = [&](const Socket &by, LookupReply reply) {
        LookupReplyBytes room;
        by.send(std::span{room}.first(encode(reply, room)), ntohs(from.sin_port));
    };
    answer(*peer, {.token = question->token, .qp_num = 1});         // from elsewhere
    answer(*service, {.token = question->token + 1, .qp_num = 2});  // to another question
    service->send(asked, ntohs(from.sin_port));                     // a reflection
    answer(*service, {.token = question->token, .qp_num = 3});
    const Seen found = ids.next(RDMA_CM_EVENT_ESTABLISHED);
    assert_ptr_equal(found.id, client);
    assert_int_equal(found.qp_num, 3);
}

// The id asks lookup_attempts times, and then gives up.
void a_service_that_is_silent(Ids &ids) {
    const auto service = std::make_unique<Socket>();
    const test::ChangedLimit shorter{test::limits().lookup_interval, std::chrono::milliseconds{10}};
    (void)ids.ask(service->port);
    assert_int_equal(ids.next(RDMA_CM_EVENT_UNREACHABLE).status, -ETIMEDOUT);
    int asked = 0;
    for (sockaddr_in from{}; !service->receive(from, MSG_DONTWAIT).empty();) {
        ++asked;
    }
    assert_int_equal(asked, soft::limits::lookup_attempts);
}

void calls_that_are_refused(Ids &ids) {
    rdma_cm_id *id = nullptr;
    assert_int_equal(softrdma_rdma_create_id(ids.events, &id, nullptr, RDMA_PS_IB), -1);
    assert_int_equal(errno, EPROTONOSUPPORT);
    id = ids.towards(ids.port());
    const std::string longer(soft::wire::lookup_max_private_bytes + 1, 'x');
    rdma_conn_param parameters{};
    parameters.private_data = longer.data();
    parameters.private_data_len = static_cast<std::uint8_t>(longer.size());
    assert_int_equal(softrdma_rdma_connect(id, &parameters), -1);
    assert_int_equal(errno, EINVAL);
    // A port belongs to one listener.
    rdma_cm_id *const rival = ids.create();
    sockaddr_in address = address_of(here, ids.port());
    assert_int_equal(softrdma_rdma_bind_addr(rival, general(address)), 0);
    assert_int_equal(softrdma_rdma_listen(rival, 0), -1);
    assert_int_equal(errno, EADDRINUSE);
}

// ---- groups ----

rdma_cm_id *bound(Ids &ids, rdma_port_space port_space = RDMA_PS_UDP) {
    rdma_cm_id *const id = ids.create(port_space);
    sockaddr_in address = address_of(here);
    assert_int_equal(softrdma_rdma_bind_addr(id, general(address)), 0);
    return id;
}

// When a program destroys the queue pair with ibv_destroy_qp, the id does not use it any more.
void a_queue_pair_goes_before_its_id(Ids &ids) {
    rdma_cm_id *const member = bound(ids);
    DatagramEnd end{member};
    for (const char *const joined : {group, "239.255.77.4"}) {
        sockaddr_in address = address_of(joined);
        assert_int_equal(softrdma_rdma_join_multicast(member, general(address), nullptr), 0);
        (void)ids.next(RDMA_CM_EVENT_MULTICAST_JOIN);
    }
    assert_int_equal(softrdma_ibv_destroy_qp(end.qp), 0);
    sockaddr_in address = address_of(group);
    assert_int_equal(softrdma_rdma_leave_multicast(member, general(address)), 0);
    member->qp = nullptr;  // the other group is left when the id goes
}

void joining_and_leaving(Ids &ids) {
    rdma_cm_id *const member = bound(ids, RDMA_PS_IPOIB);
    rdma_cm_id *const sender = bound(ids);
    DatagramEnd receiving{member};
    DatagramEnd sending{sender};
    sockaddr_in address = address_of(group);
    int context = 0;
    assert_int_equal(softrdma_rdma_join_multicast(member, general(address), &context), 0);
    const Seen joined = ids.next(RDMA_CM_EVENT_MULTICAST_JOIN);
    assert_ptr_equal(joined.data_pointer, &context);
    assert_int_equal(joined.qp_num, 0xffffff);
    assert_int_equal(joined.qkey, RDMA_UDP_QKEY);
    const ibv_gid gid = gid_of(group);
    assert_memory_equal(&joined.to.grh.dgid, &gid, sizeof(gid));

    rdma_cm_join_mc_attr_ex only_sends{
        .comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
        .join_flags = RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER,
        .addr = general(address)};
    assert_int_equal(softrdma_rdma_join_multicast_ex(sender, &only_sends, nullptr), 0);
    Seen may_send = ids.next(RDMA_CM_EVENT_MULTICAST_JOIN);
    ibv_ah *const to = softrdma_ibv_create_ah(sending.pd, &may_send.to);
    assert_non_null(to);
    receiving.post_receive(0);
    sending.post_receive(0);
    sending.send("to all", to, may_send.qp_num, may_send.qkey);
    assert_string_equal(receiving.next_message().text.c_str(), "to all");
    sending.expect_nothing();

    assert_int_equal(softrdma_rdma_leave_multicast(member, general(address)), 0);
    assert_int_equal(softrdma_rdma_leave_multicast(member, general(address)), -1);
    assert_int_equal(errno, EADDRNOTAVAIL);
    receiving.post_receive(0);
    sending.send("who is there?", to, may_send.qp_num, may_send.qkey);
    receiving.expect_nothing();
    assert_int_equal(softrdma_ibv_destroy_ah(to), 0);
}

void groups_that_cannot_be_joined(Ids &ids) {
    rdma_cm_id *const id = bound(ids);
    sockaddr_in host = address_of(here);
    assert_int_equal(softrdma_rdma_join_multicast(id, general(host), nullptr), -1);
    assert_int_equal(errno, EINVAL);
    sockaddr_in address = address_of(group);
    rdma_cm_join_mc_attr_ex unknown{
        .comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS, .join_flags = 0, .addr = general(address)};
    assert_int_equal(softrdma_rdma_join_multicast_ex(id, &unknown, nullptr), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(softrdma_rdma_join_multicast(ids.create(RDMA_PS_TCP), general(address), nullptr), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(softrdma_rdma_join_multicast(ids.create(), general(address), nullptr), -1);  // no device
    assert_int_equal(errno, EINVAL);
}

// The id that asks is destroyed at any moment, while requests and their answers come in.
void ids_go_while_they_ask(Ids &ids) {
    static constexpr unsigned rounds = 200;
    rdma_event_channel *const asking = softrdma_rdma_create_event_channel();
    assert_non_null(asking);
    sockaddr_in address = address_of(here, ids.port());
    const auto ask = [&](const char *data) {
        rdma_cm_id *id = nullptr;
        rdma_conn_param parameters{};
        parameters.private_data = data;
        parameters.private_data_len = static_cast<std::uint8_t>(std::strlen(data));
        const bool asked = softrdma_rdma_create_id(asking, &id, nullptr, RDMA_PS_UDP) == 0 &&
                           softrdma_rdma_resolve_addr(id, nullptr, general(address), timeout_ms) == 0 &&
                           softrdma_rdma_resolve_route(id, timeout_ms) == 0 &&
                           softrdma_rdma_connect(id, &parameters) == 0;
        return asked ? id : nullptr;
    };
    unsigned failed = 0;
    {
        const std::jthread refuser{[&ids] {
            for (bool last = false; !last;) {
                rdma_cm_event *event = nullptr;
                last = softrdma_rdma_get_cm_event(ids.events, &event) != 0 ||
                       event->param.ud.private_data_len != 0;
                rdma_cm_id *const id = event->id;
                (void)softrdma_rdma_ack_cm_event(event);
                (void)softrdma_rdma_destroy_id(id);  // rejects it
            }
        }};
        for (unsigned round = 0; round < rounds; ++round) {
            rdma_cm_id *const id = ask("");
            for (unsigned i = 0; i < round % 8; ++i) {
                std::this_thread::yield();
            }
            failed += id != nullptr && softrdma_rdma_destroy_id(id) == 0 ? 0 : 1;
        }
        rdma_cm_id *const id = ask("the last");
        for (const auto expected :
             {RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_ROUTE_RESOLVED, RDMA_CM_EVENT_UNREACHABLE}) {
            rdma_cm_event *event = nullptr;
            failed += softrdma_rdma_get_cm_event(asking, &event) == 0 && event->event == expected ? 0 : 1;
            (void)softrdma_rdma_ack_cm_event(event);
        }
        (void)softrdma_rdma_destroy_id(id);
    }
    softrdma_rdma_destroy_event_channel(asking);
    assert_int_equal(failed, 0);
}

}  // namespace

int main() {
    alarm(50);  // an event that does not come
    const CMUnitTest tests[] = {
        fixture_test(a_service_is_found_and_used),
        fixture_test(a_queue_pair_ends_without_an_event),
        fixture_test(attributes_of_the_states),
        fixture_test(the_path_of_a_route),
        fixture_test(a_rejection),
        fixture_test(a_request_that_is_dropped),
        fixture_test(an_answer_outlives_the_listener),
        fixture_test(nobody_listens),
        fixture_test(a_request_comes_again),
        fixture_test(bytes_that_mean_nothing),
        fixture_test(calls_that_are_refused),
        fixture_test(a_queue_pair_goes_before_its_id),
        fixture_test(joining_and_leaving),
        fixture_test(groups_that_cannot_be_joined),
        fixture_test(ids_go_while_they_ask),
        fixture_test(a_service_that_is_silent),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
