// SPDX-License-Identifier: BSD-3-Clause
// rsocket/poll: waiting for rsockets and other descriptors together.
#pragma once

#include <poll.h>

#include <span>

#include "rsocket/any_socket.hpp"
#include "rsocket/configuration.hpp"
#include "stream/looking.hpp"

namespace rsockets {

// Waits as poll(2), and returns how many entries have something. EINTR; EMFILE, ENFILE, ENOMEM: there is no
// descriptor for the thread to be woken by.
[[nodiscard]] Result<int> wait_for(std::span<pollfd> entries, Deadline deadline);

// Calls round.look(), which does not sleep, until it gives something else than 0, and returns that; 0 when
// the time is over. Between looks round.sleep(waiter, deadline) sleeps until there may be something.
template <typename Round>
[[nodiscard]] Result<int> wait_in_rounds(Round &round, Deadline deadline) {
    (void)stream::Shard::serve_expecting();
    const auto begin = base::Clock::now();
    const bool sleeps = !deadline || *deadline > begin;
    bool looks = !sleeps || stream::Looking::is_worth_while();
    const bool looks_first = looks && sleeps;
    for (bool first = true;; first = false) {
        while (looks) {
            Result<int> ready = round.look();
            const auto now = base::Clock::now();
            const bool is_over = !ready || *ready != 0 || (deadline && now >= *deadline);
            if (is_over || !first || now - begin >= configuration().polling_time) {
                if (first && looks_first) {
                    stream::Looking::found(ready && *ready != 0);
                }
                if (is_over) {
                    return ready;
                }
                break;
            }
        }
        const auto waiter = Waiter::of_this_thread();
        if (!waiter) {
            return std::unexpected{waiter.error()};
        }
        if (Result<void> slept = round.sleep(*waiter, deadline); !slept) {
            return std::unexpected{slept.error()};
        }
        looks = true;
    }
}

}  // namespace rsockets
