// SPDX-License-Identifier: BSD-3-Clause
// rsocket/table: which descriptors are rsockets.
#pragma once

#include <memory>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

#include "rsocket/any_socket.hpp"
#include "rsocket/repoll.hpp"

namespace rsockets {

// Any number of threads may call.
class Table {
public:
    // The one that the process has.
    [[nodiscard]] static Table &instance();

    // Returns nullptr when the descriptor is no rsocket.
    [[nodiscard]] std::shared_ptr<AnySocket> find(int fd) const;
    // Returns the socket's descriptor.
    int add(std::shared_ptr<AnySocket> socket);
    // Takes the socket out and returns it; nullptr when it was not there.
    [[nodiscard]] std::shared_ptr<AnySocket> remove(int fd);

    // These do the same for repolls, which are no rsockets.
    [[nodiscard]] std::shared_ptr<Repoll> find_repoll(int fd) const;
    int add(std::shared_ptr<Repoll> repoll);
    [[nodiscard]] std::shared_ptr<Repoll> remove_repoll(int fd);

    // Closes all sockets because the process ends. False: another thread is in the table or in a socket,
    // which has not ended therefore.
    bool end_with_process();
    // fork(2) calls these.
    void before_fork();
    void after_fork_in_parent();
    void after_fork_in_child();

private:
    std::unique_ptr<std::shared_mutex> mutex_ = std::make_unique<std::shared_mutex>();
    std::unique_ptr<std::shared_mutex> parents_mutex_;  // of the process that forked this one: held there
    std::vector<std::shared_ptr<AnySocket>> by_fd_;
    std::unordered_map<int, std::shared_ptr<Repoll>> repolls_;
};

}  // namespace rsockets
