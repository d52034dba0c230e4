// SPDX-License-Identifier: BSD-3-Clause
// rsocket/listing: tests what other programs see of a program's rsockets.
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>

#include "../../child.hpp"
#include "base/fd.hpp"
#include "registry/known_listener.hpp"
#include "registry/reader.hpp"
// check.hpp comes last, because it has macros with everyday names.
#include "../base/check.hpp"

#include <rpma/rsocket.h>

namespace {

using registry::Kind;
using registry::Mode;
using registry::Phase;
using registry::Seen;
using registry::State;

void (*when_kernel_listens)(int socket) = nullptr;

std::optional<Seen> seen(int fd, pid_t process = getpid()) {
    std::optional<Seen> found;
    registry::read_all(registry::shared_folder, {geteuid()}, [&](const Seen &one) {
        if (one.process == process && one.description.fd == fd) {
            found = one;
        }
        return true;
    });
    return found;
}

State state_of(int fd) {
    const auto found = seen(fd);
    assert_true(found.has_value());
    return found->description.state;
}

struct Pair {
    int listener;
    int client;
    int server;
    sockaddr_in address;
};

sockaddr *name(Pair &pair) {
    return reinterpret_cast<sockaddr *>(&pair.address);
}

bool is_known(const Pair &pair) {
    sockaddr_storage address{};
    std::memcpy(&address, &pair.address, sizeof(pair.address));
    return registry::is_known_listener(address);
}

Pair listening() {
    Pair pair{.listener = rsocket(AF_INET, SOCK_STREAM, 0), .client = -1, .server = -1, .address = {}};
    assert_int_equal(state_of(pair.listener), State::Fresh);
    pair.address.sin_family = AF_INET;
    pair.address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(pair.address);
    assert_int_equal(rbind(pair.listener, name(pair), length), 0);
    assert_int_equal(rgetsockname(pair.listener, name(pair), &length), 0);
    assert_false(is_known(pair));
    assert_int_equal(rlisten(pair.listener, 4), 0);
    return pair;
}

Pair connected() {
    Pair pair = listening();
    pair.client = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    assert_int_equal(rconnect(pair.client, name(pair), sizeof(pair.address)), -1);
    assert_int_equal(errno, EINPROGRESS);
    assert_int_equal(seen(pair.client)->live.phase, Phase::Connecting);  // TCP on loopback is quick
    pair.server = raccept(pair.listener, nullptr, nullptr);
    assert_true(pair.server >= 0);
    assert_int_equal(state_of(pair.server), State::Connected);
    assert_int_equal(rfcntl(pair.server, F_SETFL, O_NONBLOCK), 0);
    std::array<pollfd, 2> both{{{.fd = pair.client, .events = POLLOUT, .revents = 0},
                                {.fd = pair.server, .events = POLLOUT, .revents = 0}}};
    while (both[0].revents == 0 || both[1].revents == 0) {
        assert_true(rpoll(both.data(), both.size(), 10000) > 0);
    }
    return pair;
}

void end(const Pair &pair) {
    for (const int fd : {pair.client, pair.server, pair.listener}) {
        if (fd >= 0) {
            assert_int_equal(rclose(fd), 0);
            assert_false(seen(fd).has_value());
        }
    }
}

void a_listener_is_known_until_it_is_closed(void **) {
    Pair pair = listening();
    const auto found = seen(pair.listener);
    assert_int_equal(found->description.state, State::Listening);
    assert_int_equal(found->description.local.v4.sin_port, pair.address.sin_port);
    assert_true(is_known(pair));
    end(pair);
    assert_false(is_known(pair));
}

bool was_known = false;

// A client may come as soon as the kernel listens, before rlisten returns.
void a_listener_is_known_when_clients_can_come(void **) {
    was_known = false;
    when_kernel_listens = [](int socket) {
        sockaddr_storage address{};
        socklen_t length = sizeof(address);
        assert_int_equal(getsockname(socket, reinterpret_cast<sockaddr *>(&address), &length), 0);
        was_known = registry::is_known_listener(address);
    };
    const Pair pair = listening();
    when_kernel_listens = nullptr;
    assert_true(was_known);
    end(pair);
}

// A socket that cannot listen is no listener.
void a_socket_that_could_not_listen_is_not_known(void **) {
    Pair pair = listening();
    const int second = rsocket(AF_INET, SOCK_STREAM, 0);
    const int reuse = 1;
    assert_int_equal(rsetsockopt(second, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof(reuse)), 0);
    if (rbind(second, name(pair), sizeof(pair.address)) == 0) {
        assert_int_equal(rlisten(second, 4), -1);
        assert_int_equal(errno, EADDRINUSE);
    }
    assert_int_equal(state_of(second), State::Fresh);
    assert_int_equal(rclose(second), 0);
    end(pair);
}

void a_stream_tells_its_ends_and_its_device(void **) {
    const Pair pair = connected();
    const auto client = seen(pair.client);
    const auto server = seen(pair.server);
    for (const auto &one : {client, server}) {
        assert_int_equal(one->description.state, State::Connected);
        assert_int_equal(one->description.mode, Mode::Rdma);
        assert_string_equal(one->description.device.data(), "soft_lo");
        assert_int_equal(one->live.phase, Phase::Established);
        assert_int_equal(one->live.thread, gettid());
        assert_true(one->live.granted_bytes != 0);
        assert_true(one->live.granted_messages != 0);
    }
    assert_int_equal(client->description.peer.v4.sin_port, pair.address.sin_port);
    assert_int_equal(server->description.local.v4.sin_port, pair.address.sin_port);
    assert_int_equal(client->description.local.v4.sin_port, server->description.peer.v4.sin_port);
    end(pair);
}

// The peer's program does not read. The sender has used up the window, and more attempts are the same stall.
void bytes_window_and_stalls_are_counted(void **) {
    const Pair pair = connected();
    std::array<char, 4096> bytes{};
    std::uint64_t sent = 0;
    const auto fill = [&] {
        for (ssize_t put = 1; put > 0; sent += put > 0 ? static_cast<std::uint64_t>(put) : 0) {
            put = rsend(pair.client, bytes.data(), bytes.size(), 0);
        }
    };
    // The peer's library takes messages when it is called, and gives credits back, until the window is full.
    auto client = seen(pair.client)->live;
    for (int round = 0; round < 1000 && client.granted_bytes != sent; ++round) {
        fill();
        (void)rrecv(pair.server, bytes.data(), 1, MSG_PEEK);
        pollfd one{.fd = pair.client, .events = POLLOUT, .revents = 0};
        (void)rpoll(&one, 1, 1);
        client = seen(pair.client)->live;
    }
    assert_int_equal(client.sent_bytes, sent);
    assert_int_equal(client.granted_bytes, sent);
    fill();  // in vain
    const std::uint64_t stalls = seen(pair.client)->live.stalls_for_peer;
    assert_true(stalls != 0);
    fill();
    assert_int_equal(seen(pair.client)->live.stalls_for_peer, stalls);
    std::uint64_t received = 0;
    while (received < sent) {
        pollfd one{.fd = pair.server, .events = POLLIN, .revents = 0};
        assert_int_equal(rpoll(&one, 1, 10000), 1);
        const ssize_t got = rrecv(pair.server, bytes.data(), bytes.size(), 0);
        assert_true(got > 0);
        received += static_cast<std::uint64_t>(got);
    }
    assert_int_equal(seen(pair.server)->live.received_bytes, sent);
    assert_int_equal(rsend(pair.client, "x", 1, 0), 1);
    client = seen(pair.client)->live;
    assert_int_equal(client.sent_bytes, sent + 1);
    assert_true(client.granted_bytes > client.sent_bytes);
    assert_true(client.granted_messages > client.sent_messages);
    end(pair);
}

void a_stream_that_broke_says_why(void **) {
    Pair pair = connected();
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    assert_int_equal(rsetsockopt(pair.server, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)), 0);
    assert_int_equal(rclose(pair.server), 0);
    pair.server = -1;
    pollfd one{.fd = pair.client, .events = POLLIN, .revents = 0};
    assert_int_equal(rpoll(&one, 1, 10000), 1);
    assert_int_equal(seen(pair.client)->live.phase, Phase::Over);
    assert_int_equal(seen(pair.client)->live.error, ECONNRESET);
    end(pair);
}

