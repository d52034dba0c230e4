// SPDX-License-Identifier: BSD-3-Clause
// Many peers take scarce resources and give nothing. The device serves others beside them. This program
// shortens the limits for all its tests. It has a network of its own, for peers of two hosts: 127.0.0.1 is
// the first, and 192.0.2.2 the second.
#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <deque>
#include <filesystem>
#include <string>
#include <string_view>
#include <thread>

#include "../../limits.hpp"
#include "base/log.hpp"
#include "soft/cm/channel.hpp"
#include "soft/datagram/lookup.hpp"

// These come last, because they assert.
#include "device.hpp"
#include "own_network.hpp"

namespace {

using namespace soft::wire;
using test::Bytes;
using test::Ends;
using test::Peer;

constexpr std::size_t handshakes = 16;
constexpr int drains = 8;

// Connects the peers, which send nothing. The device accepts each.
void add_silent(std::deque<Peer> &peers, test::Device &device, unsigned host, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
        peers.emplace_back().connect(device.port(), 0, host);
        device.work();
    }
}

std::size_t ended(std::deque<Peer> &peers) {
    return static_cast<std::size_t>(
        std::ranges::count_if(peers, [](Peer &peer) { return peer.has_ended(); }));
}

// The oldest silent peer gives way, though all have the address of the peer that sends a request.
void silent_peers_do_not_stop_a_listener(Ends &ends) {
    auto &[device, peer, other] = ends;
    std::deque<Peer> silent;
    for (int round = 0; round < 4; ++round) {
        add_silent(silent, device, 1, handshakes);
        (void)device.establish(peer, test::plain);
    }
    device.work_until([&] { return ended(silent) >= 3 * handshakes; });
    assert_true(ended(silent) <= 3 * handshakes + 1);
    assert_true(silent.front().has_ended());
    assert_false(silent.back().has_ended());
}

// A peer of another address keeps its place, however old it is.
void the_oldest_of_the_busiest_address_gives_way(Ends &ends) {
    auto &[device, peer, other] = ends;
    std::deque<Peer> few;
    std::deque<Peer> many;
    add_silent(few, device, 2, 3);
    add_silent(few, device, 3, 3);
    add_silent(many, device, 1, 4 * handshakes);
    device.work_until([&] { return ended(many) == 3 * handshakes + 6; });
    assert_int_equal(ended(few), 0);
    assert_true(std::all_of(many.begin(), many.begin() + static_cast<std::ptrdiff_t>(3 * handshakes + 6),
                            [](Peer &one) { return one.has_ended(); }));
    // Those peers may still send a request.
    few.front().send_frame(test::plain);
    device.accept(device.take_request());
    (void)few.front().receive_frame(MpaRole::Reply);
}

// A peer that sends a byte now and then does not keep its place. The device handles a whole request before
// its sender has to give way.
void who_drips_gives_way_and_who_asks_does_not(Ends &ends) {
    auto &[device, peer, other] = ends;
    const Bytes request = test::encoded(test::plain);
    std::deque<Peer> dripping;
    for (std::size_t i = 0; i < 2 * handshakes; ++i) {
        dripping.emplace_back().connect(device.port());
        for (std::size_t j = 0; j <= i; ++j) {
            if (i - j + 1 < request.size()) {
                (void)::send(dripping[j].socket(), &request[i - j], 1, MSG_NOSIGNAL);
            }
        }
        device.work();
    }
    device.work_until([&] { return ended(dripping) >= handshakes; });
    // All these peers ask at once, while every place is taken.
    std::deque<Peer> asking;
    for (std::size_t i = 0; i < handshakes; ++i) {
        asking.emplace_back().connect(device.port());
        asking.back().send_frame(test::plain);
    }
    for (std::size_t i = 0; i < asking.size(); ++i) {
        device.accept(device.take_request());
    }
    for (Peer &one : asking) {
        (void)one.receive_frame(MpaRole::Reply);
    }
}

// Connects peers that send requests, which the program does not fetch.
void add_asking(std::deque<Peer> &peers, const test::Device &device, unsigned host, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
        peers.emplace_back().connect(device.port(), 0, host);
        peers.back().send_frame(test::plain);
    }
}

// Waits until the device has ended `count` connections in its own thread, because
// the program fetches nothing meanwhile.
void await_ends(std::size_t count, std::deque<Peer> &some, std::deque<Peer> &others) {
    const auto deadline = base::Clock::now() + std::chrono::seconds{40};
    while (ended(some) + ended(others) < count) {
        assert_true(base::Clock::now() < deadline);
    }
}

