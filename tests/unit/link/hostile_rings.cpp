// SPDX-License-Identifier: BSD-3-Clause
// soft/link/memory_link: a peer that writes anything at any time into the memory that both have mapped. The
// link gives no byte outside of its user's buffers, takes none from outside, and ends.
//     test_hostile_rings [STATES]: 1,000,000 unless told
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "soft/link/memory_link.hpp"
#include "soft/link/tcp_link.hpp"

// Last, as it wants.
#include "../base/check.hpp"

namespace {

using soft::Link;
using soft::SharedRings;
using State = Link::Received::State;

unsigned long states = 1'000'000;

constexpr std::size_t most_bytes = 4096;
constexpr std::size_t guard = 64;  // bytes that are looked at on each side of a buffer
constexpr std::byte untouched{0xa5};

class Victim {
public:
    Victim() {
        int ends[2] = {-1, -1};
        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
        socket_.reset(ends[0]);
        auto made = SharedRings::make();
        assert_true(made.has_value());
        auto joined = SharedRings::join(base::Fd{dup(made->file())});
        assert_true(joined.has_value());
        made->close_file();
        attacker = std::move(*joined);
        link = std::make_unique<soft::MemoryLink>(std::move(*made),
                                                  std::make_unique<soft::TcpLink>(base::Fd{ends[1]}));
    }

    void ring() const {
        constexpr std::byte bell{1};
        (void)::send(socket_.get(), &bell, sizeof(bell), MSG_NOSIGNAL);
    }

    SharedRings attacker;
    std::unique_ptr<soft::MemoryLink> link;

private:
    base::Fd socket_;
};

class Attack {
public:
    explicit Attack(std::uint64_t seed) : random_{seed} {}

    // Changes one thing in the memory; once in a while to what no sender and no receiver of this link can
    // have.
    void change(Victim &victim) {
        SharedRings::Direction &out = victim.attacker.outgoing();
        SharedRings::Direction &in = victim.attacker.incoming();
        switch (below(10)) {
            case 0:
            case 1:
            case 2:
                out.written += below(most_bytes);
                return;
            case 3:
                in.used = in.written.load() - std::min<std::uint64_t>(below(most_bytes), in.written);
                return;
            case 4:
                in.used = below(64) == 0 ? random_() : in.written.load();
                return;
            case 5:
                victim.attacker.own_bell().wanted = static_cast<std::uint32_t>(random_());
                return;
            case 6:
                victim.attacker.peers_bell().wanted = static_cast<std::uint32_t>(random_());
                return;
            case 7:
                victim.ring();
                return;
            case 8:
                std::ranges::fill(victim.attacker.outgoing_bytes(random_(), below(64)), std::byte{7});
                return;
            default:
                break;
        }
        if (below(16) == 0) {
            out.written = random_();
        } else if (below(4) == 0) {
            (below(2) == 0 ? out : in).first = random_();
        } else if (below(16) == 0) {
            out.end = static_cast<SharedRings::End>(random_());
        } else if (below(16) == 0) {
            in.closed = true;
        }
    }

