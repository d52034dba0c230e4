// SPDX-License-Identifier: BSD-3-Clause
// rsocket/poll: waiting for rsockets and other descriptors together.
#include "rsocket/poll.hpp"

#include <algorithm>
#include <cerrno>

#include "rsocket/table.hpp"

namespace rsockets {

namespace {

// It is one call of poll. It asks the kernel about the entries that are no rsockets, and, while this thread
// sleeps, about the descriptors behind the rsockets.
class Round {
public:
    explicit Round(std::span<pollfd> entries) : entries_{entries} {
        sockets_.reserve(entries.size());
        for (const pollfd &entry : entries) {
            sockets_.push_back(Table::instance().find(entry.fd).shared());
            if (sockets_.back() == nullptr) {
                others_.push_back(entry);
            }
        }
    }

    // Returns how many entries have something now.
    [[nodiscard]] Result<int> look() {
        advance();
        for (const auto &shard : shards_) {
            const base::Lock lock{shard->mutex()};
            (void)shard->serve();
        }
        for (std::size_t i = 0; i < entries_.size(); ++i) {
            if (sockets_[i] != nullptr) {
                entries_[i].revents = sockets_[i]->readiness(entries_[i].events);
            }
        }
        if (!others_.empty() && ::poll(others_.data(), others_.size(), 0) < 0) {
            return base::last_failure();
        }
        return count(others_);
    }

    // Sleeps until an entry may have something, unless look() finds something before.
    [[nodiscard]] Result<void> sleep(const std::shared_ptr<Waiter> &waiter, Deadline deadline) {
        Sleep sleep{waiter};
        for (const pollfd &other : others_) {
            sleep.add(other);
        }
        std::size_t begun = 0;
        const AfterSleep ends{[&] {
            while (begun-- > 0) {
                if (sockets_[begun] != nullptr) {
                    sockets_[begun]->end_wait(sleep);
                }
            }
        }};
        Result<void> result;
        for (; begun < sockets_.size() && result; ++begun) {
            if (sockets_[begun] != nullptr) {
                result = sockets_[begun]->begin_wait(sleep, entries_[begun].events);
            }
        }
        if (result) {
            const auto ready = look();
            result = !ready        ? std::unexpected{ready.error()}
                     : *ready != 0 ? Result<void>{}
                                   : sleep.until(deadline);
        }
        return result;
    }

private:
    // Advances the rsockets, and finds the shards that are to be served.
    void advance() {
        shards_.clear();
        for (const auto &socket : sockets_) {
            const auto shard = socket != nullptr ? socket->advance() : nullptr;
            if (shard != nullptr && std::ranges::find(shards_, shard) == shards_.end()) {
                shards_.push_back(shard);
            }
        }
    }

    // Copies the kernel's answers for the other entries, and returns how many entries have something.
    [[nodiscard]] int count(std::span<const pollfd> others) {
        int ready = 0;
        for (std::size_t i = 0; i < entries_.size(); ++i) {
            if (sockets_[i] == nullptr) {
                entries_[i].revents = others.front().revents;
                others = others.subspan(1);
            }
            ready += entries_[i].revents != 0 ? 1 : 0;
        }
        return ready;
    }

    std::span<pollfd> entries_;
    std::vector<std::shared_ptr<AnySocket>> sockets_;
    std::vector<pollfd> others_;
    std::vector<std::shared_ptr<stream::Shard>> shards_;
};

}  // namespace

Result<int> wait_for(std::span<pollfd> entries, Deadline deadline) {
    Round round{entries};
    return wait_in_rounds(round, deadline);
}

}  // namespace rsockets
