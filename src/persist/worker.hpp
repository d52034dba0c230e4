// SPDX-License-Identifier: BSD-3-Clause
// persist/worker: a few threads a device for work that waits for storage, so that a slow one delays no other.
#pragma once

#include <atomic>
#include <memory>

#include "base/clock.hpp"
#include "persist/proc_text.hpp"

namespace persist {

// A worker runs it. The caller owns it, from submit() until `run` begins; `run` may free it or submit it
// again.
struct Job {
    void (*run)(void *argument) = nullptr;
    void *argument = nullptr;
    Job *next = nullptr;  // the queue's
};

// The threads of this process for one device: started when there is work, ended when there is none. All
// signals but those of faults are blocked in them.
class Worker {
public:
    static constexpr unsigned most_threads = 4;
    static constexpr base::Milliseconds idle_limit{250};
    static constexpr base::Milliseconds end_limit{1000};

    // The only one for the device; never destroyed. Any thread.
    [[nodiscard]] static Worker &of(DeviceNumber device);

    // Runs the job on a thread, in the order of submission when all are busy. Any thread; allocates nothing
    // and waits for nothing. False when the system gave no thread: the job was not taken, and is the caller's
    // to run.
    [[nodiscard]] bool submit(Job &job);

    // When the process ends: waits until the threads of all devices have run all jobs and are gone, a second
    // at most.
    static void end_all();

private:
    struct Pool;
    friend std::default_delete<Worker>;  // of one that another thread was faster to make
    explicit Worker(DeviceNumber device);
    ~Worker();
    void end(base::Clock::time_point deadline);
    // A child starts with no threads and no jobs: those of the parent stay the parent's.
    void drop_after_fork();
    static const int renews_after_forks;

    static std::atomic<Worker *> newest;
    const DeviceNumber device_;
    const std::unique_ptr<Pool> pool_;
    Worker *older_ = nullptr;
};

}  // namespace persist
