// SPDX-License-Identifier: BSD-3-Clause
// persist/worker: a few threads for work that waits for storage.
#pragma once

#include "base/clock.hpp"

namespace persist {

// What to run. The caller owns it, from submit() until `run` begins; `run` may free it or submit it again.
struct Job {
    void (*run)(void *argument) = nullptr;
    void *argument = nullptr;
    Job *next = nullptr;  // the queue's
};

// The threads of this process: started when there is work, ended when there is none. All signals but those of
// faults are blocked in them.
class Worker {
public:
    static constexpr unsigned most_threads = 4;
    static constexpr base::Milliseconds idle_limit{250};
    static constexpr base::Milliseconds end_limit{1000};

    // The only one; never destroyed.
    [[nodiscard]] static Worker &instance();

    // Runs the job on a thread, in the order of submission when all are busy. Any thread; allocates nothing
    // and waits for nothing. False when the system gave no thread: the job was not taken, and is the caller's
    // to run.
    [[nodiscard]] bool submit(Job &job);

    // When the process ends: waits until the threads have run all jobs and are gone, a second at most.
    void end();

private:
    struct Pool;
    Worker();
    // A child starts with no threads and no jobs: those of the parent stay the parent's.
    void drop_after_fork();
    static const int renews_after_forks;

    Pool *const pool_;
};

}  // namespace persist
