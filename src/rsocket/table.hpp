// SPDX-License-Identifier: BSD-3-Clause
// rsocket/table: which descriptors are rsockets.
#pragma once

#include <memory>

#include "rsocket/any_socket.hpp"
#include "rsocket/descriptors.hpp"
#include "rsocket/repoll.hpp"

namespace rsockets {

// Any number of threads may call. Only add() takes a lock, and the end of an rsocket that was taken out.
class Table {
public:
    // The one that the process has.
    [[nodiscard]] static Table &instance();

    // Finds the rsocket of a descriptor for one call.
    using Found = Descriptors<AnySocket>::Found;
    [[nodiscard]] Found find(int fd) const { return sockets_.find(fd); }
    // Returns the socket's descriptor.
    int add(std::shared_ptr<AnySocket> socket);
    // Takes the socket out and returns it; nullptr when it was not there.
    [[nodiscard]] std::shared_ptr<AnySocket> remove(int fd) { return sockets_.take(fd); }

    // These do the same for repolls, which are no rsockets.
    using FoundRepoll = Descriptors<Repoll>::Found;
    [[nodiscard]] FoundRepoll find_repoll(int fd) const { return repolls_.find(fd); }
    int add(std::shared_ptr<Repoll> repoll);
    [[nodiscard]] std::shared_ptr<Repoll> remove_repoll(int fd) { return repolls_.take(fd); }

    // Closes all sockets because the process ends. Returns false when another thread is in a socket, which
    // has not ended therefore.
    bool end_with_process();
    // fork(2) calls these.
    void before_fork();
    void after_fork_in_parent();
    void after_fork_in_child();

private:
    friend union TableOfProcess;
    constexpr Table() = default;

    Descriptors<AnySocket> sockets_;
    Descriptors<Repoll> repolls_;
};

// Never destroyed: other threads may be in a call when main() returns. It is there before any code runs, so
// that no call has to ask whether it is.
union TableOfProcess {
    constexpr TableOfProcess() : table{} {}
    ~TableOfProcess() {}
    Table table;
};
inline constinit TableOfProcess table_of_process;

inline Table &Table::instance() {
    return table_of_process.table;
}

}  // namespace rsockets
