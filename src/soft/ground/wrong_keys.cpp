// SPDX-License-Identifier: BSD-3-Clause
#include "soft/ground/wrong_keys.hpp"

#include <algorithm>
#include <chrono>

#include "base/fork.hpp"
#include "base/mutex.hpp"
#include "soft/ground/limits.hpp"

namespace soft {

namespace {

constinit base::LastingMutex lock_of_guessers;  // one for all tables; no other lock is taken with it

const base::HeldWhileForking<lock_of_guessers> guessers_survive_forks{base::ForkLevel::SoftGround};

// After its last guess an origin is delayed at most this long.
constexpr double minutes_remembered = 60;

double most_free() {
    return static_cast<double>(limits::in_force().wrong_keys_a_minute);
}

}  // namespace

WrongKeys &WrongKeys::instance() {
    static constinit WrongKeys all;
    return all;
}

double WrongKeys::keys_of(const Guesser &guesser, base::Clock::time_point now) {
    const std::chrono::duration<double, std::ratio<60>> minutes = now - guesser.at;
    return std::max(guesser.keys - minutes.count() * most_free(), 0.0);
}

// The count goes beyond the number for the longest delay. Each connection that was open before gives a guess
// without a delay, and later connections are delayed for those guesses.
void WrongKeys::note(base::Origin origin, base::Clock::time_point now) {
    const base::Lock lock{lock_of_guessers};
    auto *place = std::ranges::find(guessers_, origin, &Guesser::origin);
    if (place == guessers_.end()) {
        place =
            std::ranges::min_element(guessers_, {}, [&](const Guesser &one) { return keys_of(one, now); });
        *place = {.origin = origin, .keys = 0, .at = now, .last_turn = {}};
    }
    place->keys = std::min(keys_of(*place, now) + 1, minutes_remembered * most_free());
    place->at = now;
}

bool WrongKeys::guesses(base::Origin origin, base::Clock::time_point now) const {
    const base::Lock lock{lock_of_guessers};
    const auto *const known = std::ranges::find(guessers_, origin, &Guesser::origin);
    return known != guessers_.end() && keys_of(*known, now) > most_free();
}

std::optional<base::Milliseconds> WrongKeys::turn(base::Origin origin, base::Clock::time_point now) {
    const base::Lock lock{lock_of_guessers};
    auto *const known = std::ranges::find(guessers_, origin, &Guesser::origin);
    const double beyond = known != guessers_.end() ? keys_of(*known, now) / most_free() - 1 : 0;
    if (beyond <= 0) {
        return base::Milliseconds{};
    }
    const double delay = std::min(beyond, 1.0) * static_cast<double>(limits::longest_guess_delay.count());
    const auto at =
        std::max(known->last_turn, now) + base::Milliseconds{static_cast<base::Milliseconds::rep>(delay)};
    if (at - now > limits::longest_guess_wait) {
        return std::nullopt;
    }
    known->last_turn = at;
    return std::chrono::ceil<base::Milliseconds>(at - now);
}

}  // namespace soft
