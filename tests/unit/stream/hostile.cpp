// SPDX-License-Identifier: BSD-3-Clause
// A seed makes hostile peers of streams, several at once, at either end. They speak rsockets' protocol
// by themselves (raw_peer.hpp), by the rules for a while, and then break them: they send data beyond
// windows, credits that nobody can give, windows that wrap the address space, slots and words that
// mean nothing, and private data of every kind, or they just go. Each stream ends with the right
// error, and every byte before that is right. Memory and descriptors are bounded and come back. The
// arguments are the seed and the number of words.
#include <malloc.h>
#include <rpma/rsocket.h>

#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "../soft/dice.hpp"
#include "raw_peer.hpp"

// This comes last, because it asserts.
#include "../base/check.hpp"

namespace {

using stream::Op;
using test::Dice;
using test::RawPeer;

constexpr std::size_t at_once = 4;
constexpr std::size_t most_lost_bytes = 192 * 1024;

std::uint64_t seed = 1;
std::uint64_t most_words = 20'000;

// This bound only notices a hang, and measures nothing.
class Clock {
public:
    [[nodiscard]] bool passed() const { return std::chrono::steady_clock::now() > at_; }

private:
    std::chrono::steady_clock::time_point at_ = std::chrono::steady_clock::now() + std::chrono::seconds{40};
};

// A peer breaks the rules in these ways. All but the last three end a stream with EPROTO.
enum class Evil : std::uint8_t {
    DataAcrossTheEnd,
    DataOfNothing,
    WordOfNothing,
    SlotOutOfRange,
    ControlOfNothing,
    CreditsOfNothing,
    WindowOfNonsense,
    WindowThatWraps,
    MessageThatIsNoWord,
    Goes,
    RandomWords,
    Count,
};

class Attack {
public:
    explicit Attack(Dice &dice)
        : dice_{dice},
          side_{dice.chance(50) ? RawPeer::Side::Asks : RawPeer::Side::IsAsked},
          ends_{test::connect_ends(side_, 1 + static_cast<int>(dice.below(20'000)))},
          peer_{std::make_unique<RawPeer>(test::device(), side_, std::move(ends_.peer))},
          evil_{static_cast<Evil>(dice.below(static_cast<std::uint64_t>(Evil::Count)))},
          good_words_{dice.below(dice.chance(50) ? 50 : 2000)} {}
    ~Attack() { assert_int_equal(rclose(ends_.stream), 0); }
    Attack(const Attack &) = delete;
    Attack &operator=(const Attack &) = delete;

    // Does one step. Returns false when the connection is over.
    [[nodiscard]] bool step() {
        if (peer_ != nullptr) {
            (void)peer_->step();
            act();
            words_ = peer_->words();
            if (is_evil_ && evil_ == Evil::Goes) {
                peer_.reset();
            }
        }
        if (error_ == 0) {
            use();
        }
        if (clock_.passed()) {
            fail_msg("evil %d: the stream goes on", static_cast<int>(evil_));
        }
        return error_ == 0 || !is_evil_;
    }
    // Asserts that the stream has ended with the error that the peer caused.
    void check() const {
        if (evil_ == Evil::RandomWords) {
            return;
        }
        const int expected = evil_ == Evil::Goes ? ECONNRESET : EPROTO;
        if (error_ != expected) {
            fail_msg("evil %d ends with %d, not %d", static_cast<int>(evil_), error_, expected);
        }
    }
    [[nodiscard]] std::uint64_t words() const { return words_; }

private:
    void act() {
        if (is_evil_ || !peer_->is_ready()) {
            return;
        }
        for (auto words = 1 + dice_.below(30); words != 0; --words) {
            behave();
        }
        if (peer_->words() >= good_words_) {
            misbehave();
            is_evil_ = true;
        }
        peer_->send();
    }
    void behave() {
        const auto kind = dice_.below(8);
        if (kind < 4) {
            peer_->data(1 + dice_.below(64));
        } else if (kind < 5) {
            peer_->update();
        } else if (kind < 6) {
            peer_->word(Op::Window, peer_->limit());
        } else {
            peer_->word(Op::Control, 1);
        }
    }
    void misbehave();
    // Uses the stream as its program does.
    void use();
    void ended(int error) { error_ = error; }

    Dice &dice_;
    const RawPeer::Side side_;
    test::Ends ends_;
    std::unique_ptr<RawPeer> peer_;
    const Evil evil_;
    const std::uint64_t good_words_;
    bool is_evil_ = false;
    int error_ = 0;
    std::uint64_t words_ = 0;
    std::uint64_t received_ = 0;
    Clock clock_;
};

void Attack::misbehave() {
    const stream::Hello &victim = peer_->hello();
    switch (evil_) {
        case Evil::DataAcrossTheEnd:
            return peer_->word(Op::Data,
                               victim.data.length + 1 + static_cast<std::uint32_t>(dice_.below(1000)));
        case Evil::DataOfNothing:
            return peer_->word(Op::Data, 0);
        case Evil::WordOfNothing: {
            constexpr std::array<std::uint32_t, 4> kinds{1, 2, 3, 5};
            return peer_->word(kinds[dice_.below(4)] << 29 |
                               static_cast<std::uint32_t>(dice_.below(1 << 29)));
        }
        case Evil::SlotOutOfRange:
            return peer_->word(Op::Slot, 60'000 + static_cast<std::uint32_t>(dice_.below(1000)));
        case Evil::ControlOfNothing:
            return peer_->word(Op::Control, 3 + static_cast<std::uint32_t>(dice_.below(1 << 28)));
        case Evil::CreditsOfNothing:
            return peer_->word(Op::Window,
                               static_cast<std::uint16_t>(peer_->limit() + 1000 + dice_.below(60'000)));
        case Evil::WindowOfNonsense:
            peer_->window({.address = dice_.any(), .key = 1, .length = peer_->half() ^ 0xff000000});
            return peer_->word(Op::Window, peer_->limit());
        case Evil::WindowThatWraps:
            peer_->window(
                {.address = UINT64_MAX - dice_.below(peer_->half()), .key = 1, .length = peer_->half()});
            return peer_->word(Op::Window, peer_->limit());
        case Evil::MessageThatIsNoWord:
            return peer_->message(1 + dice_.below(3));
        case Evil::Goes:
            return;
        case Evil::RandomWords:
            for (int i = 0; i < 60; ++i) {
                peer_->word(static_cast<std::uint32_t>(dice_.any()));
                if (dice_.chance(20)) {
                    const std::array<std::byte, 8> bytes{static_cast<std::byte>(dice_.any())};
                    peer_->write(victim.list.address + dice_.below(24), victim.list.key, bytes);
                }
            }
            return peer_->word(Op::Data, 0);
        case Evil::Count:
            break;
    }
}

void Attack::use() {
    std::array<std::byte, 3000> bytes{};
    if (dice_.chance(20)) {
        const ssize_t sent = rsend(ends_.stream, bytes.data(), dice_.below(bytes.size()), MSG_NOSIGNAL);
        assert_true(sent >= 0 || errno == EAGAIN || errno == EPIPE || errno == ENOTCONN || is_evil_);
        return;
    }
    const ssize_t count = rrecv(ends_.stream, bytes.data(), 1 + dice_.below(bytes.size()), 0);
    if (count < 0) {
        if (errno != EAGAIN) {
            error_ = errno;
        }
        return;
    }
    if (count == 0) {
        assert_true(is_evil_ && evil_ == Evil::RandomWords);
        error_ = EPIPE;
    }
    for (std::size_t i = 0; i < static_cast<std::size_t>(count) && evil_ != Evil::RandomWords; ++i) {
        const std::byte expected = RawPeer::pattern(received_++);
        if (bytes[i] != expected) {
            fail_msg("evil %d%s: byte %" PRIu64 " (%zu of %zd) is %02x, not %02x", static_cast<int>(evil_),
                     is_evil_ ? ", which came" : "", received_ - 1, i, count, static_cast<unsigned>(bytes[i]),
                     static_cast<unsigned>(expected));
        }
    }
}

std::size_t memory_in_use() {
    const auto info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

std::size_t open_descriptors() {
    const std::filesystem::directory_iterator all{"/proc/self/fd"};
    return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

// Registers regions until the device's table of regions has all parts. The table grows by the part
// in which the next key falls. All parts are about 2 MiB, which are no leak. After so many
// registrations the table has all parts.
void complete_table_of_regions() {
    std::array<char, 8> memory{};
    for (unsigned i = 0; i < 40'000; ++i) {
        rpma_mr_local *region = nullptr;
        assert_int_equal(
            rpma_mr_reg(test::device(), memory.data(), memory.size(), RPMA_MR_USAGE_RECV, &region), 0);
        assert_int_equal(rpma_mr_dereg(&region), 0);
    }
}

void peers_that_break_every_rule(void **) {
    std::fprintf(stderr, "seed %" PRIu64 ", %" PRIu64 " words\n", seed, most_words);
    Dice dice{seed};
    std::uint64_t words = 0;
    std::uint64_t streams = 0;
    std::size_t calm_bytes = 0;
    std::size_t calm_descriptors = 0;
    const auto storm = [&](std::uint64_t until) {
        std::vector<std::unique_ptr<Attack>> attacks;
        while (words < until || !attacks.empty()) {
            while (words < until && attacks.size() < at_once) {
                attacks.push_back(std::make_unique<Attack>(dice));
                ++streams;
            }
            for (auto &attack : attacks) {
                if (!attack->step()) {
                    attack->check();
                    words += attack->words();
                    attack.reset();
                }
            }
            std::erase(attacks, nullptr);
        }
    };
    storm(most_words / 4);
    complete_table_of_regions();
    calm_bytes = memory_in_use();
    calm_descriptors = open_descriptors();
    storm(most_words);
    // The library drains closed sockets in the background.
    const Clock deadline;
    while (open_descriptors() > calm_descriptors + at_once && !deadline.passed()) {
        (void)poll(nullptr, 0, 1);
    }
    assert_true(open_descriptors() <= calm_descriptors + at_once);
    assert_true(memory_in_use() < calm_bytes + most_lost_bytes);
    std::fprintf(stderr, "%" PRIu64 " words on %" PRIu64 " streams\n", words, streams);
}

}  // namespace

int main(int argc, char **argv) {
    seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : seed;
    most_words = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : most_words;
    const CMUnitTest tests[] = {cmocka_unit_test(peers_that_break_every_rule)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
