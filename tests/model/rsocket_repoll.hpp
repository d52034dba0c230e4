// SPDX-License-Identifier: BSD-3-Clause
// model/rsocket_repoll: a repoll with ends of pairs in it, in every mode of epoll(7), and its oracle. The
// oracle knows which ends a wait must report and which it may report, and checks that the calls that it
// promises do not wait.
#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <map>
#include <string>

#include "rsocket_pair.hpp"

namespace model {

// A function of this class that returns a string returns "" or a text that says what is wrong.
class RsocketRepoll {
public:
    explicit RsocketRepoll(Dice &dice);
    ~RsocketRepoll();
    RsocketRepoll(const RsocketRepoll &) = delete;
    RsocketRepoll &operator=(const RsocketRepoll &) = delete;

    // Adds an end of a pair, or changes or removes it.
    [[nodiscard]] std::string control(RsocketPair &pair, int end);
    // Waits, now and then in a thread of its own that sleeps until bytes come, and uses the ends that the
    // wait reports.
    [[nodiscard]] std::string wait();
    // A forked child runs this. It has lost the repoll.
    [[nodiscard]] std::string check_in_child();

private:
    struct Member {
        RsocketPair *pair;
        int end;
        int fd;
        std::uint64_t times;  // the pair's
        std::uint32_t events;
        // An edge-triggered end is due when it is new, or was seen with nothing ready since the last report.
        bool is_due = true;
        bool is_disarmed = false;
        bool must_be_told = false;
    };
    using Members = std::map<std::uint64_t, Member>;

    void forget_closed();
    [[nodiscard]] Members::iterator member_of(const RsocketPair &pair, int end);
    [[nodiscard]] std::uint32_t any_events(bool may_be_exclusive);
    [[nodiscard]] std::string change(std::uint64_t number, Member &member);
    [[nodiscard]] std::string look();
    [[nodiscard]] std::string told(const epoll_event &event);
    [[nodiscard]] std::string wrong(const char *what, const Member &member) const;

    Dice &dice_;
    const int fd_;
    std::uint64_t added_ = 0;
    Members members_;  // by what epoll_event.data says of them
};

}  // namespace model
