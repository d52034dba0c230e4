// SPDX-License-Identifier: BSD-3-Clause
// soft/ground/wrong_keys: the origins whose peers ask for memory with keys that they were not given. A guess
// costs the guesser a connection; beyond so many a minute (limits::wrong_keys_a_minute) each next connection
// costs it time too, until the origin has been silent long enough for all its guesses, an hour at most.
#pragma once

#include <array>
#include <cstddef>
#include <optional>

#include "base/clock.hpp"
#include "soft/ground/origin.hpp"

namespace soft {

// Thread-safe, and needs no memory. When it has no room for another origin, it forgets that with the fewest
// wrong keys.
class WrongKeys {
public:
    static constexpr std::size_t most_origins = 512;

    // The process has one.
    [[nodiscard]] static WrongKeys &instance();

    // A peer there had its key refused.
    void note(Origin origin, base::Clock::time_point now);
    // A request comes from there: how long it waits before it is looked at. Nothing up to the limit. Beyond
    // it, since the turn of the request before, in proportion to what is beyond, and at most
    // limits::longest_guess_delay: connections that wait side by side guess no faster. Nothing, and no turn,
    // when that would be later than limits::longest_guess_wait.
    [[nodiscard]] std::optional<base::Milliseconds> turn(Origin origin, base::Clock::time_point now);

private:
    struct Guesser {
        Origin origin{};
        double keys = 0;  // at `at`; since then the limit's worth of them is forgotten each minute
        base::Clock::time_point at;
        base::Clock::time_point last_turn;  // of a request; it may be still to come
    };
    [[nodiscard]] static double keys_of(const Guesser &guesser, base::Clock::time_point now);

    std::array<Guesser, most_origins> guessers_{};  // those with no keys are free
};

}  // namespace soft
