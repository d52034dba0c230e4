// SPDX-License-Identifier: BSD-3-Clause
// soft/ground/wrong_keys: the origins whose peers ask for memory with keys that they were not given. A guess
// ends the guesser's connection. Beyond limits::InForce::wrong_keys_a_minute each further connection is
// delayed too, until the origin has been silent long enough for all its guesses, an hour at most.
#pragma once

#include <array>
#include <cstddef>
#include <optional>

#include "base/clock.hpp"
#include "base/origin.hpp"

namespace soft {

// It is thread-safe, and allocates no memory. When it has no room for another origin, it forgets the one with
// the fewest wrong keys.
class WrongKeys {
public:
    static constexpr std::size_t most_origins = 512;

    // Returns the one of the process.
    [[nodiscard]] static WrongKeys &instance();

    // Counts a key of a peer of the origin that was refused.
    void note(base::Origin origin, base::Clock::time_point now);
    // Returns whether the origin has used so many that its connections are delayed.
    [[nodiscard]] bool guesses(base::Origin origin, base::Clock::time_point now) const;
    // Returns how long a request from the origin waits before it is read. Up to the limit that is 0. Beyond
    // it the delay grows with the excess, to limits::longest_guess_delay, and begins at the turn of the
    // request before, so that connections that wait side by side guess no faster. Returns nothing, and gives
    // no turn, when the wait would be longer than limits::longest_guess_wait.
    [[nodiscard]] std::optional<base::Milliseconds> turn(base::Origin origin, base::Clock::time_point now);

private:
    struct Guesser {
        base::Origin origin{};
        double keys = 0;  // at the time `at`; since then the limit is taken off each minute
        base::Clock::time_point at;
        base::Clock::time_point last_turn;  // of a request; it may be in the future
    };
    [[nodiscard]] static double keys_of(const Guesser &guesser, base::Clock::time_point now);

    std::array<Guesser, most_origins> guessers_{};  // entries without keys are free
};

}  // namespace soft
