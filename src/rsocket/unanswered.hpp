// SPDX-License-Identifier: BSD-3-Clause
// rsocket/unanswered: rsockets that a thread has accepted, and whose peers wait for an answer. The program's
// first use of the rsocket answers. But a program may first wait for something else, and a client in TCP
// would be connected by then. Therefore the thread also answers while it sleeps.
#pragma once

#include <memory>
#include <vector>

#include "base/fork.hpp"
#include "base/result.hpp"

namespace rsockets {

class AnySocket;
class Sleep;

class Unanswered : public base::Inheritable {
public:
    // A forked child begins with none. Its parent answers the peers of the rsockets that it accepted, unless
    // the child uses them first.
    [[nodiscard]] static Unanswered &of_this_thread();

    // A thread that never sleeps keeps no more places than twice the rsockets that lived at a time.
    void add(const std::shared_ptr<AnySocket> &accepted);
    // Answers the peers that have asked, and has the sleep end when another one asks. Returns whether this
    // did something; the caller looks again then, and does not sleep. The caller holds no lock, and calls
    // end_wait() in any case.
    [[nodiscard]] base::Result<bool> begin_wait(Sleep &sleep);
    void end_wait(const Sleep &sleep);

private:
    std::vector<std::weak_ptr<AnySocket>> sockets_;
    std::vector<std::shared_ptr<AnySocket>> waited_for_;
};

}  // namespace rsockets
