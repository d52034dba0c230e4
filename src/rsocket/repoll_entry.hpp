// SPDX-License-Identifier: BSD-3-Clause
// rsocket/repoll_entry: an rsocket in a repoll.
#pragma once

#include <sys/epoll.h>

#include <list>
#include <memory>
#include <vector>

#include "rsocket/any_socket.hpp"

namespace rsockets {

// Returns the events as poll(2) has them, with the same values.
[[nodiscard]] inline short poll_events(std::uint32_t events) {
    return static_cast<short>(events & 0x7fff);
}

// Calls epoll_ctl(2).
[[nodiscard]] inline Result<void> control_kernel(int epoll, int operation, int fd, epoll_event *event) {
    return epoll_ctl(epoll, operation, fd, event) == 0 ? Result<void>{} : base::last_failure();
}

class RepollEntry;

// The repoll, as its entries see it.
class EntryOwner {
public:
    // Puts the entry in line. Returns whether a thread was woken for it, or is awake.
    virtual bool queue(RepollEntry &entry) = 0;
    // Takes the entry out: its rsocket is closed.
    virtual void forget(const RepollEntry &entry) = 0;

protected:
    ~EntryOwner() = default;
};

class RepollEntry final : public Watcher, public std::enable_shared_from_this<RepollEntry> {
public:
    RepollEntry(EntryOwner &repoll, std::weak_ptr<EntryOwner> shared_repoll,
                const std::shared_ptr<AnySocket> &socket, const epoll_event &event)
        : wanted{event},
          repoll_{repoll},
          shared_repoll_{std::move(shared_repoll)},
          socket_{socket},
          exclusive_{(event.events & EPOLLEXCLUSIVE) != 0} {}

    [[nodiscard]] std::shared_ptr<AnySocket> socket() const { return socket_.lock(); }
    bool changed() override { return repoll_.queue(*this); }
    [[nodiscard]] bool is_exclusive() const override { return exclusive_; }
    void closed() override {
        if (const auto repoll = shared_repoll_.lock()) {
            repoll->forget(*this);
        }
    }

    // The repoll uses all that follows. Its mutex_ guards these:
    epoll_event wanted;
    bool is_disarmed = false;  // EPOLLONESHOT has told
    bool is_removed = false;
    bool is_checked = false;                     // by one thread at a time, without the lock
    bool is_changed = false;                     // since that began
    bool is_modified = false;                    // since that began, by EPOLL_CTL_MOD
    std::list<RepollEntry *> out_of_line{this};  // empty while it is in ready_
    const std::list<RepollEntry *>::iterator place = out_of_line.begin();
    // The thread that checks the entry uses these:
    std::vector<pollfd> kernels;
    std::shared_ptr<stream::Shard> shard;

private:
    EntryOwner &repoll_;  // unwatches before it goes
    const std::weak_ptr<EntryOwner> shared_repoll_;
    const std::weak_ptr<AnySocket> socket_;
    const bool exclusive_;
};

}  // namespace rsockets