// When the program does not fetch requests, the newest request of the
// address with the most requests gives way.
void requests_of_the_busiest_address_are_rejected(Ends &ends) {
    auto &[device, peer, other] = ends;
    constexpr std::size_t kept = 8;
    const test::ChangedLimit fewer{test::limits().max_unfetched_requests, static_cast<int>(kept)};
    std::deque<Peer> few;
    std::deque<Peer> many;
    add_asking(many, device, 1, kept + 1);
    await_ends(1, few, many);  // there is no room
    add_asking(few, device, 2, 2);
    add_asking(few, device, 3, 1);
    await_ends(4, few, many);
    assert_int_equal(ended(few), 0);
    assert_false(many.front().has_ended());
    for (std::size_t i = 0; i < kept; ++i) {
        device.accept(device.take_request());
    }
    for (Peer &one : few) {
        (void)one.receive_frame(MpaRole::Reply);
    }
    while (const auto event = device.next_event()) {
        assert_int_equal(event->type, RDMA_CM_EVENT_ESTABLISHED);
    }
}

// Peers that are accepted, and do not send the first FPDU that they promised, are start-ups too: the oldest
// of the address that has most gives way. A peer of another address keeps its place, and the newest ones do.
void accepted_peers_that_do_not_begin_give_way(Ends &ends) {
    auto &[device, peer, other] = ends;
    const MpaFrame promising{.peer_to_peer = true, .rtr_write = true, .ird = 4, .ord = 4};
    const auto add_accepted = [&](std::deque<Peer> &peers, unsigned host, std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) {
            peers.emplace_back().connect(device.port(), 0, host);
            peers.back().send_frame(promising);
            device.accept(device.take_request());
            (void)peers.back().receive_frame(MpaRole::Reply);
        }
    };
    std::deque<Peer> few;
    std::deque<Peer> many;
    add_accepted(few, 2, 3);
    add_accepted(many, 1, 3 * handshakes);
    constexpr std::size_t surplus = 2 * handshakes + 3;
    device.work_until([&] { return ended(many) >= surplus; });
    assert_int_equal(ended(few), 0);
    assert_int_equal(ended(many), surplus);
    assert_true(std::all_of(many.begin(), many.begin() + static_cast<std::ptrdiff_t>(surplus),
                            [](Peer &one) { return one.has_ended(); }));
    for (Peer *const begins : {&few.front(), &many.back()}) {
        begins->send(test::ready_to_receive());
        (void)device.wait_for(RDMA_CM_EVENT_ESTABLISHED);
    }
    for (std::size_t i = 0; i < surplus; ++i) {
        assert_int_equal(device.wait_for(RDMA_CM_EVENT_CONNECT_ERROR).status, -ECONNRESET);
    }
}

// A request costs a look at few of the connections that its address lets wait.
void a_listener_looks_at_few_accepted_peers(void **) {
    const soft::OwnChannel channel{soft::EventChannel::create().value()};
    constexpr base::Origin busy{1};
    constexpr base::Origin quiet{2};
    constexpr std::uint32_t most = soft::EventChannel::most_looked_at;
    channel->await({.qp_num = 0, .origin = quiet});
    for (std::uint32_t number = 1; number <= 2 * most; ++number) {
        channel->await({.qp_num = number, .origin = busy});
    }
    const auto some = channel->newest_awaited_from(busy);
    assert_int_equal(some.size(), most);
    assert_int_equal(some.front().qp_num, most + 1);
    assert_int_equal(some.back().qp_num, 2 * most);
    assert_int_equal(channel->newest_awaited_from(quiet).size(), 1);
    assert_int_equal(channel->forget_surplus_awaited()->qp_num, 1);
    assert_int_equal(channel->forget_awaited(0)->qp_num, 0);
    assert_false(channel->forget_awaited(0).has_value());
}

std::atomic<bool> line_names_limit{false};

// NOLINTNEXTLINE(cert-dcl50-cpp): the signature is librpma's log function.
void look_for_limit(int level, const char *, int, const char *, const char *format, ...) {
    std::array<char, 512> text{};
    va_list arguments;
    va_start(arguments, format);
    (void)std::vsnprintf(text.data(), text.size(), format, arguments);
    va_end(arguments);
    const std::string_view line{text.data()};
    if (level == static_cast<int>(base::LogLevel::Warning) &&
        line.starts_with("no connection with 127.0.0.1:") &&
        line.ends_with(": the program has not fetched the 2 requests before\n")) {
        line_names_limit = true;
    }
}

void a_refusal_names_its_limit(Ends &ends) {
    auto &[device, peer, other] = ends;
    const test::ChangedLimit fewer{test::limits().max_unfetched_requests, 2};
    std::deque<Peer> asking;
    softrdma_set_log(look_for_limit, static_cast<int>(base::LogLevel::Warning));
    add_asking(asking, device, 1, 3);
    const auto deadline = base::Clock::now() + std::chrono::seconds{40};
    while (!line_names_limit && base::Clock::now() < deadline) {
        std::this_thread::yield();
    }
    test::watch_log();
    assert_true(line_names_limit);
    for (int i = 0; i < 2; ++i) {
        device.accept(device.take_request());
    }
}

