// SPDX-License-Identifier: BSD-3-Clause
// model/rsocket_pair: two rsockets of this process that are connected, and the oracle: which bytes each of
// them must bring, whether a stream has ended, and which errors there may be.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "rsocket_bytes.hpp"

namespace model {

// A function of this class gives "" or what is wrong.
class RsocketPair {
public:
    // may_break: a connection may end without either end's wish.
    RsocketPair(Dice &dice, bool may_break) : dice_{dice}, may_break_{may_break} {}
    ~RsocketPair() { close_all(); }
    RsocketPair(const RsocketPair &) = delete;
    RsocketPair &operator=(const RsocketPair &) = delete;

    // Closes what is open, and connects two new ends.
    [[nodiscard]] std::string renew();
    // It is to be renewed.
    [[nodiscard]] bool is_broken() const { return broken_; }

    [[nodiscard]] int fd(int end) const { return ends_[index(end)].fd; }
    // How often it was connected: an end of another time may have the same number.
    [[nodiscard]] std::uint64_t times() const { return times_; }
    // One call that does not wait. must: rpoll has said that it need not.
    [[nodiscard]] std::string send(int end, bool must = false);
    [[nodiscard]] std::string receive(int end, bool must = false);
    // Checks what rpoll or repoll_wait says of an end, and that the calls it promises do not wait.
    [[nodiscard]] std::string check_ready(int end, short events, short ready);
    // Memory of this end that the other may write; the other's that this one writes.
    [[nodiscard]] std::string map(int end);
    [[nodiscard]] std::string place(int end);
    // No more bytes come from that end.
    [[nodiscard]] std::string end_writing(int end);
    // One end closes; the other has every byte, then the end, or some bytes, then an error.
    [[nodiscard]] std::string close_one(int end, bool resets);
    // Receives all that is on its way, waiting in rpoll.
    [[nodiscard]] std::string settle();
    // Bytes both ways, in calls that wait, by as many threads as there are calls.
    [[nodiscard]] std::string talk();
    // What each end is like, to find out why nothing moves.
    [[nodiscard]] std::string state() const;

private:
    // Memory that the other end writes. Positions are numbers of bytes that an end has sent.
    struct Mapped {
        std::vector<std::byte> memory{};
        std::vector<std::byte> expected{};
        std::int64_t offset = 0;
        std::uint64_t known_after = 0;
        bool pending = false;  // something was placed behind the other's bytes up to
        std::uint64_t placed_after = 0;
    };
    struct End {
        int fd = -1;
        bool writes = true;
        Bytes sent{};
        std::unique_ptr<Mapped> mapped{};
    };
    static std::size_t index(int end) { return static_cast<std::size_t>(end); }
    [[nodiscard]] std::string connect();
    [[nodiscard]] std::string wrong(int end, const char *call, long result) const;
    static bool is_break(int error);
    // The connection broke, as it may: then it is another one.
    [[nodiscard]] std::string broke(int end, const char *call);
    [[nodiscard]] std::string received(int end, long count, std::span<const std::byte> bytes,
                                       bool looked_only);
    [[nodiscard]] std::string check_placed(int end);
    [[nodiscard]] bool at_end(int end) const;
    // Of one thread of talk().
    struct Outcome {
        std::string wrong{};
        bool broke = false;
    };
    void speak(int end, std::uint64_t seed, std::size_t total, Bytes bytes, Outcome &outcome) const;
    void listen(int end, std::uint64_t seed, Outcome &outcome);
    void set_waiting(bool waits) const;
    void close_all();

    Dice &dice_;
    const bool may_break_;
    bool broken_ = true;  // not connected yet
    std::uint64_t times_ = 0;
    std::array<End, 2> ends_;
    std::vector<std::byte> room_;
};

}  // namespace model
