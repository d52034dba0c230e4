// SPDX-License-Identifier: BSD-3-Clause
// cli/storage: the thread in which a server stores and commits, so that the server's own thread never waits
// for a disk.
#pragma once

#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "base/condition.hpp"
#include "base/fd.hpp"
#include "cli/pool.hpp"
#include "cli/protocol.hpp"

namespace cli {

// One thread calls it. The pool outlives it.
class Storage {
public:
    // A client has asked to store, or to commit.
    struct Job {
        std::uint64_t client;  // this and the next are the caller's
        std::uint64_t place;
        Request request;
        Content content;  // the content to commit, or the slot of a store
        // The region of a commit, which is given up first. That may wait for the peer.
        // NOLINTNEXTLINE(readability-redundant-member-init): g++ wants one where a job is made without
        std::shared_ptr<const void> region{};
        Answer answer{};  // set when the job is done
    };

    // After the first failure of storage, all later jobs get that answer.
    explicit Storage(const Pool &pool) : pool_{pool} {}
    Storage(const Storage &) = delete;
    Storage &operator=(const Storage &) = delete;
    // Waits for the job that is under way, and drops the others.
    ~Storage();

    [[nodiscard]] Outcome<> start();
    // Returns a descriptor that is readable from the end of a job until it is taken.
    [[nodiscard]] int fd() const { return done_event_.get(); }
    // Adds a job. Jobs are done in the order of these calls.
    void submit(Job job);
    [[nodiscard]] std::vector<Job> take_done();

private:
    void run();
    [[nodiscard]] Answer answer(const Job &job);

    const Pool &pool_;
    int error_ = 0;  // storage's first
    base::Fd done_event_;
    base::Mutex mutex_;
    base::Condition wake_;
    std::deque<Job> jobs_ GUARDED_BY(mutex_);
    std::vector<Job> done_ GUARDED_BY(mutex_);
    bool stopping_ GUARDED_BY(mutex_) = false;
    std::thread thread_;
};

}  // namespace cli
