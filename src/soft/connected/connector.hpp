// SPDX-License-Identifier: BSD-3-Clause
// soft/connected/connector: what connects a queue pair by number (cm/by_number), as the queue pair sees it.
#pragma once

#include <infiniband/verbs.h>

#include "base/clock.hpp"
#include "base/result.hpp"

namespace soft {

// The queue pair calls it with no lock of a group held, one call at a time, except send_waits().
class Connector {
public:
    Connector() = default;
    Connector(const Connector &) = delete;
    Connector &operator=(const Connector &) = delete;
    virtual ~Connector() = default;

    // Takes the path to the peer and the peer's number, and lets the peer in from now on. Fails with EINVAL,
    // logged, when no path is named, and with EMFILE, ENFILE or ENOMEM.
    [[nodiscard]] virtual base::Result<void> aim(const ibv_qp_attr &attributes) = 0;
    // Tries to connect, after aim(), once the queue pair wants a link.
    virtual void begin() = 0;
    // Says how long a peer has to answer when requests wait; duration::max() for ever.
    virtual void expect_answer_within(base::Clock::duration time) = 0;
    // Is called when requests wait for a link: it tries again and again, until the time is over that a peer
    // has to answer.
    virtual void send_waits() = 0;
    // Lets no peer in, and stops trying. Afterwards it starts no link.
    virtual void stop() = 0;
};

}  // namespace soft
