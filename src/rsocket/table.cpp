// SPDX-License-Identifier: BSD-3-Clause
// rsocket/table: which descriptors are rsockets.
#include "rsocket/table.hpp"

#include <mutex>
#include <utility>

#include "rsocket/leaving.hpp"

namespace rsockets {

// Never destroyed: other threads may be in a call when main() returns.
Table &Table::instance() {
    static auto *const table = new Table;
    return *table;
}

std::shared_ptr<AnySocket> Table::find(int fd) const {
    const std::shared_lock lock{mutex_};
    const auto index = static_cast<std::size_t>(fd);
    return fd >= 0 && index < by_fd_.size() ? by_fd_[index] : nullptr;
}

int Table::add(std::shared_ptr<AnySocket> socket) {
    (void)Leaving::instance().sweep();
    const std::scoped_lock lock{mutex_};
    const int fd = socket->fd();
    const auto index = static_cast<std::size_t>(fd);
    if (index >= by_fd_.size()) {
        by_fd_.resize(index + 1);
    }
    by_fd_[index] = std::move(socket);
    return fd;
}

std::shared_ptr<AnySocket> Table::remove(int fd) {
    const std::scoped_lock lock{mutex_};
    const auto index = static_cast<std::size_t>(fd);
    return fd >= 0 && index < by_fd_.size() ? std::exchange(by_fd_[index], nullptr) : nullptr;
}

}  // namespace rsockets
