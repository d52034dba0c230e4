// SPDX-License-Identifier: BSD-3-Clause
// carry_device/spares: tests how two agents meet at a port, and who comes there besides.
#include "carry_device/spares.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include "../base/check.hpp"

namespace {

using carry_device::Attempt;
using carry_device::Greeting;
using carry_device::Reply;
using carry_device::SparePort;
using carry_device::Spares;
using carry_device::Watched;

constexpr std::uint64_t name = 0x1234;

struct Port {
    base::Fd events{epoll_create1(EPOLL_CLOEXEC)};
    Spares spares;
    SparePort own;
    std::size_t greetings = 0;

    Port() {
        assert_true(spares.begin_to_listen(events.get()));
        own = spares.announce();
        assert_true(own.port != 0 && own.key != 0);
        assert_true(own.key != spares.announce().key);
    }
    bool serve(Reply reply) {
        return spares.serve([&](const Greeting &greeting, Watched fd) {
            greetings += greeting.key == own.key && greeting.name == name && greeting.side == 1 ? 1 : 0;
            assert_int_equal(send(fd.get(), &reply, sizeof(reply), MSG_NOSIGNAL), 1);
        });
    }
};

// Both addresses are 127.0.0.1.
carry::FourTuple connection() {
    carry::FourTuple one;
    for (auto &end : one.ends) {
        end.address.s6_addr[10] = end.address.s6_addr[11] = 0xff;
        end.address.s6_addr[12] = 127;
        end.address.s6_addr[15] = 1;
    }
    one.side = 1;
    return one;
}

Attempt::Result meet(Port &port, Reply reply) {
    const base::Fd events{epoll_create1(EPOLL_CLOEXEC)};
    Attempt attempt;
    auto result = Attempt::Result::Later;
    while (result == Attempt::Result::Later && port.greetings == 0) {
        result = attempt.advance(events.get(), connection(), name, port.own);
        (void)port.serve(reply);
    }
    assert_int_equal(port.greetings, 1);
    while (reply != Reply::Comes && result == Attempt::Result::Later) {
        result = attempt.advance(events.get(), connection(), name, port.own);
    }
    assert_true(attempt.is_under_way());
    return result;
}

void who_is_taken_goes_on(void **) {
    Port port;
    assert_true(meet(port, Reply::Taken) == Attempt::Result::Goes);
}

void who_is_refused_fails(void **) {
    Port port;
    assert_true(meet(port, Reply::Refused) == Attempt::Result::Fails);
}

void who_is_told_to_wait_waits(void **) {
    Port port;
    assert_true(meet(port, Reply::Comes) == Attempt::Result::Later);
}

void nobody_at_the_port_fails(void **) {
    const base::Fd events{epoll_create1(EPOLL_CLOEXEC)};
    // This socket keeps the port from others, and does not listen.
    const base::Fd silent{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    sockaddr_in at{
        .sin_family = AF_INET, .sin_port = 0, .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
    socklen_t size = sizeof(at);
    assert_int_equal(bind(silent.get(), reinterpret_cast<const sockaddr *>(&at), size), 0);
    assert_int_equal(getsockname(silent.get(), reinterpret_cast<sockaddr *>(&at), &size), 0);
    const SparePort unheard{.key = 1, .port = ntohs(at.sin_port)};
    for (const SparePort &peer : {unheard, SparePort{}}) {
        Attempt attempt;
        auto result = Attempt::Result::Later;
        while (result == Attempt::Result::Later) {
            result = attempt.advance(events.get(), connection(), name, peer);
        }
        assert_true(result == Attempt::Result::Fails);
    }
}

// Listens, and takes nobody.
class Silent {
public:
    Silent() {
        assert_int_equal(bind(fd_.get(), reinterpret_cast<const sockaddr *>(&at_), size_), 0);
        assert_int_equal(listen(fd_.get(), 8), 0);
        assert_int_equal(getsockname(fd_.get(), reinterpret_cast<sockaddr *>(&at_), &size_), 0);
    }
    [[nodiscard]] SparePort port() const { return {.key = 1, .port = ntohs(at_.sin_port)}; }
    [[nodiscard]] bool has_another() const {
        pollfd one{.fd = fd_.get(), .events = POLLIN, .revents = 0};
        return poll(&one, 1, 0) == 1;
    }
    [[nodiscard]] base::Fd takes() const {
        return base::Fd{accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC)};
    }

private:
    base::Fd fd_{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    sockaddr_in at_{
        .sin_family = AF_INET, .sin_port = 0, .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
    socklen_t size_ = sizeof(at_);
};

void a_silent_port_fails_after_a_time(void **) {
    const base::Fd events{epoll_create1(EPOLL_CLOEXEC)};
    const Silent silent;
    Attempt attempt{std::chrono::milliseconds{20}};
    auto result = Attempt::Result::Later;
    while (result == Attempt::Result::Later) {
        result = attempt.advance(events.get(), connection(), name, silent.port());
    }
    assert_true(result == Attempt::Result::Fails);
}

// A crowd at the port may make the peer end it.
void a_connection_without_a_reply_is_tried_again(void **) {
    const base::Fd events{epoll_create1(EPOLL_CLOEXEC)};
    const Silent silent;
    Attempt attempt;
    for (int i = 0; i < 2; ++i) {
        while (!silent.has_another()) {
            assert_true(attempt.advance(events.get(), connection(), name, silent.port()) ==
                        Attempt::Result::Later);
        }
        const base::Fd ends_now = silent.takes();
    }
}

base::Fd stranger(std::uint16_t port) {
    base::Fd fd{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    const sockaddr_in to{.sin_family = AF_INET,
                         .sin_port = htons(port),
                         .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)},
                         .sin_zero = {}};
    assert_int_equal(connect(fd.get(), reinterpret_cast<const sockaddr *>(&to), sizeof(to)), 0);
    return fd;
}

// The first of many that say nothing are closed, and who greets is served.
void strangers_that_say_nothing_make_room(void **) {
    Port port;
    std::list<base::Fd> strangers;
    for (int i = 0; i < 80; ++i) {
        strangers.push_back(stranger(port.own.port));
        assert_int_equal(send(strangers.back().get(), "hello", 5, MSG_NOSIGNAL), 5);
        (void)port.serve(Reply::Taken);
    }
    assert_int_equal(port.greetings, 0);
    pollfd first{.fd = strangers.front().get(), .events = POLLRDHUP, .revents = 0};
    assert_int_equal(poll(&first, 1, -1), 1);
    pollfd last{.fd = strangers.back().get(), .events = POLLRDHUP, .revents = 0};
    assert_int_equal(poll(&last, 1, 0), 0);
    assert_true(meet(port, Reply::Taken) == Attempt::Result::Goes);
}

// The agent does its other work between two parts of a crowd, and reads whoever came first.
void a_crowd_is_served_in_parts(void **) {
    enum { crowd = 150, most_turns = 10 };
    Port port;
    const base::Fd first = stranger(port.own.port);
    const Greeting greeting{.name = name, .key = port.own.key, .side = 1};
    assert_int_equal(send(first.get(), &greeting, sizeof(greeting), MSG_NOSIGNAL), sizeof(greeting));
    std::list<base::Fd> strangers;
    for (int i = 0; i < crowd; ++i) {
        strangers.push_back(stranger(port.own.port));
    }
    assert_true(port.serve(Reply::Taken));
    assert_int_equal(port.greetings, 1);
    int turns = 1;
    while (port.serve(Reply::Taken)) {
        assert_in_range(++turns, 2, most_turns);
    }
    assert_int_equal(turns, 2);
    pollfd oldest{.fd = strangers.front().get(), .events = POLLRDHUP, .revents = 0};
    assert_int_equal(poll(&oldest, 1, -1), 1);
    pollfd newest{.fd = strangers.back().get(), .events = POLLRDHUP, .revents = 0};
    assert_int_equal(poll(&newest, 1, 0), 0);
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(who_is_taken_goes_on),
        cmocka_unit_test(who_is_refused_fails),
        cmocka_unit_test(who_is_told_to_wait_waits),
        cmocka_unit_test(nobody_at_the_port_fails),
        cmocka_unit_test(a_silent_port_fails_after_a_time),
        cmocka_unit_test(a_connection_without_a_reply_is_tried_again),
        cmocka_unit_test(strangers_that_say_nothing_make_room),
        cmocka_unit_test(a_crowd_is_served_in_parts),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
