// SPDX-License-Identifier: BSD-3-Clause
// See the header.
#include "contract.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <random>
#include <thread>
#include <vector>

#include "../../loopback.hpp"
#include "base/fd.hpp"
#include "persist/guard.hpp"
#include "soft/link/memory_link.hpp"
#include "soft/link/multipath_link.hpp"
#include "soft/link/tcp_link.hpp"

// Last, as it wants.
#include "../base/fixture.hpp"

namespace test {

namespace {

using soft::Link;
using State = Link::Received::State;
using Clock = std::chrono::steady_clock;

constexpr int patience_ms = 40'000;

Links (*make_links)() = nullptr;

struct FreshLinks : Links {
    FreshLinks() : Links{make_links()} {}
};

// Asks as a user that waits: the link may be ready already, otherwise its descriptor tells.
bool is_ready(Link &link, soft::Interest wanted, int timeout_ms = 0) {
    (void)link.want(wanted);
    if (!link.rest()) {
        return true;
    }
    const soft::Interest watched = link.watched(wanted);
    pollfd one{.fd = link.descriptor(), .events = 0, .revents = 0};
    one.events = static_cast<short>((watched.readable ? POLLIN : 0) | (watched.writable ? POLLOUT : 0));
    if (poll(&one, 1, timeout_ms) != 1) {
        return false;
    }
    link.reported();
    return true;
}

constexpr soft::Interest to_read{.readable = true};
constexpr soft::Interest to_write{.writable = true};

void wait_until(const auto &done) {
    const auto end = Clock::now() + std::chrono::milliseconds{patience_ms};
    while (!done()) {
        assert_true(Clock::now() < end);
        std::this_thread::yield();
    }
}

// Cuts the bytes into adjacent parts.
std::vector<iovec> pieces_of(std::span<std::byte> bytes, std::minstd_rand &dice) {
    std::vector<iovec> pieces;
    while (!bytes.empty() && pieces.size() < 7) {
        const std::size_t size = std::min<std::size_t>(bytes.size(), 1 + dice() % 3000);
        pieces.push_back({.iov_base = bytes.data(), .iov_len = size});
        bytes = bytes.subspan(size);
    }
    return pieces;
}

// Returns how many bytes the link took until it reported, in both ways, that it was full.
std::size_t fill(Link &link) {
    const Bytes some(65'536);
    std::size_t taken = 0;
    while (link.ready().writable || is_ready(link, to_write)) {
        const Link::Sent sent = send(link, some);
        assert_int_equal(sent.error, 0);
        taken += sent.bytes;
    }
    return taken;
}

// Bytes that are sent in pieces arrive in order, in whatever pieces they are received.
void bytes_keep_their_order(FreshLinks &links) {
    auto &[here, there] = links;
    std::minstd_rand dice{7};
    Bytes all = pattern(500'000, 1);
    for (const bool forth : {true, false}) {
        Link &from = forth ? *here : *there;
        Link &to = forth ? *there : *here;
        Bytes arrived(all.size());
        std::size_t taken = 0;
        std::size_t got = 0;
        while (got < all.size()) {
            if (taken < all.size()) {
                const Link::Sent sent = from.send(pieces_of(std::span{all}.subspan(taken), dice));
                assert_int_equal(sent.error, 0);
                taken += sent.bytes;
            }
            const auto received = to.receive(pieces_of(std::span{arrived}.subspan(got), dice));
            assert_true(received.state == State::More || received.state == State::Drained);
            got += received.bytes;
            assert_true(got <= taken);
        }
        assert_same_bytes(arrived, all);
    }
}

void a_full_link_says_when_it_takes_more(FreshLinks &links) {
    auto &[here, there] = links;
    std::size_t taken = fill(*here);
    assert_true(here->undelivered());
    Bytes arrived;
    while (!here->ready().writable) {
        (void)receive(*there, arrived, 16'384);
    }
    assert_true(is_ready(*here, to_write));
    taken += send(*here, Bytes(1)).bytes;
    while (arrived.size() < taken) {
        (void)receive(*there, arrived, 16'384);
    }
    wait_until([&] {
        (void)there->rest();
        return !here->undelivered();
    });
}

void a_limited_link_is_full_sooner(FreshLinks &links) {
    auto &[here, there] = links;
    Links other = make_links();
    here->limit_unsent(4096);
    assert_true(fill(*here) < fill(*other.here));
}

// Each epoll set stands for another thread that takes the link over.
void readiness_is_level_triggered(FreshLinks &links) {
    auto &[here, there] = links;
    const auto is_seen = [&there] {
        if (!there->want(to_read) || !there->rest()) {
            return true;
        }
        const base::Fd set{epoll_create1(EPOLL_CLOEXEC)};
        epoll_event event{.events = EPOLLIN, .data = {.ptr = nullptr}};
        assert_int_equal(epoll_ctl(set.get(), EPOLL_CTL_ADD, there->descriptor(), &event), 0);
        const bool seen = epoll_wait(set.get(), &event, 1, 0) == 1;
        assert_int_equal(epoll_wait(set.get(), &event, 1, 0) == 1, seen);
        assert_int_equal(there->ready().readable, seen);
        return seen;
    };
    assert_false(is_seen());
    assert_int_equal(send(*here, pattern(10, 1)).error, 0);
    assert_true(is_ready(*there, to_read, patience_ms));
    Bytes arrived;
    (void)receive(*there, arrived, 1);
    assert_true(is_seen());
    while (arrived.size() < 10) {
        (void)receive(*there, arrived, 9);
    }
    assert_false(is_seen());
    here->finish();
    assert_true(is_ready(*there, to_read, patience_ms));
    for (int time = 0; time < 2; ++time) {
        assert_true(is_seen());
        assert_true(receive(*there, arrived, 1).state == State::Ended);
    }
    assert_int_equal(arrived.size(), 10);
}

void unread_bytes_are_counted(FreshLinks &links) {
    auto &[here, there] = links;
    assert_int_equal(there->unread_bytes(), 0);
    std::size_t taken = 0;
    while (taken < 100) {
        taken += send(*here, Bytes(100 - taken)).bytes;
    }
    wait_until([&there] { return there->unread_bytes() == 100; });
    Bytes arrived;
    (void)receive(*there, arrived, 1);
    assert_int_equal(there->unread_bytes(), 99);
}

void the_end_follows_the_bytes(FreshLinks &links) {
    auto &[here, there] = links;
    assert_int_equal(send(*here, pattern(1, 3)).bytes, 1);
    assert_false(there->ready().ended);
    here->finish();
    wait_until([&there] { return there->ready().ended; });
    assert_int_equal(send(*here, Bytes(1)).error, EPIPE);
    Bytes arrived;
    assert_true(receive_rest(*there, arrived).state == State::Ended);
    assert_same_bytes(arrived, pattern(1, 3));
    // The other direction continues.
    assert_int_equal(send(*there, pattern(1, 4)).bytes, 1);
    there->finish();
    arrived.clear();
    assert_true(receive_rest(*here, arrived).state == State::Ended);
    assert_same_bytes(arrived, pattern(1, 4));
    assert_int_equal(here->failure(), 0);
}

void an_abort_ends_both_directions(FreshLinks &links) {
    auto &[here, there] = links;
    assert_int_equal(send(*here, pattern(1, 3)).bytes, 1);
    here->abort();
    Bytes arrived;
    assert_true(receive_rest(*there, arrived).state == State::Ended);
    assert_int_equal(arrived.size(), 1);
    assert_true(send(*here, Bytes(1)).error != 0);
    assert_true(is_ready(*here, to_read));
    (void)receive_rest(*here, arrived);
    assert_int_equal(arrived.size(), 1);
}

void an_abandoned_link_fails_at_the_peer(FreshLinks &links) {
    auto &[here, there] = links;
    (void)fill(*here);
    assert_true(here->undelivered());
    here->abandon();
    here.reset();
    Bytes arrived;
    wait_until([&there] { return there->ready().ended; });
    const auto last = receive_rest(*there, arrived);
    assert_true(last.state == State::Failed);
    assert_int_equal(last.error, ECONNRESET);
    assert_true(send(*there, Bytes(1)).error != 0);
}

void a_failure_is_told_once(FreshLinks &links) {
    auto &[here, there] = links;
    here->abandon();
    here.reset();
    wait_until([&there] { return there->ready().ended; });
    assert_int_equal(there->failure(), ECONNRESET);
    assert_int_equal(there->failure(), 0);
}

void what_is_discarded_is_gone(FreshLinks &links) {
    auto &[here, there] = links;
    std::size_t taken = 0;
    while (taken < 30'000) {
        taken += send(*here, Bytes(30'000 - taken)).bytes;
    }
    wait_until([&there] {
        assert_false(there->discard());
        return there->unread_bytes() == 0;
    });
    here->finish();
    assert_true(is_ready(*there, to_read, patience_ms));
    wait_until([&there] { return there->discard(); });
}

void a_fresh_link_takes_a_few_bytes(FreshLinks &links) {
    auto &[here, there] = links;
    const Bytes all = pattern(600, 9);
    wait_until([&] { return here->send_all(all).has_value(); });
    Bytes arrived;
    while (arrived.size() < all.size()) {
        (void)receive(*there, arrived, all.size());
    }
    assert_same_bytes(arrived, all);
    const auto sent = here->send_all(Bytes(16 << 20));
    assert_false(sent.has_value());
    assert_int_equal(sent.error().number, ENOBUFS);
}

// The link continues: no byte of it is lost with the memory.
void memory_may_be_gone(FreshLinks &links) {
    auto &[here, there] = links;
    persist::install_guard();  // in front of cmocka's handler
    constexpr std::size_t page = 4096;
    void *const gone = mmap(nullptr, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(gone, MAP_FAILED);
    const iovec nowhere{.iov_base = gone, .iov_len = page};
    wait_until([&] {
        const Link::Sent sent = here->send({&nowhere, 1});
        assert_int_equal(sent.bytes, 0);
        return sent.error == EFAULT;
    });
    assert_int_equal(send(*here, pattern(1, 5)).bytes, 1);
    assert_true(is_ready(*there, to_read, patience_ms));
    wait_until([&] {
        const auto received = there->receive({&nowhere, 1});
        assert_int_equal(received.bytes, 0);
        return received.state == State::Failed && received.error == EFAULT;
    });
    munmap(gone, page);
    Bytes arrived;
    (void)receive(*there, arrived, 1);
    assert_same_bytes(arrived, pattern(1, 5));
}

void a_link_has_descriptors_and_a_segment(FreshLinks &links) {
    auto &[here, there] = links;
    assert_true(here->max_segment() > 0);
    int family = AF_UNSPEC;
    socklen_t length = sizeof(family);
    assert_int_equal(getsockopt(here->descriptor(), SOL_SOCKET, SO_DOMAIN, &family, &length), 0);
    assert_int_equal(family, AF_INET);
    assert_true(here->own_lent_descriptor());
    assert_true(is_ready(*here, to_write));
    assert_int_equal(send(*here, pattern(1, 6)).bytes, 1);
    Bytes arrived;
    (void)receive(*there, arrived, 1);
    assert_int_equal(arrived.size(), 1);
    base::Fd taken = here->take_descriptor();
    here.reset();
    assert_false(there->ready().ended);
    taken.reset();
    assert_true(receive_rest(*there, arrived).state == State::Ended);
}

}  // namespace

namespace {

struct Sockets {
    base::Fd here;
    base::Fd there;
};

Sockets connected_sockets(int protocol) {
    sockaddr_in address = loopback(0);
    socklen_t size = sizeof(address);
    auto *const any = reinterpret_cast<sockaddr *>(&address);
    const base::Fd listener{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, protocol)};
    base::Fd connected{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, protocol)};
    if (!listener && protocol == IPPROTO_MPTCP) {
        skip();  // the kernel has none
    }
    assert_true(listener && connected);
    assert_int_equal(bind(listener.get(), any, size), 0);
    assert_int_equal(listen(listener.get(), 1), 0);
    assert_int_equal(getsockname(listener.get(), any, &size), 0);
    assert_int_equal(connect(connected.get(), any, size), 0);
    base::Fd accepted{accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)};
    assert_true(static_cast<bool>(accepted));
    for (const int fd : {connected.get(), accepted.get()}) {
        assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    }
    return {.here = std::move(connected), .there = std::move(accepted)};
}

}  // namespace

Links tcp_links() {
    auto [here, there] = connected_sockets(0);
    return {.here = std::make_unique<soft::TcpLink>(std::move(here)),
            .there = std::make_unique<soft::TcpLink>(std::move(there))};
}

Links multipath_links(std::chrono::milliseconds silence) {
    auto [here, there] = connected_sockets(IPPROTO_MPTCP);
    return {.here = soft::link_on(std::move(here), silence),
            .there = soft::link_on(std::move(there), silence)};
}

Links memory_links(base::Fd *file) {
    Links tcp = tcp_links();
    auto made = soft::SharedRings::make();
    assert_true(made.has_value());
    auto joined = soft::SharedRings::join(base::Fd{fcntl(made->file(), F_DUPFD_CLOEXEC, 0)});
    assert_true(joined.has_value());
    if (file != nullptr) {
        *file = base::Fd{fcntl(made->file(), F_DUPFD_CLOEXEC, 0)};
    }
    made->close_file();
    return {.here = std::make_unique<soft::MemoryLink>(std::move(*made), std::move(tcp.here)),
            .there = std::make_unique<soft::MemoryLink>(std::move(*joined), std::move(tcp.there))};
}

Links small_memory_links() {
    static const std::vector<soft::SharedRings> others = [] {
        std::vector<soft::SharedRings> made;
        for (int number = 0; number < soft::SharedRings::most_large; ++number) {
            auto one = soft::SharedRings::make();
            assert_true(one.has_value());
            made.push_back(std::move(*one));
        }
        return made;
    }();
    return memory_links();
}

Link::Sent send(Link &link, std::span<const std::byte> bytes) {
    const iovec piece{.iov_base = const_cast<std::byte *>(bytes.data()), .iov_len = bytes.size()};
    Link::Sent sent;
    do {
        sent = link.send({&piece, 1});
    } while (sent.bytes == 0 && sent.error == 0 && link.ready().writable);
    return sent;
}

Link::Received receive(Link &link, Bytes &bytes, std::size_t most) {
    const std::size_t before = bytes.size();
    bytes.resize(before + most);
    const iovec piece{.iov_base = bytes.data() + before, .iov_len = most};
    Link::Received received;
    do {
        assert_true(is_ready(link, to_read, patience_ms));
        received = link.receive({&piece, 1});
    } while (received.state == State::Drained && received.bytes == 0);
    bytes.resize(before + received.bytes);
    return received;
}

Link::Received receive_rest(Link &link, Bytes &bytes) {
    while (true) {
        const auto received = receive(link, bytes, 65'536);
        if (received.state == State::Ended || received.state == State::Failed) {
            return received;
        }
    }
}

int run_link_contract(const char *name, Links (*make)()) {
    make_links = make;
    const CMUnitTest tests[] = {
        fixture_test(bytes_keep_their_order),
        fixture_test(a_full_link_says_when_it_takes_more),
        fixture_test(a_limited_link_is_full_sooner),
        fixture_test(readiness_is_level_triggered),
        fixture_test(unread_bytes_are_counted),
        fixture_test(the_end_follows_the_bytes),
        fixture_test(an_abort_ends_both_directions),
        fixture_test(an_abandoned_link_fails_at_the_peer),
        fixture_test(a_failure_is_told_once),
        fixture_test(what_is_discarded_is_gone),
        fixture_test(a_fresh_link_takes_a_few_bytes),
        fixture_test(memory_may_be_gone),
        fixture_test(a_link_has_descriptors_and_a_segment),
    };
    return cmocka_run_group_tests_name(name, tests, nullptr, nullptr);
}

}  // namespace test
