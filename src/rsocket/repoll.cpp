// SPDX-License-Identifier: BSD-3-Clause
// rsocket/repoll: its members, and how it wakes threads.
#include "rsocket/repoll.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace rsockets {

namespace {

constexpr std::uint32_t exclusive_takes =
    EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP | EPOLLWAKEUP | EPOLLET | EPOLLEXCLUSIVE;

// Puts a descriptor into an epoll set, level-triggered.
Result<void> put(int epoll, int fd, epoll_data_t data) {
    epoll_event event{.events = EPOLLIN, .data = data};
    return control_kernel(epoll, EPOLL_CTL_ADD, fd, &event);
}

}  // namespace

Result<std::shared_ptr<Repoll>> Repoll::create(int flags) {
    base::Fd outer{epoll_create1(flags)};
    base::Fd inner{outer ? epoll_create1(EPOLL_CLOEXEC) : -1};
    if (!inner) {
        return base::last_failure();
    }
    auto news = base::Readable::create();
    if (!news) {
        return std::unexpected{news.error()};
    }
    if (auto added = put(inner.get(), news->fd(), {.fd = news->fd()}); !added) {
        return std::unexpected{added.error()};
    }
    return std::make_shared<Repoll>(std::move(outer), std::move(inner), std::move(*news));
}

Repoll::Repoll(base::Fd outer, base::Fd inner, base::Readable outside_news)
    : outer_{std::move(outer)}, inner_{std::move(inner)}, outside_news_{std::move(outside_news)} {}

Repoll::~Repoll() = default;

Result<void> Repoll::control(int operation, int fd, const std::shared_ptr<AnySocket> &socket,
                             epoll_event *event) {
    if (fd == outer_.get()) {
        return base::failure(EINVAL);
    }
    const base::Lock lock{control_mutex_};
    if (closed_) {
        return base::failure(EBADF);
    }
    if (socket == nullptr) {
        auto done = control_kernel(outer_.get(), operation, fd, event);
        if (done && operation == EPOLL_CTL_ADD) {
            has_others_ = true;
            wake_sleepers();
        }
        return done;
    }
    auto known = members_.find(fd);
    if (known != members_.end() && known->second->socket() != socket) {
        remove(fd);  // close(2) was called instead of rclose
        known = members_.end();
    }
    if (operation != EPOLL_CTL_ADD && operation != EPOLL_CTL_MOD && operation != EPOLL_CTL_DEL) {
        return base::failure(EINVAL);
    }
    if (operation != EPOLL_CTL_DEL && event == nullptr) {
        return base::failure(EFAULT);
    }
    if (operation == EPOLL_CTL_ADD) {
        return known != members_.end() ? base::failure(EEXIST) : add(fd, socket, *event);
    }
    if (known == members_.end()) {
        return base::failure(ENOENT);
    }
    if (operation == EPOLL_CTL_MOD) {
        return modify(*known->second, *event);
    }
    remove(fd);
    return {};
}

Result<void> Repoll::add(int fd, const std::shared_ptr<AnySocket> &socket, const epoll_event &event) {
    if ((event.events & EPOLLEXCLUSIVE) != 0 && (event.events & ~exclusive_takes) != 0) {
        return base::failure(EINVAL);
    }
    if (!has_inner_) {
        if (auto added = put(outer_.get(), inner_.get(), {.ptr = this}); !added) {
            return added;
        }
        has_inner_ = true;
    }
    const auto entry = std::make_shared<Entry>(*this, weak_from_this(), socket, event);
    entry->is_checked = true;
    members_.emplace(fd, entry);
    if (auto prepared = prepare(*entry, *socket, event.events); !prepared) {
        members_.erase(fd);
        release(*entry, socket.get());
        return prepared;
    }
    socket->waiters().watch(entry);
    {
        const base::Lock lock{mutex_};
        entry->is_checked = false;
    }
    (void)queue(*entry);  // events that are there already
    return {};
}

Result<void> Repoll::modify(Entry &entry, const epoll_event &event) {
    if (entry.is_exclusive() || (event.events & EPOLLEXCLUSIVE) != 0) {
        return base::failure(EINVAL);
    }
    {
        const base::Lock lock{mutex_};
        entry.wanted = event;
        entry.is_disarmed = false;
        entry.is_modified = true;
    }
    (void)queue(entry);
    return {};
}

void Repoll::remove(int fd) {
    const auto entry = std::move(members_.at(fd));
    members_.erase(fd);
    const auto socket = entry->socket();
    if (socket != nullptr) {
        (void)socket->waiters().unwatch(*entry);
    }
    bool is_checked = false;
    {
        const base::Lock lock{mutex_};
        entry->is_removed = true;
        is_checked = entry->is_checked;
        if (entry->out_of_line.empty()) {
            entry->out_of_line.splice(entry->out_of_line.end(), ready_, entry->place);
        }
    }
    if (!is_checked) {
        release(*entry, socket.get());
    }
}

void Repoll::forget(const Entry &entry) {
    const base::Lock lock{control_mutex_};
    const auto known =
        std::ranges::find_if(members_, [&](const auto &member) { return member.second.get() == &entry; });
    if (known != members_.end()) {
        remove(known->first);
    }
}

void Repoll::close() {
    if (inherited()) {
        // The kernel's sets and their members are the parent's too. The child does not destroy this object.
        (void)::close(outer_.get());
        return;
    }
    const base::Lock lock{control_mutex_};
    closed_ = true;
    while (!members_.empty()) {
        remove(members_.begin()->first);
    }
    wake_sleepers();
}

// ---- waking ----

bool Repoll::queue(Entry &entry) {
    const base::Lock lock{mutex_};
    if (entry.is_removed || entry.is_disarmed) {
        return false;
    }
    if (entry.is_checked) {
        entry.is_changed = true;
        return true;
    }
    return put_in_line(entry);
}

bool Repoll::put_in_line(Entry &entry) {
    if (!entry.out_of_line.empty()) {
        ready_.splice(ready_.end(), entry.out_of_line);
    }
    return wake_one();
}

// If this thread has begun to sleep, it is still awake and looks once more: no other has to be woken.
bool Repoll::wake_one() {
    if (is_watched_outside_) {
        outside_news_.set(true);
    }
    if (std::ranges::any_of(sleepers_, [](const auto &one) { return one->is_awake(); })) {
        return true;
    }
    if (sleepers_.empty()) {
        return false;
    }
    sleepers_.front()->wake();
    sleepers_.erase(sleepers_.begin());
    return true;
}

void Repoll::wake_sleepers() {
    const base::Lock lock{mutex_};
    for (const auto &sleeper : std::exchange(sleepers_, {})) {
        sleeper->wake();
    }
}

}  // namespace rsockets
