// SPDX-License-Identifier: BSD-3-Clause
// soft/cm/number_port: a TCP port of this process, at which peers find its queue pairs by their numbers. The
// port is bound as long as the process lives, because programs tell others the numbers, and listens from the
// first queue pair on that is ready to receive.
#pragma once

#include <cerrno>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/fd.hpp"
#include "base/fork.hpp"
#include "base/mutex.hpp"
#include "base/result.hpp"
#include "soft/cm/listener.hpp"
#include "soft/progress/brief_wait.hpp"
#include "soft/progress/progress.hpp"

namespace soft {

class NumberPort final : public Listener::Owner {
public:
    NumberPort(base::Fd socket, std::uint16_t port) : port_{port}, socket_{std::move(socket)} {}
    NumberPort(const NumberPort &) = delete;
    NumberPort &operator=(const NumberPort &) = delete;
    virtual ~NumberPort() = default;

    // Lets peers in. Returns the group that serves the listener, the same for all ports. Fails with EMFILE,
    // ENFILE, ENOMEM, or an error of listen(2).
    [[nodiscard]] base::Result<std::shared_ptr<Group>> listen();

    // Returns for how long its queue pairs wait for other groups. The lock of the ports' group is held.
    [[nodiscard]] BriefWait &waits() { return waits_; }

    // ---- Listener::Owner ----
    void request_arrived(Handshake &handshake, const wire::MpaFrame &request) override;

private:
    friend class QueuePairNumber;
    static constexpr std::size_t places = 127;  // with the place 127 the number would be multicast's
    // A place is used again after all others. So many numbers are unused at any time that a new queue pair
    // does not get the number of one that has just gone.
    static constexpr std::size_t most_taken = 64;

    const std::uint16_t port_;
    BriefWait waits_;
    // It is held while the port begins to listen, which waits for the group's lock.
    base::Mutex begins_;
    base::Fd socket_ GUARDED_BY(begins_);  // until it listens
    std::unique_ptr<Listener> listener_ GUARDED_BY(begins_);
    std::vector<bool> is_taken_ = std::vector<bool>(places);
    std::size_t taken_ = 0;
    std::size_t next_ = 0;
};

}  // namespace soft
