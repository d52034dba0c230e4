// SPDX-License-Identifier: BSD-3-Clause
// Peers of these streams begin wrongly, send nothing, or send too much.
#include <malloc.h>
#include <poll.h>
#include <rpma/rsocket.h>

#include <cerrno>
#include <chrono>

#include "raw_peer.hpp"

// This comes last, because it asserts.
#include "../base/check.hpp"

namespace {

using stream::Hello;
using stream::Op;
using test::RawPeer;

constexpr Hello good{.big_endian = false,
                     .credits = 16,
                     .slots = 0,
                     .list = {.address = 0x10000, .key = 1, .length = 2},
                     .data = {.address = 0x20000, .key = 1, .length = 1000}};

std::vector<std::byte> bytes_of(const Hello &hello) {
    const auto bytes = encode(hello);
    return {bytes.begin(), bytes.end()};
}

// Lets both ends continue until one more call returns something else than EAGAIN, and returns that.
template <typename Call>
ssize_t result_of(RawPeer &peer, Call call) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds{40};
    while (true) {
        (void)peer.step();
        const ssize_t result = call();
        if (result >= 0 || errno != EAGAIN) {
            return result;
        }
        assert_true(std::chrono::steady_clock::now() < deadline);
    }
}

void expect_end(const std::vector<std::byte> &data, int error) {
    for (const auto side : {RawPeer::Side::Asks, RawPeer::Side::IsAsked}) {
        auto ends = test::connect_ends(side, 4096);
        RawPeer peer{test::device(), side, std::move(ends.peer), data};
        char byte = 0;
        const ssize_t result = result_of(peer, [&] { return rrecv(ends.stream, &byte, 1, 0); });
        assert_int_equal(result, -1);
        assert_int_equal(errno, error);
        assert_int_equal(rclose(ends.stream), 0);
    }
}

void private_data_that_is_none(void **) {
    std::vector<std::byte> version = bytes_of(good);
    version[0] = std::byte{2};
    expect_end(version, ENOTSUP);
    expect_end({std::byte{1}}, EPROTO);
    std::vector<std::byte> shorter = bytes_of(good);
    shorter.pop_back();
    expect_end(shorter, EPROTO);
    for (const auto change :
         {+[](Hello &hello) { hello.credits = 0; }, +[](Hello &hello) { hello.list.length = 1; },
          +[](Hello &hello) { hello.list.length = 0; }, +[](Hello &hello) { hello.data.length = 0; },
          +[](Hello &hello) { hello.data.address = UINT64_MAX - 10; },
          +[](Hello &hello) { hello.list.address = UINT64_MAX - 10; }}) {
        Hello bad = good;
        change(bad);
        expect_end(bytes_of(bad), EPROTO);
    }
}

// The private data names memory that the peer does not have, so its device refuses the first write there.
void private_data_that_lies(void **) {
    auto ends = test::connect_ends(RawPeer::Side::Asks, 4096);
    RawPeer peer{test::device(), RawPeer::Side::Asks, std::move(ends.peer), bytes_of(good)};
    char byte = 0;
    assert_int_equal(result_of(peer, [&] { return rrecv(ends.stream, &byte, 1, 0); }), -1);
    assert_true(errno == ECONNRESET || errno == EPROTO);
    assert_int_equal(rclose(ends.stream), 0);
}

// The private data is longer than a Hello, because some devices add bytes.
void private_data_that_is_longer(void **) {
    std::vector<std::byte> longer = bytes_of(good);
    longer.resize(100);
    auto ends = test::connect_ends(RawPeer::Side::Asks, 4096);
    RawPeer peer{test::device(), RawPeer::Side::Asks, std::move(ends.peer), longer};
    while (!peer.is_established() && peer.step()) {
        char byte = 0;
        (void)rrecv(ends.stream, &byte, 1, 0);
    }
    assert_true(peer.is_established());
    assert_int_equal(rclose(ends.stream), 0);
}

struct Pair {
    explicit Pair(RawPeer::Side side)
        : ends{test::connect_ends(side, 4096)}, peer{test::device(), side, std::move(ends.peer)} {
        char byte = 0;
        while (!peer.is_established()) {
            assert_true(peer.step());
            assert_int_equal(rrecv(ends.stream, &byte, 1, 0), -1);
            assert_true(errno == EAGAIN || errno == ENOTCONN);
        }
    }
    ~Pair() { assert_int_equal(rclose(ends.stream), 0); }
    Pair(const Pair &) = delete;
    Pair &operator=(const Pair &) = delete;
    test::Ends ends;
    RawPeer peer;
};

