// SPDX-License-Identifier: BSD-3-Clause
// datagram/endpoint: tests which way messages take, and what strangers cannot do to an
// endpoint. The device is the soft one.
#include "datagram/endpoint.hpp"

#include <poll.h>
#include <sched.h>

#include <memory>
#include <string_view>

#include "base/fd.hpp"

#include "../base/check.hpp"

namespace {

using namespace datagram;

constexpr Room room{.receives = 8, .sends = 8};
constexpr int most_wait_ms = 40'000;  // The kernel may deliver late, even on the loopback.
const Ip loopback4 = Ip::of_v4({.s_addr = htonl(INADDR_LOOPBACK)});
const Ip loopback6 = Ip::of_v6(in6addr_loopback);

// A Udp is a UDP socket on the loopback.
struct Udp {
    explicit Udp(const Ip &ip) : family{ip.is_v4() ? AF_INET : AF_INET6} {
        fd = base::Fd{socket(family, SOCK_DGRAM | SOCK_NONBLOCK, 0)};
        AnyAddress name;
        socklen_t length = write_address({.ip = ip}, family, name);
        assert_int_equal(bind(fd.get(), &name.any, length), 0);
        assert_int_equal(getsockname(fd.get(), &name.any, &length), 0);
        address = address_of(&name, length).value();
        assert_true(udp::prepare(fd.get(), family).has_value());
    }
    [[nodiscard]] bool has_datagram(int wait_ms = 0) const {
        pollfd one{.fd = fd.get(), .events = POLLIN, .revents = 0};
        return ::poll(&one, 1, wait_ms) == 1;
    }
    void send_to(const Address &to, std::span<const std::byte> bytes) const {
        AnyAddress name;
        const socklen_t length = write_address(to, family, name);
        assert_true(udp::send(fd.get(), bytes, &name.any, length).has_value());
    }
    // Receives the next datagram, which must come within 40 seconds, and asserts that its envelope is good.
    [[nodiscard]] Envelope take() const {
        std::array<std::byte, 4096> bytes;
        assert_true(has_datagram(most_wait_ms));
        const auto arrival = udp::receive(fd.get(), bytes);
        assert_true(arrival.has_value());
        return decode_envelope(std::span{bytes}.first(arrival->bytes)).value();
    }

    int family;
    base::Fd fd;
    Address address;
};

struct End : Udp {
    explicit End(const Ip &ip) : Udp{ip} { begin(); }
    // Begins anew on the same socket, with another queue pair.
    void begin() {
        endpoint.reset();
        endpoint = std::make_unique<Endpoint>(fd.get(), family, room);
    }
    void send(const Address &to, std::string_view text) {
        AnyAddress name;
        const socklen_t length = write_address(to, family, name);
        const iovec part{.iov_base = const_cast<char *>(text.data()), .iov_len = text.size()};
        assert_true(endpoint->send({&part, 1}, &name.any, length).has_value());
    }
    // Waits for the next message, which must come within 40 seconds.
    [[nodiscard]] std::string_view text() {
        const auto limit = base::Clock::now() + std::chrono::seconds{40};
        while (!endpoint->has_message()) {
            assert_true(base::Clock::now() < limit);
            sched_yield();
            endpoint->serve();
        }
        const auto content = endpoint->message().content();
        return {reinterpret_cast<const char *>(content.data()), content.size()};
    }
    void expect(const Udp &from, std::string_view expected) {
        assert_true(text() == expected);
        assert_true(endpoint->message().from == from.address);
        endpoint->drop_message();
    }
    [[nodiscard]] QueuePair &pair() {
        assert_int_equal(endpoint->pairs().size(), 1);
        return *endpoint->pairs().front();
    }

