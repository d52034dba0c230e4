// SPDX-License-Identifier: BSD-3-Clause
// carry_actor: one of the processes of the model `carry`. It does what commands say, with its own sockets.
#pragma once

#include <sys/epoll.h>

#include <cstddef>
#include <cstdint>
#include <map>

namespace model {

enum class Call : std::uint32_t {
    Listen,   // Outcome::value is the port
    Connect,  // to the port `count`
    Accept,
    Send,          // by the call number `kind`
    Receive,       // by the call number `kind`; of what is there when `settled` bytes are
    Nothing,       // a receive that finds nothing
    Wait,          // by poll, select or epoll, for `mask`; `settled` bytes are there
    Settle,        // until `settled` bytes are there; `mask`: and these events of poll
    Acknowledges,  // sends the acknowledgement of the peer's end now
    Acknowledged,  // until the peer has acknowledged this end's
    Talk,          // sends and receives at once; `kind` is the way
    Shut,
    Close,
    Reset,
    Urgent,       // sends a byte of urgent data
    TakeUrgent,   // receives it
    Drain,        // receives to the end, of which it tells the error
    Watch,        // adds the socket to the actor's epoll set, or changes it there
    Unwatch,      // takes it out
    Options,      // sets and reads options
    Duplicate,    // dup, and closes the old number
    ChildUses,    // a forked child sends (`kind` even) or receives
    ChildCloses,  // a forked child closes it, or ends
    Executes,     // a program gets it as its standard input
    Passes,       // sends the descriptor to the driver, and keeps none
    Takes,        // gets it
    Interrupted,  // a handler of a signal sends while the thread receives
    Ends          // the actor's end
};

// The direction's bytes are a function of its key and of the place.
struct Command {
    Call call{};
    std::uint32_t slot = 0;
    std::uint32_t kind = 0;
    std::uint32_t mask = 0;
    std::uint64_t count = 0;
    std::uint64_t count_in = 0;
    std::uint64_t settled = 0;
    std::uint64_t out_key = 0;
    std::uint64_t out_place = 0;
    std::uint64_t in_key = 0;
    std::uint64_t in_place = 0;
    bool is_last = false;  // what comes after the end does not count
};

struct Outcome {
    std::int64_t value = 0;
    std::int32_t error = 0;
    std::uint32_t is_wrong = 0;  // other bytes came than were sent
};

class Actor {
public:
    explicit Actor(int passing) : passing_{passing} {}
    [[nodiscard]] Outcome act(const Command &command);

private:
    [[nodiscard]] Outcome begin(const Command &command);
    [[nodiscard]] Outcome send(const Command &command) const;
    [[nodiscard]] Outcome receive(const Command &command) const;
    [[nodiscard]] Outcome nothing(const Command &command) const;
    [[nodiscard]] Outcome wait(const Command &command);
    [[nodiscard]] Outcome talk(const Command &command);
    [[nodiscard]] Outcome drain(const Command &command) const;
    [[nodiscard]] Outcome watch(const Command &command);
    [[nodiscard]] Outcome options(const Command &command) const;
    [[nodiscard]] Outcome child(const Command &command);
    [[nodiscard]] Outcome interrupted(const Command &command) const;
    [[nodiscard]] Outcome passes(const Command &command);
    [[nodiscard]] int moves(std::uint32_t slot);
    [[nodiscard]] int fd(const Command &command) const { return fds_.at(command.slot); }

    int passing_;  // a socket of the Unix domain, to the driver
    int listener_ = -1;
    int epoll_ = -1;
    std::map<std::uint32_t, int> fds_;
};

// A program that gets a socket as its standard input: reads so many bytes. Returns its exit code.
[[nodiscard]] int read_standard_input(std::uint64_t key, std::uint64_t place, std::uint64_t count);

}  // namespace model
