// SPDX-License-Identifier: BSD-3-Clause
// persist/worker: the queue of jobs and the threads that take from it.
#include "persist/worker.hpp"

#include <pthread.h>

#include <new>

#include "base/condition.hpp"
#include "base/log.hpp"
#include "base/signals.hpp"
#include "base/thread.hpp"

namespace persist {

// All data that a thread of the pool touches. It outlives the threads, some of which may end after main().
struct Worker::Pool {
    base::Mutex mutex;  // never held while a job runs
    base::Condition wake;
    base::Condition ended;
    Job *first GUARDED_BY(mutex) = nullptr;
    Job *last GUARDED_BY(mutex) = nullptr;
    unsigned queued GUARDED_BY(mutex) = 0;
    unsigned idle GUARDED_BY(mutex) = 0;
    unsigned threads GUARDED_BY(mutex) = 0;
    bool ending GUARDED_BY(mutex) = false;  // the process ends
    base::EndedThread ended_thread GUARDED_BY(mutex);

    Job *take() REQUIRES(mutex) {
        Job *const job = first;
        first = job->next;
        --queued;
        return job;
    }

    // Takes a job out of the queue. Returns false when it was not there any more.
    bool take_back(const Job &job) REQUIRES(mutex) {
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

    void run_next() REQUIRES(mutex) {
        const Job job = *take();
        const base::Unlock unlocked{mutex};
        job.run(job.argument);
    }

    void serve() {
        base::Lock lock{mutex};
        for (;;) {
            ++idle;
            const auto deadline = base::Clock::now() + idle_limit;
            while (first == nullptr && !ending && wake.wait_until(mutex, deadline)) {
            }
            --idle;
            if (first == nullptr) {
                break;
            }
            run_next();
        }
        --threads;
        ended.notify_all();
        const auto earlier = ended_thread.follow();
        lock.unlock();
        base::EndedThread::join(earlier);
    }
};

// The list only grows, and needs no lock, so a forked child finds it consistent.
std::atomic<Worker *> Worker::newest;

Worker &Worker::of(DeviceNumber device) {
    std::unique_ptr<Worker> made;
    // Acquire makes a worker's contents visible to the thread that finds it.
    Worker *known = newest.load(std::memory_order_acquire);
    for (;;) {
        for (Worker *here = known; here != nullptr; here = here->older_) {
            if (here->device_ == device) {
                return *here;
            }
        }
        if (made == nullptr) {
            made.reset(new Worker{device});
        }
        made->older_ = known;
        if (newest.compare_exchange_weak(known, made.get(), std::memory_order_acq_rel)) {
            return *made.release();
        }
    }
}

Worker::Worker(DeviceNumber device) : device_{device}, pool_{std::make_unique<Pool>()} {}

Worker::~Worker() = default;

bool Worker::submit(Job &job) {
    Pool &pool = *pool_;
    base::Lock lock{pool.mutex};
    job.next = nullptr;
    (pool.first == nullptr ? pool.first : pool.last->next) = &job;
    pool.last = &job;
    ++pool.queued;
    // Each idle thread will take one job of the queue.
    if (pool.queued <= pool.idle || pool.threads == most_threads) {
        lock.unlock();
        pool.wake.notify_one();
        return true;
    }
    ++pool.threads;
    lock.unlock();
    const int error = base::start_thread<&Pool::serve>(pool, base::signals_from_outside());
    if (error == 0) {
        return true;
    }
    lock.lock();
    --pool.threads;
    BASE_LOG(Warning, "no thread for work on storage (error %d), %u are running", error, pool.threads);
    return !pool.take_back(job);
}

bool Worker::has_waiting() const {
    const base::Lock lock{pool_->mutex};
    return pool_->queued > pool_->idle;
}

template <typename Use>
void Worker::for_each(Use use) {
    for (Worker *here = newest.load(std::memory_order_acquire); here != nullptr; here = here->older_) {
        use(*here);
    }
}

void Worker::end_all() {
    const auto deadline = base::Clock::now() + end_limit;
    for_each([deadline](Worker &worker) { worker.end(deadline); });
}

void Worker::end(base::Clock::time_point deadline) {
    Pool &pool = *pool_;
    {
        const base::Lock lock{pool.mutex};
        pool.ending = true;
        pool.wake.notify_all();
        while (pool.threads != 0 && pool.ended.wait_until(pool.mutex, deadline)) {
        }
    }
    join_ended();
}

// Makes the pool anew in the same place. It touches no lock that a vanished thread might hold, not even an
// allocator's.
void Worker::drop_after_fork() {
    new (pool_.get()) Pool;
}

void Worker::join_ended() {
    Pool &pool = *pool_;
    base::Lock lock{pool.mutex};
    const auto last = pool.ended_thread.take();
    lock.unlock();
    base::EndedThread::join(last);
}

// These are initialized when the library is loaded, so that no fork comes before them.
const base::ForkHook Worker::joins_before_forks{
    base::ForkLevel::EndedThreads, {.before = [] { for_each([](Worker &worker) { worker.join_ended(); }); }}};
const base::ForkHook Worker::renews_after_forks{
    base::ForkLevel::Persist,
    {.after_in_child = [] { for_each([](Worker &worker) { worker.drop_after_fork(); }); }}};

}  // namespace persist
