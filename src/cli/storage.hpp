// SPDX-License-Identifier: BSD-3-Clause
// cli/storage: the thread in which a server stores and commits, so that its own never waits for a disk.
#pragma once

#include <deque>
#include <thread>
#include <vector>

#include "base/condition.hpp"
#include "base/fd.hpp"
#include "cli/pool.hpp"
#include "cli/protocol.hpp"

namespace cli {

// Called from one thread. The pool outlives it.
class Storage {
public:
    // A client's request to store, or to commit.
    struct Job {
        std::uint64_t client;  // the caller's, and so is
        std::uint64_t place;
        Request request;
        Content content;  // to commit, or the slot that is stored to
        Answer answer{};  // when it is done
    };

    // The first failure of storage is the answer to all that follows.
    explicit Storage(const Pool &pool) : pool_{pool} {}
    Storage(const Storage &) = delete;
    Storage &operator=(const Storage &) = delete;
    // Waits for the job that is under way; the others are forgotten.
    ~Storage();

    [[nodiscard]] Outcome<> start();
    // Readable when a job is done, until it is taken.
    [[nodiscard]] int fd() const { return done_event_.get(); }
    // Jobs are done in this order.
    void submit(const Job &job);
    [[nodiscard]] std::vector<Job> take_done();

private:
    void run();
    [[nodiscard]] Answer answer(const Job &job);

    const Pool &pool_;
    int error_ = 0;  // the first of storage
    base::Fd done_event_;
    base::Mutex mutex_;
    base::Condition wake_;
    std::deque<Job> jobs_ GUARDED_BY(mutex_);
    std::vector<Job> done_ GUARDED_BY(mutex_);
    bool stopping_ GUARDED_BY(mutex_) = false;
    std::thread thread_;
};

}  // namespace cli
