// SPDX-License-Identifier: BSD-3-Clause
// rsocket/repoll: the functions of C.
#include <fcntl.h>

#include <cerrno>

#include "rsocket/repoll.hpp"
#include "rsocket/returned.hpp"
#include "rsocket/table.hpp"

#pragma GCC visibility push(default)
#include <rpma/rsocket.h>
#pragma GCC visibility pop

namespace {

using rsockets::Deadline;
using rsockets::Repoll;
using rsockets::Result;
using rsockets::Table;

// Returns what use(repoll) gives for the repoll behind the descriptor.
template <typename Use>
int with_repoll(int fd, Use use) {
    return static_cast<int>(rsockets::guarded([&]() -> decltype(use(std::declval<Repoll &>())) {
        const auto repoll = Table::instance().find_repoll(fd);
        if (!repoll) {
            return base::failure(fcntl(fd, F_GETFD) < 0 ? EBADF : EINVAL);
        }
        return repoll->inherited() ? base::failure(ECONNRESET) : use(*repoll);
    }));
}

}  // namespace

int repoll_create(int flags) {
    return static_cast<int>(rsockets::guarded([&]() -> Result<int> {
        auto made = Repoll::create(flags);
        return made ? Result<int>{Table::instance().add(std::move(*made))} : std::unexpected{made.error()};
    }));
}

int repoll_ctl(int epfd, int op, int fd, struct epoll_event *event) {
    return with_repoll(epfd, [&](Repoll &repoll) {
        return repoll.control(op, fd, Table::instance().find(fd).shared(), event);
    });
}

int repoll_wait(int epfd, struct epoll_event *events, int maxevents, int timeout) {
    return with_repoll(epfd, [&](Repoll &repoll) -> Result<int> {
        if (maxevents <= 0) {
            return base::failure(EINVAL);
        }
        if (events == nullptr) {
            return base::failure(EFAULT);
        }
        const Deadline deadline =
            timeout < 0 ? Deadline{} : base::Clock::now() + std::chrono::milliseconds{timeout};
        return repoll.wait({events, static_cast<std::size_t>(maxevents)}, deadline);
    });
}