// The log has a line for each of the first events of a flood, and one line with the number of all others.
void a_flood_is_few_lines(Ends &ends) {
    auto &[device, peer, other] = ends;
    std::deque<Peer> silent;
    add_silent(silent, device, 1, handshakes);
    (void)test::logged();
    test::log_lines_of_place() = 4;
    add_silent(silent, device, 1, 40);
    device.work_until([&] { return ended(silent) == 40; });
    // The window of the places may have begun before this test.
    assert_true(test::logged().warnings <= 4);
    base::tell_withheld_lines(base::Clock::now(), true);
    assert_int_equal(test::logged().warnings, 1);
}

// Connects a peer that has little room for received bytes, and never reads them.
rdma_cm_id *add_deaf(std::deque<Peer> &peers, test::Device &device, unsigned host) {
    Peer &peer = peers.emplace_back();
    peer.connect(device.port(), 0, host, 4096);
    peer.send_frame(test::plain);
    rdma_cm_id *const id = device.take_request();
    device.accept(id);
    (void)peer.receive_frame(MpaRole::Reply);
    peer.send(test::ready_to_receive());
    (void)device.wait_for(RDMA_CM_EVENT_ESTABLISHED, id);
    for (std::uint64_t i = 0; i < 32; ++i) {
        device.post(id, IBV_WR_SEND, i, 0, test::Device::memory_bytes);
    }
    device.forget_completions();
    return id;
}

// Returns how many bytes the kernel keeps that this process sent from a port and that the peer has not taken.
std::size_t unread_bytes(std::uint16_t from) {
    std::size_t all = 0;
    for (const auto &entry : std::filesystem::directory_iterator{"/proc/self/fd"}) {
        const int fd = std::stoi(entry.path().filename());
        sockaddr_in here{};
        socklen_t length = sizeof(here);
        sockaddr_in there{};
        socklen_t length_there = sizeof(there);
        int bytes = 0;
        if (getsockname(fd, reinterpret_cast<sockaddr *>(&here), &length) == 0 &&
            here.sin_family == AF_INET && ntohs(here.sin_port) == from &&
            getpeername(fd, reinterpret_cast<sockaddr *>(&there), &length_there) == 0 &&
            ioctl(fd, SIOCOUTQ, &bytes) == 0) {
            all += static_cast<std::size_t>(bytes);
        }
    }
    return all;
}

// Each of these many peers could pin megabytes. Peers of another address have their own part.
void peers_that_do_not_read_pin_a_bound(Ends &ends) {
    auto &[device, peer, other] = ends;
    constexpr std::size_t mebibyte = 1 << 20;
    constexpr std::size_t count = 32;
    std::deque<Peer> deaf;
    std::size_t pinned = 0;
    {
        const test::ChangedLimit fewer{test::limits().unread_bytes_of_origin, 4 * mebibyte};
        for (std::size_t i = 0; i < count; ++i) {
            (void)add_deaf(deaf, device, 1);
        }
        // The engine's thread may be sending what the device held back.
        device.work_until([&] { return (pinned = unread_bytes(device.port())) > mebibyte; });
        // A send may go beyond its part by as much as the kernel takes in one piece.
        assert_true(pinned < 4 * mebibyte + 2 * count * soft::limits::least_unread_bytes);
    }
    (void)add_deaf(deaf, device, 2);
    device.work_until([&] { return unread_bytes(device.port()) > pinned + mebibyte; });
}

// The peer's first FPDU writes with an invalid key, and the device ends the connection for it.
void guess_a_key(test::Device &device, unsigned host) {
    Peer peer;
    peer.connect(device.port(), 0, host);
    peer.send_frame(test::plain);
    rdma_cm_id *const id = device.take_request();
    device.accept(id);
    (void)peer.receive_frame(MpaRole::Reply);
    peer.send(test::ready_to_receive());
    (void)device.wait_for(RDMA_CM_EVENT_ESTABLISHED, id);
    peer.send(test::fpdu({.opcode = Opcode::Write, .stag = device.mr->rkey ^ 1, .offset = device.address()},
                         test::pattern(8, 1)));
    device.work_until([&] { return peer.has_ended(); });
    device.close(id);
}

