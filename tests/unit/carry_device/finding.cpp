// SPDX-License-Identifier: BSD-3-Clause
// carry_device/finding, carry_device/proof: tests how a word comes to the process that has a connection, and
// who can prove to have it.
#include "carry_device/finding.hpp"

#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.hpp"
#include "base/parts.hpp"
#include "carry_device/names.hpp"

#include "../base/check.hpp"

namespace {

using carry_device::Beginning;
using carry_device::Digest;
using carry_device::Facts;
using carry_device::Finding;
using carry_device::Lengths;
using carry_device::Word;

constexpr std::uint64_t name = 0x1234;

// Both addresses are 127.0.0.1.
carry::FourTuple connection(std::uint32_t side) {
    carry::FourTuple one;
    for (auto &end : one.ends) {
        end.address.s6_addr[10] = end.address.s6_addr[11] = 0xff;
        end.address.s6_addr[12] = 127;
        end.address.s6_addr[15] = 1;
    }
    one.side = side;
    return one;
}

// A port that no other program has.
std::uint16_t free_port() {
    static const base::Fd keeps = carry_device::bound_to_all(SOCK_DGRAM, 0, [](int fd) {
        constexpr int on = 1;
        return setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0;
    });
    sockaddr_storage own{};
    socklen_t length = sizeof(own);
    assert_int_equal(getsockname(keeps.get(), reinterpret_cast<sockaddr *>(&own), &length), 0);
    return ntohs(reinterpret_cast<const sockaddr_in6 &>(own).sin6_port);  // that of IPv4 is at the same place
}

struct Process {
    base::Fd events{epoll_create1(EPOLL_CLOEXEC)};
    Finding finding;
    bool has_connection = false;
    std::vector<Finding::Heard> heard;

