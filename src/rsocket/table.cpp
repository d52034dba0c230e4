// SPDX-License-Identifier: BSD-3-Clause
// rsocket/table: which descriptors are rsockets.
#include "rsocket/table.hpp"

#include <pthread.h>

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

int Table::add(std::shared_ptr<AnySocket> socket) {
    (void)Leaving::instance().sweep();
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
    sockets_.lock();
    repolls_.lock();
    registry::Book::instance().before_fork();
}

void Table::after_fork_in_parent() {
    registry::Book::instance().after_fork_in_parent();
    repolls_.unlock();
    sockets_.unlock();
}

void Table::after_fork_in_child() {
    registry::Book::instance().after_fork_in_child();
    repolls_.unlock();
    sockets_.unlock();
    Leaving::instance().after_fork_in_child();
    sockets_.for_each([](AnySocket &socket) { socket.after_fork_in_child(); });
}

}  // namespace rsockets
