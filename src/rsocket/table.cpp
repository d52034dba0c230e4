// SPDX-License-Identifier: BSD-3-Clause
// rsocket/table: which descriptors are rsockets.
#include "rsocket/table.hpp"

#include <pthread.h>

#include <mutex>
#include <utility>

#include "rsocket/leaving.hpp"

namespace rsockets {

namespace {

// The table is whole when a process forks. What the sockets' locks guard may be half done by other threads;
// the child uses it only where a socket has no stream.
[[maybe_unused]] const int renews_after_forks =
    pthread_atfork([] { Table::instance().before_fork(); }, [] { Table::instance().after_fork_in_parent(); },
                   [] { Table::instance().after_fork_in_child(); });

}  // namespace

// Never destroyed: other threads may be in a call when main() returns.
Table &Table::instance() {
    static auto *const table = new Table;
    return *table;
}

std::shared_ptr<AnySocket> Table::find(int fd) const {
    const std::shared_lock lock{*mutex_};
    const auto index = static_cast<std::size_t>(fd);
    return fd >= 0 && index < by_fd_.size() ? by_fd_[index] : nullptr;
}

int Table::add(std::shared_ptr<AnySocket> socket) {
    (void)Leaving::instance().sweep();
    const std::scoped_lock lock{*mutex_};
    const int fd = socket->fd();
    const auto index = static_cast<std::size_t>(fd);
    if (index >= by_fd_.size()) {
        by_fd_.resize(index + 1);
    }
    by_fd_[index] = std::move(socket);
    return fd;
}

std::shared_ptr<AnySocket> Table::remove(int fd) {
    const std::scoped_lock lock{*mutex_};
    const auto index = static_cast<std::size_t>(fd);
    return fd >= 0 && index < by_fd_.size() ? std::exchange(by_fd_[index], nullptr) : nullptr;
}

std::shared_ptr<Repoll> Table::find_repoll(int fd) const {
    const std::shared_lock lock{*mutex_};
    const auto found = repolls_.find(fd);
    return found != repolls_.end() ? found->second : nullptr;
}

int Table::add(std::shared_ptr<Repoll> repoll) {
    const std::scoped_lock lock{*mutex_};
    const int fd = repoll->fd();
    repolls_.insert_or_assign(fd, std::move(repoll));
    return fd;
}

std::shared_ptr<Repoll> Table::remove_repoll(int fd) {
    const std::scoped_lock lock{*mutex_};
    const auto found = repolls_.extract(fd);
    return found ? std::move(found.mapped()) : nullptr;
}

bool Table::end_with_process() {
    std::unique_lock lock{*mutex_, std::try_to_lock};
    if (!lock) {
        return false;
    }
    const auto all = by_fd_;
    lock.unlock();
    bool ended = true;
    for (const auto &socket : all) {
        ended = (socket == nullptr || socket->end_with_process()) && ended;
    }
    return ended;
}

void Table::before_fork() {
    mutex_->lock();
}

void Table::after_fork_in_parent() {
    mutex_->unlock();
}

void Table::after_fork_in_child() {
    parents_mutex_ = std::exchange(mutex_, std::make_unique<std::shared_mutex>());
    Leaving::instance().after_fork_in_child();
    for (const auto &socket : by_fd_) {
        if (socket != nullptr) {
            socket->after_fork_in_child();
        }
    }
}

}  // namespace rsockets
