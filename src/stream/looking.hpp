// SPDX-License-Identifier: BSD-3-Clause
// stream/looking: whether a thread looks for work before it sleeps.
#pragma once

#include <chrono>

namespace stream {

// A look that finds nothing keeps the processor from the threads that would make work, perhaps from the
// peer's. So after each look in vain the thread sleeps at once twice as often before it looks again.
class Looking {
public:
    // A thread looks for so long before it sleeps, where nothing else is configured.
    static constexpr std::chrono::microseconds usual_time{30};

    [[nodiscard]] static bool is_worth_while() {
        if (sleeps_at_once_left == 0) {
            return true;
        }
        --sleeps_at_once_left;
        return false;
    }
    static void found(bool something) {
        constexpr unsigned most_sleeps_at_once = 1023;
        const unsigned more = 2 * sleeps_at_once + 1;
        sleeps_at_once = something ? 0 : more < most_sleeps_at_once ? more : most_sleeps_at_once;
        sleeps_at_once_left = sleeps_at_once;
    }
    // A call that did not ask is_worth_while() has found something with one look.
    static void found_at_once() {
        if (sleeps_at_once != 0) [[unlikely]] {
            sleeps_at_once_left != 0 ? --sleeps_at_once_left : sleeps_at_once = 0;
        }
    }

private:
    // They are small enough for the room that a process keeps for libraries that it loads late (dlopen(3)),
    // so that a thread finds its own without a call.
    [[gnu::tls_model("initial-exec")]] static constinit inline thread_local unsigned sleeps_at_once = 0;
    [[gnu::tls_model("initial-exec")]] static constinit inline thread_local unsigned sleeps_at_once_left =
        0;  // at most sleeps_at_once
};

}  // namespace stream