    [[nodiscard]] std::uint64_t below(std::uint64_t limit) { return random_() % limit; }
    [[nodiscard]] soft::Interest interest() {
        return {.readable = below(2) != 0, .writable = below(2) != 0, .ended = below(2) != 0};
    }

private:
    std::mt19937_64 random_;
};

// A buffer with room on both sides that stays as it is.
class Buffer {
public:
    Buffer() { bytes_.fill(untouched); }
    [[nodiscard]] iovec part(std::size_t bytes) {
        return {.iov_base = &bytes_[most_bytes], .iov_len = bytes};
    }
    // The link got a part of so many bytes, and has filled the first `received` of them.
    void assert_untouched_around(std::size_t bytes, std::size_t received) {
        const auto is_untouched = [](std::byte byte) { return byte == untouched; };
        const std::span all{bytes_};
        assert_true(std::ranges::all_of(all.subspan(most_bytes - guard, guard), is_untouched));
        assert_true(
            std::ranges::all_of(all.subspan(most_bytes + received, bytes - received + guard), is_untouched));
        std::ranges::fill(all.subspan(most_bytes, received), untouched);
    }

private:
    std::array<std::byte, 3 * most_bytes> bytes_;
};

// Uses the link once, in any way. Returns false when the link has failed or ended.
bool use(Victim &victim, Attack &attack, Buffer &buffer) {
    soft::MemoryLink &link = *victim.link;
    const std::size_t bytes = attack.below(most_bytes + 1);
    const iovec piece = buffer.part(bytes);
    switch (attack.below(8)) {
        case 0:
        case 1: {
            const Link::Received received = link.receive({&piece, 1});
            assert_true(received.bytes <= bytes);
            buffer.assert_untouched_around(bytes, received.bytes);
            if (received.state == State::Failed || received.state == State::Ended) {
                assert_int_equal(received.bytes, 0);
                return false;
            }
            return true;
        }
        case 2:
        case 3: {
            const Link::Sent sent = link.send({&piece, 1});
            assert_true(sent.bytes <= bytes && (sent.bytes == 0 || sent.error == 0));
            return sent.error == 0;
        }
        case 4:
            (void)link.want(attack.interest());
            return true;
        case 5:
            link.reported();
            return true;
        case 6:
            (void)link.look();
            return true;
        default:
            (void)link.rest();
            return true;
    }
}

// The attack continues while the victim's user checks the end of its link.
void look_at_the_end(Victim &victim, Attack &attack, Buffer &buffer) {
    (void)victim.link->ready();
    (void)victim.link->failure();
    (void)victim.link->undelivered();
    (void)victim.link->unread_bytes();
    victim.link->abort();
    for (int looks = 0; looks < 4; ++looks) {
        attack.change(victim);
        (void)use(victim, attack, buffer);
    }
}

void any_state_of_the_rings_is_survived(void **) {
    Attack attack{states};
    Buffer buffer;
    std::unique_ptr<Victim> victim;
    unsigned long ended = 0;
    for (unsigned long state = 0; state < states; ++state) {
        if (victim == nullptr) {
            victim = std::make_unique<Victim>();
        }
        attack.change(*victim);
        if (!use(*victim, attack, buffer)) {
            look_at_the_end(*victim, attack, buffer);
            victim.reset();
            ++ended;
        }
    }
    print_message("%lu states, %lu links ended\n", states, ended);
    assert_true(ended > states / 10'000);
}

void counters_that_cannot_be_end_the_link(void **) {
    Victim victim;
    std::array<std::byte, 8> bytes{};
    const iovec piece{.iov_base = bytes.data(), .iov_len = bytes.size()};
    victim.attacker.outgoing().written = victim.attacker.ring_bytes() + 1;
    const Link::Received received = victim.link->receive({&piece, 1});
    assert_true(received.state == State::Failed);
    assert_int_equal(received.error, EPROTO);
    assert_int_equal(victim.link->send({&piece, 1}).error, EPROTO);
    assert_int_equal(victim.link->failure(), EPROTO);
}

void a_peer_that_claims_to_have_read_too_much_gets_nothing(void **) {
    Victim victim;
    std::array<std::byte, 8> bytes{};
    const iovec piece{.iov_base = bytes.data(), .iov_len = bytes.size()};
    victim.attacker.incoming().used = 1;
    const Link::Sent sent = victim.link->send({&piece, 1});
    assert_int_equal(sent.bytes, 0);
}

void memory_that_is_not_sealed_is_refused(void **) {
    base::Fd file{memfd_create("rings", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
    assert_true(static_cast<bool>(file));
    const auto made = SharedRings::make();
    assert_true(made.has_value());
    const off_t size = lseek(made->file(), 0, SEEK_END);
    assert_int_equal(ftruncate(file.get(), size), 0);
    const auto joined = SharedRings::join(std::move(file));
    assert_true(!joined.has_value() && joined.error().number == EPROTO);
}

}  // namespace

int main(int argc, char **argv) {
    if (argc > 1) {
        states = std::strtoul(argv[1], nullptr, 10);
    }
    const CMUnitTest tests[] = {cmocka_unit_test(counters_that_cannot_be_end_the_link),
                                cmocka_unit_test(a_peer_that_claims_to_have_read_too_much_gets_nothing),
                                cmocka_unit_test(memory_that_is_not_sealed_is_refused),
                                cmocka_unit_test(any_state_of_the_rings_is_survived)};
    return cmocka_run_group_tests_name("hostile rings", tests, nullptr, nullptr);
}
