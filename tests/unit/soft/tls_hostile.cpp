// SPDX-License-Identifier: BSD-3-Clause
// A seed makes many attackers around TLS, which have no key. They replay what ends with the key have said,
// and change, cut, double, reorder and insert bytes and records. One half attacks a handshake, as client or
// as server, and the other half the records of a connection that is there. The links are in this memory, so
// an attack costs little more than its cryptography. The test checks that no handshake succeeds without the
// key, that each ends with an error and a text that a person can read, that its answers stay small, and that
// no call keeps its thread. It checks that a connection gives its user nothing but a beginning of what the
// other end has sent, that it writes no further, and that an end comes with all bytes or is an error. Ends
// with the key are served all the while. The arguments are the seed and the number of attacks.
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "base/parts.hpp"
#include "soft/ground/environment.hpp"
#include "soft/tls/tls_link.hpp"
#include "soft/tls/tls_start.hpp"

#include "../../wire.hpp"
#include "dice.hpp"

namespace {

using soft::Link;
using soft::TlsLink;
using soft::TlsStart;
using test::Dice;
using Bytes = std::vector<std::byte>;
using Start = TlsStart::State;
using State = Link::Received::State;

constexpr std::size_t record_header_bytes = 5;
// A server answers a client with less than this, whatever the client sends.
constexpr std::size_t most_answer_bytes = 1024;
constexpr std::byte untouched{0xe1};

void require(bool holds, const char *invariant) {
    if (!holds) {
        std::fprintf(stderr, "INVARIANT BROKEN: %s\n", invariant);
        std::abort();
    }
}

// One end of a link. The test carries the bytes.
class End final : public Link {
public:
    [[nodiscard]] Sent send(std::span<const iovec> pieces) override {
        return {.bytes = base::append(pieces, SIZE_MAX, sent)};
    }
    bool finish() override { return true; }
    [[nodiscard]] Received receive(std::span<const iovec> pieces) override {
        std::size_t received = 0;
        for (const iovec &piece : pieces) {
            const std::size_t bytes = std::min(piece.iov_len, unread());
            std::copy_n(came_.data() + taken_, bytes, static_cast<std::byte *>(piece.iov_base));
            taken_ += bytes;
            received += bytes;
        }
        if (received != 0) {
            return {.bytes = received, .state = State::More};
        }
        return {.state = has_ended_ ? State::Ended : State::Drained};
    }
    void abort() override {}
    void abandon() override {}
    [[nodiscard]] int descriptor() const override { return -1; }
    [[nodiscard]] bool own_lent_descriptor() override { return true; }
    [[nodiscard]] base::Fd take_descriptor() override { return {}; }
    [[nodiscard]] Ready ready() const override {
        return {.readable = unread() != 0 || has_ended_, .writable = true, .ended = has_ended_};
    }
    [[nodiscard]] int failure() override { return 0; }
    [[nodiscard]] std::size_t unread_bytes() const override { return unread(); }
    [[nodiscard]] bool undelivered() const override { return false; }
    void limit_unsent(std::size_t) override {}
    [[nodiscard]] const char *name() const override { return "test"; }
    [[nodiscard]] std::size_t max_segment() const override { return 1460; }

    void deliver(std::span<const std::byte> bytes) { came_.insert(came_.end(), bytes.begin(), bytes.end()); }
    void end() { has_ended_ = true; }
    [[nodiscard]] std::size_t unread() const { return came_.size() - taken_; }
    [[nodiscard]] Bytes take_sent() { return std::exchange(sent, {}); }

    Bytes sent;

private:
    Bytes came_;
    std::size_t taken_ = 0;
    bool has_ended_ = false;
};

// A handshake of two ends with the key, what went over the wire meanwhile, and the connection.
struct Good {
    Bytes of_client;
    Bytes of_server;
    End *client_end = nullptr;
    End *server_end = nullptr;
    std::unique_ptr<Link> client;
    std::unique_ptr<Link> server;

    Good() {
        auto near = std::make_unique<End>();
        auto far = std::make_unique<End>();
        client_end = near.get();
        server_end = far.get();
        TlsStart asks{TlsStart::Side::Client, soft::tls_of_new_ids(), *near, {}};
        TlsStart answers{TlsStart::Side::Server, soft::tls_of_new_ids(), *far, {}};
        auto asked = Start::Waits;
        auto answered = Start::Waits;
        for (int turn = 0; asked != Start::Done || answered != Start::Done; ++turn) {
            asked = asked == Start::Waits ? asks.go_on() : asked;
            carry(*near, *far, of_client);
            answered = answered == Start::Waits ? answers.go_on() : answered;
            carry(*far, *near, of_server);
            require(turn < 10, "ends with the key agree in a few turns");
        }
        require(answers.identity() == "t", "the server knows its client");
        client = asks.secured(std::move(near));
        server = answers.secured(std::move(far));
    }

private:
    static void carry(End &from, End &to, Bytes &all) {
        const Bytes some = from.take_sent();
        to.deliver(some);
        all.insert(all.end(), some.begin(), some.end());
    }
};

// Returns where each record begins, and where the last ends.
std::vector<std::size_t> records_of(const Bytes &bytes) {
    std::vector<std::size_t> places{0};
    while (bytes.size() - places.back() >= record_header_bytes) {
        const std::size_t at = places.back();
        const std::size_t size =
            std::to_integer<std::size_t>(bytes[at + 3]) << 8 | std::to_integer<std::size_t>(bytes[at + 4]);
        if (size > bytes.size() - at - record_header_bytes) {
            break;
        }
        places.push_back(at + record_header_bytes + size);
    }
    return places;
}

Bytes random_bytes(Dice &dice, std::size_t size) {
    Bytes all(size);
    std::ranges::generate(all, [&dice] { return static_cast<std::byte>(dice.any()); });
    return all;
}

void insert(Bytes &bytes, std::size_t at, const Bytes &some) {
    bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at), some.begin(), some.end());
}

