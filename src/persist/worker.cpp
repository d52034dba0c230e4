// SPDX-License-Identifier: BSD-3-Clause
// persist/worker: the queue of jobs and the threads that take from it.
#include "persist/worker.hpp"

#include <pthread.h>

#include <condition_variable>
#include <mutex>
#include <new>

#include "base/log.hpp"
#include "persist/guard.hpp"

namespace persist {

// Everything a thread of the pool touches. It outlives the threads: they are detached and may end after
// main().
struct Worker::Pool {
    std::mutex mutex;  // of all below; never held while a job runs
    std::condition_variable wake;
    Job *first = nullptr;
    Job *last = nullptr;
    unsigned queued = 0;
    unsigned idle = 0;
    unsigned threads = 0;

    Job *take() {
        Job *const job = first;
        first = job->next;
        --queued;
        return job;
    }

    // True when the job was still in the queue, and is no longer.
    bool take_back(const Job &job) {
        Job *before = nullptr;
        for (Job *here = first; here != nullptr; before = here, here = here->next) {
            if (here == &job) {
                (before == nullptr ? first : before->next) = here->next;
                last = last == here ? before : last;
                --queued;
                return true;
            }
        }
        return false;
    }

    void run_next(std::unique_lock<std::mutex> &lock) {
        const Job job = *take();
        lock.unlock();
        job.run(job.argument);
        lock.lock();
    }

    void serve() {
        std::unique_lock lock{mutex};
        for (;;) {
            ++idle;
            const bool found = wake.wait_for(lock, idle_limit, [this] { return first != nullptr; });
            --idle;
            if (!found) {
                break;
            }
            run_next(lock);
        }
        --threads;
    }

    [[nodiscard]] int start_thread() {
        // Blocked here, so that the new thread inherits it and never runs a handler of the program.
        const sigset_t blocked = signals_of_others();
        sigset_t before;
        pthread_sigmask(SIG_BLOCK, &blocked, &before);
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        pthread_t thread{};
        const auto body = [](void *pool) -> void * {
            static_cast<Pool *>(pool)->serve();
            return nullptr;
        };
        const int error = pthread_create(&thread, &attributes, body, this);
        pthread_attr_destroy(&attributes);
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        return error;
    }
};

Worker &Worker::instance() {
    static Worker &worker = *new Worker;
    return worker;
}

Worker::Worker() : pool_{new Pool} {}

bool Worker::submit(Job &job) {
    Pool &pool = *pool_;
    std::unique_lock lock{pool.mutex};
    job.next = nullptr;
    (pool.first == nullptr ? pool.first : pool.last->next) = &job;
    pool.last = &job;
    ++pool.queued;
    // Each idle thread is already owed to one job of the queue.
    if (pool.queued <= pool.idle || pool.threads == most_threads) {
        lock.unlock();
        pool.wake.notify_one();
        return true;
    }
    ++pool.threads;
    lock.unlock();
    const int error = pool.start_thread();
    if (error == 0) {
        return true;
    }
    lock.lock();
    --pool.threads;
    BASE_LOG(Warning, "no thread for work on storage (error %d), %u are running", error, pool.threads);
    return !pool.take_back(job);
}

// Made anew where it is. Touches no lock that a vanished thread might hold, an allocator's neither.
void Worker::drop_after_fork() {
    new (pool_) Pool;
}

// Made here, when the library is loaded: a fork cannot come in between.
const int Worker::renews_after_forks =
    (static_cast<void>(instance()), pthread_atfork(nullptr, nullptr, [] { instance().drop_after_fork(); }));

}  // namespace persist
