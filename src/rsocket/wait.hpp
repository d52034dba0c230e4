// SPDX-License-Identifier: BSD-3-Clause
// rsocket/wait: how long a call of the program waits until its attempt succeeds, and how it looks for work
// meanwhile.
#pragma once

#include <type_traits>

#include "rsocket/carrier.hpp"
#include "rsocket/configuration.hpp"
#include "stream/looking.hpp"

namespace rsockets {

// The caller of all functions holds the rsocket's lock, which a thread that sleeps lets go of. An attempt
// begins with Carrier::assert_looks(): it is made with the stream's lock held, if there is a stream. It is
// waiting when it gives EAGAIN.
class Wait {
public:
    // blocks: whether the call waits. Otherwise it goes on only while there is something.
    Wait(Carrier &carrier, bool blocks, Deadline deadline = {})
        : carrier_{carrier}, blocks_{blocks}, deadline_{deadline} {}
    // A timeout of 0 is none.
    [[nodiscard]] static Deadline deadline_of(milliseconds timeout) {
        return timeout.count() != 0 ? Deadline{base::Clock::now() + timeout} : std::nullopt;
    }
    void end_at(Deadline deadline) { deadline_ = deadline; }
    [[nodiscard]] bool blocks() const { return blocks_; }

    template <typename Answer>
    [[nodiscard]] static bool is_waiting(const Answer &answer) {
        return !answer && answer.error().number == EAGAIN;
    }
    // Attempts it once.
    template <typename Attempt>
    [[gnu::always_inline]] std::invoke_result_t<Attempt> look(Attempt attempt) {
        bool ignored = false;
        return look(attempt, false, ignored);
    }
    // Looks until the attempt gives something else than EAGAIN, and sleeps meanwhile.
    template <typename Attempt>
    std::invoke_result_t<Attempt> until(Attempt attempt) {
        auto answer = look(attempt);  // bytes that are here already: the device need not be asked
        if (is_waiting(answer)) {
            answer = keep_looking(attempt);
        }
        return answer;
    }
    // Does the same after a look in vain.
    template <typename Attempt>
    [[gnu::noinline]] std::invoke_result_t<Attempt> keep_looking(Attempt attempt);

private:
    // `serves`: serves the stream's shard first, and notes whether there was anything for any stream.
    template <typename Attempt>
    [[gnu::always_inline]] std::invoke_result_t<Attempt> look(Attempt &attempt, bool serves, bool &any) {
        carrier_.mutex().assert_held();
        carrier_.go_on();
        if (carrier_.is_closed() || carrier_.state() == Carrier::State::Lost) {
            return carrier_.is_closed() ? base::failure(EBADF) : carrier_.lost();
        }
        StreamLock in_stream{carrier_.stream()};
        any = serves && in_stream && carrier_.stream()->serve_shard();
        if (any && carrier_.is_beginning()) {
            in_stream.unlock();
            carrier_.go_on();  // with the answer that may have come
            in_stream.lock(carrier_.stream());
        }
        return attempt();
    }

    Carrier &carrier_;
    const bool blocks_;
    Deadline deadline_;
};

template <typename Attempt>
std::invoke_result_t<Attempt> Wait::keep_looking(Attempt attempt) {
    constexpr int most_rounds = 8;
    bool any = false;
    const auto serve_and_look = [&] { return look(attempt, true, any); };
    carrier_.mutex().assert_held();
    (void)stream::Shard::serve_expecting();
    std::invoke_result_t<Attempt> result = base::failure(EAGAIN);
    if (!blocks_ || stream::Looking::is_worth_while()) {
        const auto begin = blocks_ ? base::Clock::now() : base::Clock::time_point{};
        for (int round = 1; is_waiting(result); ++round) {
            result = serve_and_look();
            // A call that does not wait goes on only while there is something, and for at most most_rounds
            // rounds.
            if (!is_waiting(result) || (blocks_ ? base::Clock::now() - begin >= configuration().polling_time
                                                : !any || round == most_rounds)) {
                break;
            }
            carrier_.mutex().unlock();
            carrier_.mutex().lock();
        }
        if (blocks_) {
            stream::Looking::found(!is_waiting(result));
        }
    }
    while (blocks_ && is_waiting(result) && (!deadline_ || base::Clock::now() < *deadline_)) {
        const auto waiter = Waiter::of_this_thread();
        if (!waiter) {
            return std::unexpected{waiter.error()};
        }
        {
            Sleep sleep{*waiter};
            const AfterSleep ends{[&] { carrier_.rsocket().waiters().remove(sleep.waiter()); }};
            auto slept = carrier_.begin_wait(sleep);
            if (slept) {
                result = serve_and_look();
            }
            if (slept && is_waiting(result)) {
                const base::Unlock unlocked{carrier_.mutex()};
                slept = sleep.until(deadline_);
            }
            if (!slept) {
                return std::unexpected{slept.error()};
            }
        }
        if (is_waiting(result)) {
            result = serve_and_look();
        }
    }
    return result;
}

}  // namespace rsockets