// Doubles, removes, exchanges or relabels whole records, or inserts one that is not encrypted.
void spoil_records(Bytes &bytes, Dice &dice) {
    const auto places = records_of(bytes);
    if (places.size() < 2) {
        return;
    }
    const std::size_t one = dice.below(places.size() - 1);
    const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(places[one]);
    const auto end = bytes.begin() + static_cast<std::ptrdiff_t>(places[one + 1]);
    switch (dice.below(5)) {
        case 0:
            insert(bytes, places[one], Bytes{begin, end});
            break;
        case 1:
            bytes.erase(begin, end);
            break;
        case 2:
            std::rotate(begin, end, bytes.end());
            break;
        case 3:
            *begin = static_cast<std::byte>(20 + dice.below(6));
            break;
        default: {  // an alert, a change of ciphers, a message of the handshake, data
            const std::size_t size = dice.below(40);
            Bytes record{static_cast<std::byte>(20 + dice.below(4)), std::byte{3}, std::byte{3}, std::byte{0},
                         static_cast<std::byte>(size)};
            insert(record, record.size(), random_bytes(dice, size));
            insert(bytes, places[one], record);
            break;
        }
    }
}

// Makes a few edits. Each begins among the first bytes, so many.
void spoil(Bytes &bytes, std::size_t first, Dice &dice) {
    for (auto edits = 1 + dice.below(3); edits != 0 && !bytes.empty(); --edits) {
        const std::size_t at = dice.below(std::min(first, bytes.size()));
        const std::size_t size =
            std::min<std::size_t>(1 + dice.below(dice.chance(70) ? 4 : 300), bytes.size() - at);
        const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(at);
        const auto end = begin + static_cast<std::ptrdiff_t>(size);
        switch (dice.below(7)) {
            case 0:
                *begin ^= static_cast<std::byte>(1U << dice.below(8));
                break;
            case 1:
                *begin = static_cast<std::byte>(dice.any());
                break;
            case 2:
                bytes.erase(begin, end);
                break;
            case 3:
                insert(bytes, at, Bytes{begin, end});
                break;
            case 4:
                insert(bytes, at, random_bytes(dice, size));
                break;
            case 5:
                bytes.resize(at);
                break;
            default:
                spoil_records(bytes, dice);
                break;
        }
    }
}

// Calls use() with the bytes in a few pieces, until it returns false.
template <typename Use>
void in_pieces(const Bytes &bytes, Dice &dice, Use use) {
    std::span<const std::byte> rest{bytes};
    while (!rest.empty()) {
        const std::size_t size = dice.chance(60) ? rest.size() : 1 + dice.below(rest.size());
        if (!use(rest.first(size))) {
            return;
        }
        rest = rest.subspan(size);
    }
}

// Goes on until all bytes that came are taken.
Start go_on(TlsStart &start, const End &end) {
    Start state = start.go_on();
    for (std::size_t before = SIZE_MAX; state == Start::Waits && end.unread() != 0; state = start.go_on()) {
        require(end.unread() < before, "a handshake that goes on takes bytes");
        before = end.unread();
    }
    return state;
}

void attack_handshake(TlsStart::Side side, Bytes flight, Dice &dice) {
    // The fields at the beginning are those that a server reads before it looks for the key.
    constexpr std::size_t early_bytes = 120;
    spoil(flight, dice.chance(75) ? early_bytes : flight.size(), dice);
    End end;
    TlsStart victim{side, soft::tls_of_new_ids(), end, {}};
    Start state = go_on(victim, end);
    require(state == Start::Waits, "a handshake begins");
    in_pieces(flight, dice, [&](std::span<const std::byte> piece) {
        end.deliver(piece);
        state = go_on(victim, end);
        return state == Start::Waits;
    });
    require(state != Start::Done, "nobody gets in without the key");
    if (state == Start::Waits) {
        end.end();
        state = victim.go_on();
    }
    require(state == Start::Failed && victim.error() != 0, "a handshake that stops has an error");
    const std::string_view text{victim.text()};
    const bool readable = std::ranges::all_of(text, [](char one) { return one >= ' ' && one < 0x7F; });
    require(!text.empty() && readable, "the reason can be read");
    require(end.sent.size() <= most_answer_bytes, "answers are small");
}