void datagrams_are_counted_too(void **) {
    Pair pair = listening();
    assert_int_equal(rclose(pair.listener), 0);
    pair.listener = -1;
    pair.server = rsocket(AF_INET, SOCK_DGRAM, 0);
    pair.client = rsocket(AF_INET, SOCK_DGRAM, 0);
    assert_int_equal(rbind(pair.server, name(pair), sizeof(pair.address)), 0);
    assert_int_equal(rconnect(pair.client, name(pair), sizeof(pair.address)), 0);
    assert_int_equal(rsend(pair.client, "12345", 5, 0), 5);
    std::array<char, 16> bytes{};
    assert_int_equal(rrecv(pair.server, bytes.data(), bytes.size(), 0), 5);
    const auto client = seen(pair.client);
    assert_int_equal(client->description.kind, Kind::Datagram);
    assert_int_equal(client->description.mode, Mode::Udp);
    assert_int_equal(client->description.peer.v4.sin_port, pair.address.sin_port);
    assert_int_equal(client->live.sent_bytes, 5);
    assert_int_equal(client->live.sent_messages, 1);
    assert_int_equal(seen(pair.server)->live.received_bytes, 5);
    end(pair);
}

// A child has the listener that it waits for in a file of its own, and nothing else that it inherited.
void a_forked_child_lists_the_listener_that_it_uses(void **) {
    const Pair pair = connected();
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    const pid_t child = test::fork_child();
    if (child == 0) {
        pollfd one{.fd = pair.listener, .events = POLLIN, .revents = 0};
        (void)rpoll(&one, 1, 0);
        (void)rfcntl(pair.listener, F_SETFL, O_NONBLOCK);
        (void)raccept(pair.listener, nullptr, nullptr);
        (void)!write(ends[1], "", 1);
        pause();
    }
    close(ends[1]);
    char byte = 0;
    assert_int_equal(read(ends[0], &byte, 1), 1);
    close(ends[0]);
    const auto listener = seen(pair.listener, child);
    assert_true(listener.has_value());
    assert_int_equal(listener->description.state, State::Listening);
    assert_false(seen(pair.client, child).has_value());
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, nullptr, 0), child);
    assert_false(seen(pair.listener, child).has_value());
    assert_int_equal(state_of(pair.listener), State::Listening);
    end(pair);
}

}  // namespace

// This function stands in front of libc's.
extern "C" int listen(int socket, int backlog) {
    const auto result = static_cast<int>(syscall(SYS_listen, socket, backlog));
    if (result == 0 && when_kernel_listens != nullptr) {
        when_kernel_listens(socket);
    }
    return result;
}

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(a_listener_is_known_until_it_is_closed),
        cmocka_unit_test(a_listener_is_known_when_clients_can_come),
        cmocka_unit_test(a_socket_that_could_not_listen_is_not_known),
        cmocka_unit_test(a_stream_tells_its_ends_and_its_device),
        cmocka_unit_test(bytes_window_and_stalls_are_counted),
        cmocka_unit_test(a_stream_that_broke_says_why),
        cmocka_unit_test(datagrams_are_counted_too),
        cmocka_unit_test(a_forked_child_lists_the_listener_that_it_uses),
    };
    return cmocka_run_group_tests_name("rsocket_listing", tests, nullptr, nullptr);
}
