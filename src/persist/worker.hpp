// SPDX-License-Identifier: BSD-3-Clause
// persist/worker: a few threads for each device, for work that waits for storage, so that a slow device does
// not delay another.
#pragma once

#include <atomic>
#include <memory>

#include "base/clock.hpp"
#include "base/fork.hpp"
#include "persist/proc_text.hpp"

namespace persist {

// A worker runs a job. From submit() until `run` begins the caller keeps it; `run` may free it or submit it
// again.
struct Job {
    void (*run)(void *argument) = nullptr;
    void *argument = nullptr;
    Job *next = nullptr;  // for the queue
};

// The threads of this process for one device. They start when there is work, and end when there is none. They
// block all signals except those of faults.
class Worker {
public:
    static constexpr unsigned most_threads = 4;
    static constexpr base::Milliseconds idle_limit{250};
    static constexpr base::Milliseconds end_limit{1000};

    // Returns the only worker for the device, which is never destroyed. Any thread may call it.
    [[nodiscard]] static Worker &of(DeviceNumber device);

    // Runs the job on a thread, in the order of submission when all are busy. Any thread may call it; it
    // neither allocates nor waits. Returns false when the system gave no thread: then the caller has to run
    // the job.
    [[nodiscard]] bool submit(Job &job);

    // Returns whether a job waits for a thread. A long job then submits itself again for its rest.
    [[nodiscard]] bool has_waiting() const;

    // Is called when the process ends. Waits until the threads of all devices have run all jobs and have
    // ended, a second at most.
    static void end_all();

private:
    struct Pool;
    friend std::default_delete<Worker>;  // destroys a worker when another thread was faster to make one
    explicit Worker(DeviceNumber device);
    ~Worker();
    template <typename Use>
    static void for_each(Use use);
    void end(base::Clock::time_point deadline);
    // Joins the threads that have ended. A child of fork(2) would inherit their ids and could not join them.
    void join_ended();
    // A child starts without threads and without jobs.
    void drop_after_fork();
    static const base::ForkHook joins_before_forks;
    static const base::ForkHook renews_after_forks;

    static std::atomic<Worker *> newest;
    const DeviceNumber device_;
    const std::unique_ptr<Pool> pool_;
    Worker *older_ = nullptr;
};

}  // namespace persist