// The device delays the request of an address that guesses keys, and handles it after those before it. It
// handles a request of another address at once.
void who_guesses_keys_waits(Ends &ends) {
    auto &[device, peer, other] = ends;
    const test::ChangedLimit fewer{test::limits().wrong_keys_a_minute, 8};
    for (int i = 0; i < 12; ++i) {
        guess_a_key(device, 1);
    }
    const auto asked = base::Clock::now();
    Peer second;
    for (Peer *const guessing : {&peer, &second}) {
        guessing->connect(device.port(), 0, 1);
        guessing->send_frame(test::plain);
        device.work();  // the listener has it
    }
    other.connect(device.port(), 0, 2);
    other.send_frame(test::plain);
    rdma_cm_id *const first = device.take_request();
    assert_int_equal(reinterpret_cast<sockaddr_in *>(rdma_get_peer_addr(first))->sin_addr.s_addr,
                     test::ipv4("192.0.2.2").sin_addr.s_addr);
    // After that the device serves these requests as any other: each after half the longest delay, less the
    // guesses that were forgotten meanwhile.
    constexpr auto delay = soft::limits::longest_guess_delay * 3 / 8;
    for (int turn = 1; turn <= 2; ++turn) {
        device.accept(device.take_request());
        assert_true(base::Clock::now() - asked >= turn * delay);
    }
    (void)peer.receive_frame(MpaRole::Reply);
    (void)second.receive_frame(MpaRole::Reply);
}

bool is_reset(const Peer &peer) {
    pollfd one{.fd = peer.socket(), .events = 0, .revents = 0};
    return ::poll(&one, 1, 0) == 1 && (one.revents & POLLERR) != 0;
}

// The program has ended these connections. The bytes that the kernel keeps for
// them and their descriptors are bounded.
void ended_connections_whose_peers_do_not_read_give_way(Ends &ends) {
    auto &[device, peer, other] = ends;
    std::deque<Peer> elsewhere;
    std::deque<Peer> deaf;
    device.close(add_deaf(elsewhere, device, 2));
    for (std::size_t i = 0; i < 3 * drains; ++i) {
        device.close(add_deaf(deaf, device, 1));
    }
    device.work_until([&] { return std::ranges::count_if(deaf, is_reset) >= 2 * drains + 1; });
    assert_int_equal(std::ranges::count_if(deaf, is_reset), 2 * drains + 1);
    assert_true(std::all_of(deaf.begin(), deaf.begin() + 2 * drains + 1, is_reset));
    assert_false(is_reset(elsewhere.front()));
}

// One address sends as many requests for a service of datagrams as the device remembers, and the program
// answers none. They keep out no request of another address, and do not replace one that came before them.
void lookups_of_one_address_give_way(void **) {
    sockaddr_in here = test::ipv4("127.0.0.1");
    ibv_gid to{};
    to.raw[10] = to.raw[11] = 0xff;
    std::memcpy(&to.raw[12], &here.sin_addr, sizeof(here.sin_addr));
    const auto from = [&](const char *host, std::uint64_t token) {
        sockaddr_in address = test::ipv4(host);
        address.sin_port = htons(1);
        return soft::Lookup{.from = soft::udp::endpoint_of(reinterpret_cast<const sockaddr &>(address)),
                            .to = to,
                            .token = token};
    };
    soft::LookupService service{std::move(*soft::udp::bound(reinterpret_cast<const sockaddr &>(here), {}))};
    assert_true(service.begin(from("192.0.2.2", 1)));
    for (std::uint64_t token = 1; token <= 2 * soft::limits::max_listen_backlog; ++token) {
        assert_true(service.begin(from("192.0.2.3", token)));
    }
    assert_true(service.begin(from("192.0.2.4", 1)));
    assert_int_equal(service.answer(from("192.0.2.3", 1), {}), EINVAL);
    assert_int_equal(service.answer(from("192.0.2.2", 1), {}), 0);
    assert_int_equal(service.answer(from("192.0.2.4", 1), {}), 0);
}

}  // namespace

int main() {
    if (!test::enter_own_network()) {
        return test::skipped;
    }
    test::set_up(true);
    test::set_address("192.0.2.1", "lo:1");
    test::limits().max_draining = drains;
    test::limits().max_handshakes = handshakes;
    const CMUnitTest tests[] = {fixture_test(silent_peers_do_not_stop_a_listener),
                                fixture_test(the_oldest_of_the_busiest_address_gives_way),
                                fixture_test(who_drips_gives_way_and_who_asks_does_not),
                                fixture_test(requests_of_the_busiest_address_are_rejected),
                                fixture_test(accepted_peers_that_do_not_begin_give_way),
                                cmocka_unit_test(a_listener_looks_at_few_accepted_peers),
                                fixture_test(a_refusal_names_its_limit),
                                fixture_test(a_flood_is_few_lines),
                                fixture_test(peers_that_do_not_read_pin_a_bound),
                                fixture_test(who_guesses_keys_waits),
                                fixture_test(ended_connections_whose_peers_do_not_read_give_way),
                                cmocka_unit_test(lookups_of_one_address_give_way)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
