// SPDX-License-Identifier: BSD-3-Clause
// model/rsocket_pair: two connected ends and their oracle. The oracle knows which bytes each end must bring,
// whether the stream has ended, and which errors there may be. Both ends belong to this process, except in
// hand_over().
#pragma once

#include <netinet/in.h>
#include <rpma/rsocket.h>
#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "rsocket_bytes.hpp"

namespace model {

// All pairs of a run have this in common.
struct Setting {
    bool fork_safe = false;  // a child may have what this process has accepted (RDMAV_FORK_SAFE)
    bool may_break = false;  // a connection may end without either end's wish
    std::atomic<std::uint64_t> receives{0};  // calls that brought something
};

// A child inherits this of a pair: its second end, or a listener that the first end has connected to.
struct Inheritance {
    // The child ends with rclose that waits and _exit, with rclose and exit(3), with exit(3) alone, or with
    // none of them.
    enum class Ending { Linger, Close, Exit, Break };
    int fd = -1;
    bool is_listener = false;
    Ending ending = Ending::Linger;
    std::uint64_t seed = 0;
    std::array<std::uint64_t, 2> salts{};
    std::array<std::uint64_t, 2> totals{};
};

// A function of this class that returns a string returns "" or a text that says what is wrong.
class RsocketPair {
public:
    RsocketPair(Dice &dice, Setting &setting) : dice_{dice}, setting_{setting} {}
    ~RsocketPair() { close_all(); }
    RsocketPair(const RsocketPair &) = delete;
    RsocketPair &operator=(const RsocketPair &) = delete;

    // Closes what is open, and connects two new ends.
    [[nodiscard]] std::string renew();
    // Returns whether the pair must be renewed.
    [[nodiscard]] bool is_broken() const { return broken_; }

    [[nodiscard]] int fd(int end) const { return ends_[index(end)].fd; }
    // Returns how often the pair was connected. The descriptor of an earlier end may have had the same
    // number.
    [[nodiscard]] std::uint64_t times() const { return times_; }
    // Makes one call that does not wait. With `must`, rpoll has promised that the call need not wait.
    [[nodiscard]] std::string send(int end, bool must = false);
    [[nodiscard]] std::string receive(int end, bool must = false);
    // Checks what rpoll or repoll_wait says of an end, and that the calls it promises do not wait.
    [[nodiscard]] std::string check_ready(int end, short events, short ready);
    // map() lets the other end write memory of this one. place() writes such memory of the other end.
    [[nodiscard]] std::string map(int end);
    [[nodiscard]] std::string place(int end);
    // Shuts the end for writing, so that no more bytes come from it.
    [[nodiscard]] std::string end_writing(int end);
    // Closes one end. The other end must receive every byte and then the end, or some bytes and then an
    // error.
    [[nodiscard]] std::string close_one(int end, bool resets);
    // Receives all bytes that are on their way, and waits for them in rpoll.
    [[nodiscard]] std::string settle();
    // Sends bytes both ways, in calls that wait. Each call has a thread of its own.
    [[nodiscard]] std::string talk();
    // A forked child goes on with one end of a new pair, which this process gives up. Then the pair is to be
    // renewed.
    [[nodiscard]] std::string hand_over();
    // The child of hand_over() runs this.
    [[nodiscard]] std::string inherit(const Inheritance &what);
    // A forked child that has the pair too runs this. A stream must say that it is lost.
    [[nodiscard]] std::string check_in_child(int end);
    // Describes both ends, to find out why nothing moves.
    [[nodiscard]] std::string state() const;

private:
    // The other end writes this memory. A position is the number of bytes that an end has sent before.
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
    // rsocket_connect.cpp has these.
    [[nodiscard]] std::string connect();
    [[nodiscard]] std::string await_connection();
    [[nodiscard]] int listening(sockaddr_in &address);
    [[nodiscard]] std::string wrong(int end, const char *call, long result) const;
    static bool is_break(int error);
    // The connection broke in this call. Where that may happen, the pair is renewed.
    [[nodiscard]] std::string broke(int end, const char *call);
    [[nodiscard]] std::string received(int end, long count, std::span<const std::byte> bytes,
                                       bool looked_only);
    [[nodiscard]] std::string check_placed(int end);
    [[nodiscard]] bool at_end(int end) const;
    // One thread of talk() reports this.
    struct Outcome {
        std::string wrong{};
        bool broke = false;
    };
    void speak(int end, std::uint64_t seed, std::size_t total, Bytes bytes, Outcome &outcome) const;
    void listen(int end, std::uint64_t seed, Outcome &outcome);
    // Each end sends this many bytes. This process sends and receives for the ends from first to last.
    [[nodiscard]] std::string converse(const std::array<std::uint64_t, 2> &totals, int first, int last);
    // rsocket_heirs.cpp has these.
    [[nodiscard]] std::string begin_to_hand_over(Inheritance &what, int &listener);
    [[nodiscard]] std::string end_of_heir(pid_t child, const Inheritance &what);
    void set_waiting(bool waits) const;
    void close_all();

    Dice &dice_;
    Setting &setting_;
    bool may_break_ = setting_.may_break;
    bool broken_ = true;  // not connected yet
    std::uint64_t times_ = 0;
    std::array<End, 2> ends_;
    std::vector<std::byte> room_;
};

}  // namespace model