// The bytes that one end of a connection has sent, as its user and as the wire know them.
struct Said {
    Bytes plain;
    Bytes raw;
    bool has_ended = false;

    Said(TlsLink &link, End &end, Dice &dice) {
        for (auto messages = 1 + dice.below(4); messages != 0; --messages) {
            const Bytes some = random_bytes(dice, 1 + dice.below(dice.chance(95) ? 500 : 20'000));
            const iovec piece = base::part_of(some.data(), some.size());
            require(link.send({&piece, 1}).bytes == some.size(), "a link takes what it has room for");
            plain.insert(plain.end(), some.begin(), some.end());
            if (dice.chance(10)) {
                require(link.change_key(dice.chance(50)), "a sender changes its key");
            }
        }
        has_ended = dice.chance(50) && link.finish();
        raw = end.take_sent();
    }
};

// Receives what there is, and returns the last state.
Link::Received receive(Link &link, Bytes &got, Dice &dice) {
    std::array<std::byte, 700> room{};
    room.fill(untouched);
    while (true) {
        const std::size_t size = 1 + dice.below(room.size());
        const iovec piece{.iov_base = room.data(), .iov_len = size};
        const auto received = link.receive({&piece, 1});
        require(received.bytes <= size, "no more comes than there is room for");
        got.insert(got.end(), room.begin(), room.begin() + static_cast<std::ptrdiff_t>(received.bytes));
        const auto rest = std::span{room}.subspan(received.bytes);
        require(std::ranges::all_of(rest, [](std::byte one) { return one == untouched; }),
                "nothing else is written");
        std::ranges::fill(room, untouched);
        if (received.state != State::More) {
            return received;
        }
    }
}

void attack_connection(Link &victim, End &end, const Said &said, bool spoils, Dice &dice) {
    Bytes raw = said.raw;
    if (spoils) {
        spoil(raw, raw.size(), dice);
    }
    Bytes got;
    Link::Received last;
    const auto take = [&] {
        for (std::size_t before = SIZE_MAX; end.unread() < before;) {
            before = end.unread();
            last = receive(victim, got, dice);
        }
        return last.state == State::Drained;
    };
    in_pieces(raw, dice, [&](std::span<const std::byte> piece) {
        end.deliver(piece);
        return take();
    });
    end.end();
    (void)take();
    const bool is_beginning =
        got.size() <= said.plain.size() && std::ranges::equal(got, std::span{said.plain}.first(got.size()));
    require(is_beginning, "nothing comes but what was sent");
    if (last.state == State::Ended) {
        require(said.has_ended && got.size() == said.plain.size(), "an end comes with all bytes");
    } else {
        require(last.state == State::Failed && (last.error == EPROTO || last.error == ECONNRESET),
                "another end is a failure");
    }
    require(raw != said.raw ||
                (got.size() == said.plain.size() && (last.state == State::Ended) == said.has_ended),
            "what was not spoilt arrives");
}

struct Counts {
    std::atomic<std::uint64_t> clients{0};  // attacks on a server, and so on
    std::atomic<std::uint64_t> servers{0};
    std::atomic<std::uint64_t> connections{0};
};

// Makes so many attacks.
void attack(std::uint64_t seed, std::uint64_t number, Counts &counts) {
    constexpr int attacks_on_handshakes = 126;
    Dice dice{seed};
    for (std::uint64_t made = 0; made < number;) {
        Good good;
        const Said of_client{dynamic_cast<TlsLink &>(*good.client), *good.client_end, dice};
        const Said of_server{dynamic_cast<TlsLink &>(*good.server), *good.server_end, dice};
        attack_connection(*good.server, *good.server_end, of_client, dice.chance(95), dice);
        attack_connection(*good.client, *good.client_end, of_server, dice.chance(95), dice);
        counts.connections += 2;
        made += 2;
        for (int one = 0; one < attacks_on_handshakes; ++one, ++made) {
            if (dice.chance(94)) {
                attack_handshake(TlsStart::Side::Server, good.of_client, dice);
                ++counts.clients;
            } else {
                attack_handshake(TlsStart::Side::Client, good.of_server, dice);
                ++counts.servers;
            }
        }
    }
}

}  // namespace

int main(int argc, char **argv) {
    const std::uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
    const std::uint64_t number = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 10'000;
    if (!test::use_tls()) {
        std::perror("the file of keys");
        return EXIT_FAILURE;
    }
    const auto begin = std::chrono::steady_clock::now();
    Counts counts;
    {
        constexpr std::uint64_t threads = 2;
        std::vector<std::jthread> all;
        for (std::uint64_t one = 0; one < threads; ++one) {
            all.emplace_back(attack, seed * threads + one, number / threads, std::ref(counts));
        }
    }
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
    std::fprintf(stderr,
                 "seed %" PRIu64 ": %" PRIu64 " attacks as client, %" PRIu64 " as server, %" PRIu64
                 " on connections, in %.1f s\n",
                 seed, counts.clients.load(), counts.servers.load(), counts.connections.load(), time.count());
    return counts.clients + counts.servers + counts.connections >= number ? EXIT_SUCCESS : EXIT_FAILURE;
}