// The peer never gives a credit or a window. The stream sends as much as it may. The rest
// does not block, and closing does not wait.
void a_peer_that_gives_nothing(void **) {
    for (const auto side : {RawPeer::Side::Asks, RawPeer::Side::IsAsked}) {
        Pair pair{side};
        const std::vector<char> bytes(100'000);
        std::size_t sent = 0;
        const auto send = [&] { return rsend(pair.ends.stream, bytes.data(), bytes.size(), MSG_NOSIGNAL); };
        for (ssize_t count = result_of(pair.peer, send); count > 0; count = send()) {
            sent += static_cast<std::size_t>(count);
        }
        assert_int_equal(errno, EAGAIN);
        assert_int_equal(sent, pair.peer.half());
        pollfd one{.fd = pair.ends.stream, .events = POLLIN | POLLOUT, .revents = 0};
        assert_int_equal(rpoll(&one, 1, 50), 0);
    }
}

// The peer sends words that take no credit, faster than the stream takes them. The device holds back those
// without a receive, and no word is lost.
void words_without_an_end(void **) {
    Pair pair{RawPeer::Side::Asks};
    const auto in_use = [] { return mallinfo2().uordblks + mallinfo2().hblkhd; };
    const std::size_t before = in_use();
    for (int round = 0; round < 200; ++round) {
        while (!pair.peer.is_ready()) {
            assert_true(pair.peer.step());
            pollfd one{.fd = pair.ends.stream, .events = POLLIN, .revents = 0};
            assert_int_equal(rpoll(&one, 1, 0), 0);
        }
        for (int i = 0; i < 200; ++i) {
            pair.peer.word(Op::Control, 1);
        }
        pair.peer.send();
        assert_true(in_use() < before + 1024 * 1024);
    }
    while (!pair.peer.is_ready()) {
        assert_true(pair.peer.step());
    }
    pair.peer.data(1);
    pair.peer.send();
    char byte = 1;
    assert_int_equal(result_of(pair.peer, [&] { return rrecv(pair.ends.stream, &byte, 1, 0); }), 1);
    assert_int_equal(byte, static_cast<char>(RawPeer::pattern(0)));
}

// Words after an end are no part of the stream.
void words_after_the_end(void **) {
    for (const std::uint32_t how : {2U, 0U}) {
        Pair pair{RawPeer::Side::Asks};
        pair.peer.data(10);
        pair.peer.word(Op::Control, how);
        pair.peer.data(10);
        pair.peer.send();
        std::array<char, 100> bytes{};
        const auto receive = [&] { return rrecv(pair.ends.stream, bytes.data(), bytes.size(), 0); };
        assert_int_equal(result_of(pair.peer, receive), 10);
        assert_int_equal(result_of(pair.peer, receive), 0);
    }
}

// A peer that does not know of the end yet still keeps the rules.
void words_on_their_way_at_the_end(void **) {
    Pair pair{RawPeer::Side::Asks};
    pair.peer.data(10);
    pair.peer.send();
    pollfd one{.fd = pair.ends.stream, .events = POLLIN, .revents = 0};
    assert_int_equal(rpoll(&one, 1, 20'000), 1);
    assert_int_equal(rshutdown(pair.ends.stream, SHUT_RDWR), 0);
    one.events = POLLRDHUP;
    assert_int_equal(rpoll(&one, 1, 20'000), 1);
    while (!pair.peer.is_ready()) {
        assert_true(pair.peer.step());
    }
    pair.peer.data(10);
    pair.peer.send();
    for (int i = 0; i < 20; ++i) {  // while the words come
        (void)rpoll(&one, 1, 0);
        assert_int_equal(one.revents & POLLERR, 0);
        (void)poll(nullptr, 0, 1);
    }
    int error = -1;
    socklen_t length = sizeof(error);
    assert_int_equal(rgetsockopt(pair.ends.stream, SOL_SOCKET, SO_ERROR, &error, &length), 0);
    assert_int_equal(error, 0);
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(private_data_that_is_none),     cmocka_unit_test(private_data_that_lies),
        cmocka_unit_test(private_data_that_is_longer),   cmocka_unit_test(a_peer_that_gives_nothing),
        cmocka_unit_test(words_without_an_end),          cmocka_unit_test(words_after_the_end),
        cmocka_unit_test(words_on_their_way_at_the_end),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
