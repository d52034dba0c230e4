// SPDX-License-Identifier: BSD-3-Clause
// rsocket/repoll: the descriptors by which it learns of its members.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "rsocket/repoll.hpp"

namespace rsockets {

Result<void> Repoll::prepare(Entry &entry, AnySocket &socket, std::uint32_t events) {
    const auto shard = socket.advance();
    // A stream has none.
    auto watched = shard == nullptr || shard != entry.shard ? socket.watch(poll_events(events))
                                                            : Result<std::vector<pollfd>>{};
    auto done = watched ? watch_kernels(entry, *watched) : std::unexpected{watched.error()};
    if (done && shard != entry.shard) {
        follow(entry, shard);
        if (shard != nullptr) {
            const base::Lock lock{shard->mutex()};
            (void)shard->serve();
        }
    }
    return done;
}

// Keeps an entry's descriptors in inner_, edge-triggered: when one becomes ready the entry is put in line.
Result<void> Repoll::watch_kernels(Entry &entry, std::span<const pollfd> descriptors) {
    for (const pollfd &before : entry.kernels) {
        if (std::ranges::find(descriptors, before.fd, &pollfd::fd) == descriptors.end()) {
            const base::Lock lock{mutex_};
            const auto known = watched_.find(before.fd);
            if (known != watched_.end() && known->second.get() == &entry) {  // the number is not another's
                (void)epoll_ctl(inner_.get(), EPOLL_CTL_DEL, before.fd, nullptr);
                watched_.erase(known);
            }
        }
    }
    const auto before = std::exchange(entry.kernels, {});
    for (const pollfd &descriptor : descriptors) {
        const auto known = std::ranges::find(before, descriptor.fd, &pollfd::fd);
        const bool is_known = known != before.end();
        if (!is_known || known->events != descriptor.events) {
            {
                const base::Lock lock{mutex_};
                watched_.insert_or_assign(descriptor.fd, entry.shared_from_this());
            }
            epoll_event event{.events = static_cast<std::uint32_t>(descriptor.events) | EPOLLRDHUP | EPOLLET,
                              .data = {.fd = descriptor.fd}};
            if (auto added = control_kernel(inner_.get(), is_known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD,
                                            descriptor.fd, &event);
                !added) {
                return added;
            }
        }
        entry.kernels.push_back(descriptor);
    }
    return {};
}

void Repoll::follow(Entry &entry, const std::shared_ptr<stream::Shard> &shard) {
    const auto before = std::exchange(entry.shard, shard);
    const base::Lock lock{shards_mutex_};
    if (shard != nullptr) {
        auto known = std::ranges::find(shards_, shard, &Followed::shard);
        if (known == shards_.end()) {
            known = shards_.insert(known, {.shard = shard, .members = 0, .watched = {}});
            wake_sleepers();  // they do not sleep on its descriptors
        }
        ++known->members;
        if (is_watched_outside_) {
            watch_outside(*known);
        }
    }
    const auto known = std::ranges::find(shards_, before, &Followed::shard);
    if (before != nullptr && known != shards_.end() && --known->members == 0) {
        unwatch_outside(*known);
        shards_.erase(known);
    }
}

void Repoll::release(Entry &entry, AnySocket *socket) {
    (void)watch_kernels(entry, {});
    follow(entry, nullptr);
    if (socket != nullptr && !socket->waiters().unwatch(entry)) {
        socket->end_watch();
    }
}

// ---- for other loops that wait for outer_ ----

// Watches the shards first, and then serves them, which finds earlier completions.
void Repoll::begin_outside() {
    {
        const base::Lock lock{shards_mutex_};
        is_watched_outside_ = true;
        for (Followed &followed : shards_) {
            watch_outside(followed);
        }
    }
    (void)serve_shards();
}

void Repoll::end_outside() {
    const base::Lock lock{shards_mutex_};
    is_watched_outside_ = false;
    for (Followed &followed : shards_) {
        unwatch_outside(followed);
    }
    const base::Lock news{mutex_};
    outside_news_.set(false);
}

void Repoll::watch_outside(Followed &followed) {
    std::vector<int> descriptors;
    {
        const base::Lock lock{followed.shard->mutex()};
        if (!followed.shard->begin_watch(descriptors, !followed.watched.empty())) {
            return;  // a thread that waits has its own error
        }
    }
    for (const int fd : descriptors) {
        epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
        (void)epoll_ctl(inner_.get(), EPOLL_CTL_ADD, fd, &event);  // or it is there
    }
    followed.watched = std::move(descriptors);
}

void Repoll::unwatch_outside(Followed &followed) {
    if (followed.watched.empty()) {
        return;
    }
    for (const int fd : std::exchange(followed.watched, {})) {
        (void)epoll_ctl(inner_.get(), EPOLL_CTL_DEL, fd, nullptr);
    }
    const base::Lock lock{followed.shard->mutex()};
    followed.shard->end_watch();
}

}  // namespace rsockets
