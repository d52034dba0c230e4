// SPDX-License-Identifier: BSD-3-Clause
// soft/wrong_keys: the origins whose peers ask for memory with keys that they were not given. A guess costs
// the guesser a connection; beyond so many a minute (limits::wrong_keys_a_minute) each next connection costs
// it time too.
#pragma once

#include <array>
#include <cstddef>

#include "base/clock.hpp"
#include "soft/origin.hpp"

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
    // How long the next request from there waits before it is looked at: nothing up to the limit, then in
    // proportion to what is beyond it, and at most limits::longest_guess_delay.
    [[nodiscard]] base::Milliseconds delay(Origin origin, base::Clock::time_point now) const;

private:
    struct Guesser {
        Origin origin{};
        double keys = 0;  // at `at`; since then the limit's worth of them is forgotten each minute
        base::Clock::time_point at;
    };
    [[nodiscard]] static double keys_of(const Guesser &guesser, base::Clock::time_point now);

    std::array<Guesser, most_origins> guessers_{};  // those with no keys are free
};

}  // namespace soft