    explicit Process(
        std::uint16_t port, Finding::IsPeer is_peer = [](const in6_addr &) { return true; })
        : finding{is_peer, port} {
        assert_true(finding.take_port(events.get()));
    }
    bool serve_some() {
        return finding.serve([this](const Finding::Heard &what) {
            heard.push_back(what);
            return has_connection;
        });
    }
    void serve() {
        while (serve_some()) {
        }
    }
    // So many words have come, or are on their way.
    void hear(std::size_t count) {
        serve();
        while (heard.size() < count) {
            epoll_event event{};
            assert_int_equal(epoll_wait(events.get(), &event, 1, 30'000), 1);
            serve();
        }
        assert_int_equal(heard.size(), count);
    }
};

void a_word_is_passed_on_to_the_process_that_has_the_connection(void **) {
    const std::uint16_t port = free_port();
    Process asker{port};
    Process owner{port};
    Process last{port};  // to which the kernel gives what comes to the port
    owner.has_connection = true;
    asker.finding.send(connection(1), port, {.name = name, .asks = 7, .kind = Word::Asks});
    // It hears what it has passed on too, and passes that on no further.
    last.hear(2);
    assert_true(!last.heard[0].word.is_passed_on && last.heard[1].word.is_passed_on);
    owner.hear(1);
    const Finding::Heard asked = owner.heard[0];
    assert_true(asked.word.is_passed_on && asked.word.name == name && asked.word.asks == 7);
    assert_int_equal(asked.port, last.heard[0].port);

    asker.hear(1);  // what was passed on
    owner.finding.send(connection(0), asked.port, {.name = name, .asks = 7, .kind = Word::Answers});
    asker.hear(2);
    assert_true(asker.heard[1].word.kind == Word::Answers && !asker.heard[1].word.is_passed_on);
    assert_true(asker.heard[1].is_from(connection(1).ends[0].address));
    owner.hear(1);
    last.hear(2);
}

void the_process_that_takes_the_port_again_hears(void **) {
    const std::uint16_t port = free_port();
    Process owner{port};
    Process last{port};
    owner.has_connection = true;
    assert_true(owner.finding.take_port(owner.events.get()));
    last.finding.send(connection(1), port, {.name = name, .kind = Word::Calls});
    owner.hear(1);
    assert_false(owner.heard[0].word.is_passed_on);
    last.hear(0);
}

// A process drops a datagram that is no word, or comes from a host that may not ask. A good word comes behind
// it.
void others_are_not_heard(void **) {
    const std::uint16_t port = free_port();
    Process some{port, [](const in6_addr &address) { return address.s6_addr[15] == 1; }};
    some.has_connection = true;
    const carry_device::Name to = carry_device::name_of(connection(1).ends[0], port);
    const auto send_from = [&](std::uint8_t host, const void *bytes, std::size_t size) {
        carry::FourTuple::End own = connection(1).ends[0];
        own.address.s6_addr[15] = host;
        const carry_device::Name from = carry_device::name_of(own, 0);
        const base::Fd fd{socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
        assert_int_equal(bind(fd.get(), from.get(), from.length), 0);
        assert_int_equal(sendto(fd.get(), bytes, size, 0, to.get(), to.length), size);
    };
    const Word word{.name = name, .kind = Word::Asks};
    std::string bytes(reinterpret_cast<const char *>(&word), sizeof(word));
    send_from(2, bytes.data(), bytes.size());
    send_from(1, bytes.data(), bytes.size() - 1);
    send_from(1, (bytes + '\0').data(), bytes.size() + 1);
    send_from(1, "", 0);
    std::string other = bytes;
    other[offsetof(Word, is_passed_on)] = 2;
    send_from(1, other.data(), other.size());
    other = bytes;
    other[0] ^= 1;
    send_from(1, other.data(), other.size());
    other = bytes;
    other[offsetof(Word, kind)] = Word::Answers;  // belongs to another port
    send_from(1, other.data(), other.size());
    send_from(1, bytes.data(), bytes.size());
    some.hear(1);
    assert_true(some.heard[0].word.kind == Word::Asks && some.heard[0].address.s6_addr[15] == 1);
}

void many_words_are_heard_in_turns(void **) {
    const std::uint16_t port = free_port();
    Process some{port};
    some.has_connection = true;
    for (int i = 0; i < 100; ++i) {
        some.finding.send(connection(1), port, {.name = name, .kind = Word::Calls});
    }
    assert_true(some.serve_some());
    const std::size_t first = some.heard.size();
    assert_true(first != 0 && first < 100);
    some.hear(100);
}

void add(carry::FirstBytes &bytes, std::uint64_t offset, std::string_view text) {
    const iovec part = base::part_of(text.data(), text.size());
    bytes.add(offset, {&part, 1}, text.size());
}

std::string text_of(const carry::FirstBytes &bytes) {
    return {reinterpret_cast<const char *>(bytes.get().data()), bytes.get().size()};
}

void the_first_bytes_are_kept(void **) {
    carry::FirstBytes bytes{};
    add(bytes, 0, "ab");
    add(bytes, 2, "cd");
    add(bytes, 5, "f");  // the one before passed by
    add(bytes, 2, "x");
    assert_string_equal(text_of(bytes).c_str(), "abcd");
    add(bytes, 4, std::string(1000, 'z'));
    assert_int_equal(bytes.get().size(), carry::FirstBytes::most);
    add(bytes, carry::FirstBytes::most, "x");
    assert_int_equal(bytes.get().size(), carry::FirstBytes::most);
    bytes.clear();
    assert_true(bytes.get().empty());
}

// The two ends of a connection.
struct Ends {
    carry::BeginningOf bytes[2]{};
    Beginning ends[2]{{bytes[0], 0}, {bytes[1], 1}};

    Ends() {
        for (const std::uint32_t side : {0U, 1U}) {
            add(bytes[side].sent, 0, side == 0 ? "a question" : "an answer");
            add(bytes[side].received, 0, side == 0 ? "an answer" : "a question");
        }
    }
};

void both_ends_prove_that_they_have_the_connection(void **) {
    const Ends ends;
    const Facts facts{.name = name, .asks = 1, .answers = 2, .port = 3, .proven = ends.ends[0].lengths()};
    assert_true(ends.ends[1].has(facts.proven));
    const Digest proof = proof_of(ends.ends[0], facts);
    assert_true(proof == proof_of(ends.ends[1], facts));

    const auto differs = [&](const std::function<void(Facts &)> &change) {
        Facts other = facts;
        change(other);
        assert_false(proof_of(ends.ends[1], other) == proof);
    };
    differs([](Facts &other) { ++other.name; });
    differs([](Facts &other) { ++other.asks; });
    differs([](Facts &other) { ++other.answers; });
    differs([](Facts &other) { ++other.port; });
    differs([](Facts &other) { other.speaker = Facts::Asker; });
    differs([](Facts &other) { --other.proven.of_side[0]; });
    differs([](Facts &other) { --other.proven.of_side[1]; });

    Ends others;
    others.bytes[1].sent.clear();
    assert_false(others.ends[1].has(facts.proven));
    add(others.bytes[1].sent, 0, "an Answer");
    assert_true(others.ends[1].has(facts.proven));
    assert_false(proof_of(others.ends[1], facts) == proof);
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(a_word_is_passed_on_to_the_process_that_has_the_connection),
        cmocka_unit_test(the_process_that_takes_the_port_again_hears),
        cmocka_unit_test(others_are_not_heard),
        cmocka_unit_test(many_words_are_heard_in_turns),
        cmocka_unit_test(the_first_bytes_are_kept),
        cmocka_unit_test(both_ends_prove_that_they_have_the_connection),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