    std::unique_ptr<Endpoint> endpoint;
};

// Sends until a message takes the queue pairs.
void meet(End &a, End &b) {
    for (int i = 0; i < 10; ++i) {
        a.send(b.address, "over UDP?");
        const bool is_over_udp = b.has_datagram();
        b.expect(a, "over UDP?");
        if (!is_over_udp) {
            return;
        }
        a.endpoint->serve();
    }
    fail_msg("all messages go over UDP");
}

void messages_take_the_queue_pairs(void **) {
    for (const Ip &ip : {loopback4, loopback6}) {
        End a{ip};
        End b{ip};
        a.send(b.address, "first");
        assert_true(b.has_datagram(most_wait_ms));
        b.expect(a, "first");
        meet(a, b);
        meet(b, a);
        // The test sends more messages than there are slots, and every second one is as long as fits.
        const std::string most(most_message_bytes(ip), 'x');
        for (int i = 0; i < 50; ++i) {
            a.send(b.address, i % 2 == 0 ? std::string_view{most} : "");
            assert_false(b.has_datagram());
            b.expect(a, i % 2 == 0 ? std::string_view{most} : "");
        }
    }
}

// Nobody serves the peer, so that no answer comes. No message is lost.
void without_an_answer_messages_go_over_udp(void **) {
    End a{loopback4};
    const Udp silent{loopback4};
    for (int i = 0; i < 10; ++i) {
        a.send(silent.address, "x");
        const Envelope envelope = silent.take();
        assert_true(envelope.op == Op::Message && envelope.ip == loopback4);
        assert_int_equal(envelope.qp_num, a.pair().number());
    }
}

// The peer begins anew. Messages to its old queue pair are lost, though not for long.
void a_queue_pair_is_believed_for_a_while(void **) {
    End a{loopback4};
    End b{loopback4};
    meet(a, b);
    b.begin();
    const auto limit = base::Clock::now() + std::chrono::seconds{40};
    while (!b.endpoint->has_message()) {
        assert_true(base::Clock::now() < limit);
        a.send(b.address, "again");
        sched_yield();
        b.endpoint->serve();
    }
    assert_true(b.text() == "again");
}

void forged_answers(void **) {
    End a{loopback4};
    End other{loopback4};
    const Udp peer{loopback4};
    const Udp stranger{loopback4};
    other.send(stranger.address, "x");
    const std::uint32_t number = other.pair().number();
    a.send(peer.address, "x");
    (void)peer.take();
    const auto answer = [&](const Udp &from, const Envelope &envelope) {
        std::array<std::byte, most_header_bytes> bytes;
        encode(envelope, bytes);
        from.send_to(a.address, std::span{bytes}.first(envelope_bytes(envelope.ip)));
    };
    // The answers come from elsewhere, tell of another address, or have numbers that no queue pair has.
    answer(stranger, {.op = Op::Answer, .qp_num = number, .ip = loopback4});
    answer(peer, {.op = Op::Answer, .qp_num = number, .ip = Ip::of_v4({.s_addr = htonl(0x7f000002)})});
    answer(peer, {.op = Op::Answer, .qp_num = number, .ip = loopback6});
    for (const std::uint32_t none : {0U, 1U, 0xffffffU}) {
        answer(peer, {.op = Op::Answer, .qp_num = none, .ip = loopback4});
    }
    for (int i = 0; i < 5; ++i) {
        a.send(peer.address, "x");
        (void)peer.take();
    }
    other.endpoint->serve();
    assert_false(other.endpoint->has_message());
    // The endpoint answers no answer, and it tells nothing of queue pairs to a peer that has none.
    assert_false(stranger.has_datagram() && stranger.take().op == Op::Answer);
    answer(peer, {.op = Op::Message, .qp_num = 0, .ip = loopback4});
    a.expect(peer, "");
    assert_false(peer.has_datagram());
}

// The messages begin with bytes that are no label, or with labels of other addresses than the sender's. A
// good message follows each of them: once it is there, the endpoint has dropped the one before it, and has
// its receive free again. A datagram for which no receive is free would be lost.
void forged_labels(void **) {
    End b{loopback4};
    const Udp silent{loopback4};
    b.send(silent.address, "x");  // so that it has a queue pair
    auto sender = QueuePair::create({.ip = loopback4}, room);
    assert_true(sender.has_value());
    int asker = 0;
    const auto looking = (*sender)->look_up({.ip = loopback4}, &asker);
    assert_true(looking.has_value());
    auto found = (*sender)->next_looked_up();
    for (const auto limit = base::Clock::now() + std::chrono::seconds{40}; !found;) {
        assert_true(base::Clock::now() < limit);
        sched_yield();
        found = (*sender)->next_looked_up();
    }
    assert_true(found->asker == &asker && found->handle);
    const auto post = [&](const Address &label, std::size_t bytes, auto spoil) {
        while ((*sender)->slot_to_send().empty()) {
            (void)(*sender)->poll(8, [](const QueuePair::Received &) {});
        }
        const auto slot = (*sender)->slot_to_send();
        encode(label, slot);
        spoil(slot);
        assert_true((*sender)->send(bytes, found->handle.get(), b.pair().number()));
    };
    const Address good{.ip = loopback4, .port = 9};
    char mark = 'a';
    const auto send = [&](const Address &label, std::size_t bytes, auto spoil) {
        post(label, bytes, spoil);
        post(good, label_bytes(loopback4) + 1,
             [&](auto slot) { slot[label_bytes(loopback4)] = std::byte(mark); });
        assert_true(b.text() == (std::string_view{&mark, 1}));
        assert_true(b.endpoint->message().from == good);
        b.endpoint->drop_message();
        assert_false(b.endpoint->has_message());
        ++mark;
    };
    for (std::size_t bytes = 0; bytes < label_bytes(loopback4); ++bytes) {
        send(good, bytes, [](auto) {});
    }
    for (const std::size_t at : {0U, 1U}) {
        for (const int value : {0, 5, 6, 7, 9, 24, 255}) {
            send(good, 40, [&](auto slot) { slot[at] = static_cast<std::byte>(value); });
        }
    }
    send({.ip = loopback4, .port = 0}, 40, [](auto) {});
    send({.ip = Ip::of_v4({.s_addr = htonl(0xc0000201)}), .port = 9}, 40, [](auto) {});
    send({.ip = loopback6, .port = 9}, 40, [](auto) {});
}

// The peer that the program sent to longest ago is forgotten, and asked again.
void many_peers(void **) {
    End a{loopback4};
    End b{loopback4};
    meet(a, b);
    for (int i = 0; i < 3000; ++i) {
        AnyAddress name;
        const Address to{.ip = Ip::of_v4({.s_addr = htonl(0x7f000000U + static_cast<std::uint32_t>(i) + 2)}),
                         .port = b.address.port};
        const socklen_t length = write_address(to, AF_INET, name);
        (void)a.endpoint->send({}, &name.any, length);
    }
    meet(a, b);
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {cmocka_unit_test(messages_take_the_queue_pairs),
                                cmocka_unit_test(without_an_answer_messages_go_over_udp),
                                cmocka_unit_test(a_queue_pair_is_believed_for_a_while),
                                cmocka_unit_test(forged_answers),
                                cmocka_unit_test(forged_labels),
                                cmocka_unit_test(many_peers)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
