// SPDX-License-Identifier: BSD-3-Clause
// rsocket/table: which descriptors are rsockets.
#include "rsocket/table.hpp"

#include <utility>

#include "base/fork.hpp"
#include "rsocket/call.hpp"
#include "stream/leaving.hpp"

namespace rsockets {

namespace {

// The table is whole when a process forks. Other threads may have half changed the objects in it, so the
// child makes rsockets of its own, and never destroys the parent's.
const base::ForkHook renews_after_forks{base::ForkLevel::Rsocket,
                                        {.before = [] { Table::instance().before_fork(); },
                                         .after_in_parent = [] { Table::instance().after_fork_in_parent(); },
                                         .after_in_child = [] { Table::instance().after_fork_in_child(); }}};

template <typename Object>
auto all_in(const Descriptors<Object> &objects) {
    auto all = std::make_unique<std::vector<std::shared_ptr<Object>>>();
    objects.for_each([&](const Object &one) { all->push_back(objects.find(one.fd()).shared()); });
    return all;
}

}  // namespace

int Table::add(std::shared_ptr<AnySocket> socket) {
    (void)stream::Leaving::instance().sweep();
    const int fd = socket->fd();
    sockets_.set(fd, std::move(socket));
    return fd;
}

int Table::add(std::shared_ptr<Repoll> repoll) {
    const int fd = repoll->fd();
    repolls_.set(fd, std::move(repoll));
    return fd;
}

bool Table::end_with_process() {
    bool ended = true;
    sockets_.for_each([&](AnySocket &socket) { ended = socket.end_with_process() && ended; });
    return ended;
}

void Table::before_fork() {
    (void)stream::Leaving::instance();  // the child does not wait for a thread that makes it
    sockets_.before_fork();
    repolls_.before_fork();
    registry::Book::instance().before_fork();
}

void Table::after_fork_in_parent() {
    registry::Book::instance().after_fork_in_parent();
    repolls_.after_fork();
    sockets_.after_fork();
}

void Table::after_fork_in_child() {
    Call::forget_pause_in_child();
    registry::Book::instance().after_fork_in_child();
    repolls_.after_fork();
    sockets_.after_fork();
    stream::Leaving::instance().after_fork_in_child();
    auto parents = all_in(sockets_);
    for (const auto &socket : *parents) {
        sockets_.set(socket->fd(), socket->in_child());
    }
    base::leave_to_parent(std::move(parents));
    base::leave_to_parent(all_in(repolls_));
}

}  // namespace rsockets
