// SPDX-License-Identifier: BSD-3-Clause
// rsocket/table: which descriptors are rsockets.
#pragma once

#include <memory>
#include <shared_mutex>
#include <vector>

#include "rsocket/any_socket.hpp"

namespace rsockets {

// Any number of threads.
class Table {
public:
    // The process's.
    [[nodiscard]] static Table &instance();

    // nullptr when the descriptor is none of ours.
    [[nodiscard]] std::shared_ptr<AnySocket> find(int fd) const;
    // Returns the socket's descriptor.
    int add(std::shared_ptr<AnySocket> socket);
    // The socket is no longer found; nullptr when it was not there.
    [[nodiscard]] std::shared_ptr<AnySocket> remove(int fd);

    // The process ends. False: another thread is in the table, or in a socket that has not ended therefore.
    bool end_with_process();
    // Around fork(2).
    void before_fork();
    void after_fork_in_parent();
    void after_fork_in_child();

private:
    std::unique_ptr<std::shared_mutex> mutex_ = std::make_unique<std::shared_mutex>();
    std::unique_ptr<std::shared_mutex> parents_mutex_;  // of the process that forked this one: held there
    std::vector<std::shared_ptr<AnySocket>> by_fd_;
};

}  // namespace rsockets
