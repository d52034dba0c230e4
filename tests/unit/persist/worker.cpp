// SPDX-License-Identifier: BSD-3-Clause
// persist/worker: jobs run side by side and in order, and none is lost; threads come and go; a forked child
// starts afresh.
#include "persist/worker.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <cstdlib>

#include <array>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <semaphore>
#include <span>

#include "../../child.hpp"
#include "../../forks.h"
#include "memory.hpp"
#include "persist/guard.hpp"

SET_TSAN_OPTIONS("die_after_fork=0")

namespace {

using persist::Job;
using persist::Worker;

constexpr unsigned most = Worker::most_threads;

// Returns the number of threads that this process has now.
unsigned thread_count() {
    const std::filesystem::directory_iterator threads{"/proc/self/task"};
    return static_cast<unsigned>(std::distance(begin(threads), end(threads)));
}

// Waits until there are no more threads than `wanted`. Returns false after ten seconds.
bool threads_fall_to(unsigned wanted) {
    for (int round = 0; round < 1000 && thread_count() > wanted; ++round) {
        poll(nullptr, 0, 10);
    }
    return thread_count() <= wanted;
}

// Jobs wait at this gate.
struct Gate {
    std::counting_semaphore<> arrived{0};
    std::counting_semaphore<> open{0};

    // Submits jobs for all the threads that there can be, or more: then each thread waits here.
    void block(std::span<Job> jobs) {
        for (Job &job : jobs) {
            job = {pass, this};
            assert_true(Worker::of(1).submit(job));
        }
        for (unsigned number = 0; number < most; ++number) {
            arrived.acquire();
        }
    }
    static void pass(void *gate) {
        static_cast<Gate *>(gate)->arrived.release();
        static_cast<Gate *>(gate)->open.acquire();
    }
};

void post(void *semaphore) {
    static_cast<std::counting_semaphore<> *>(semaphore)->release();
}

Worker &worker() {
    return Worker::of(1);
}

void runs_blocked_jobs_side_by_side(void **) {
    static Gate gate;
    static std::array<Job, most> blocked;
    gate.block(blocked);
    // One more job has no thread until one is free; then it runs.
    static std::counting_semaphore<> done{0};
    static Job late{post, &done};
    assert_true(worker().submit(late));
    const bool early = done.try_acquire();
    gate.open.release();
    done.acquire();
    gate.open.release(most - 1);
    assert_false(early);
}

// All threads of a device wait for it, with more jobs than there are threads. A job of another device runs at
// once.
void one_device_delays_no_other(void **) {
    static Gate gate;
    static std::array<Job, most + 1> blocked;
    gate.block(blocked);
    static std::counting_semaphore<> done{0};
    static Job other{post, &done};
    assert_ptr_not_equal(&Worker::of(2), &worker());
    assert_true(Worker::of(2).submit(other));
    const bool ran = done.try_acquire_for(std::chrono::seconds{40});
    gate.open.release(most + 1);
    assert_true(ran);
    gate.arrived.acquire();  // the last one's
}

std::array<int, 100> order;
int ordered;

void runs_in_order_when_busy(void **) {
    static Gate gate;
    static std::array<Job, most> blocked;
    gate.block(blocked);
    static std::array<int, 100> numbers;
    static std::array<Job, 100> jobs;
    static std::counting_semaphore<> done{0};
    for (size_t number = 0; number < jobs.size(); ++number) {
        numbers[number] = static_cast<int>(number);
        jobs[number] = {[](void *at) {
                            order[static_cast<size_t>(ordered++)] = *static_cast<int *>(at);
                            done.release();
                        },
                        &numbers[number]};
        assert_true(worker().submit(jobs[number]));
    }
    gate.open.release();
    for (size_t number = 0; number < jobs.size(); ++number) {
        done.acquire();
    }
    for (size_t number = 0; number < jobs.size(); ++number) {
        assert_int_equal(order[number], number);
    }
    gate.open.release(most - 1);
}

// This job submits itself again, as a connection does with its next flush.
struct Chain {
    Job job{run, this};
    int left = 1000;
    std::counting_semaphore<> done{0};

    static void run(void *argument) {
        auto *const chain = static_cast<Chain *>(argument);
        if (--chain->left == 0) {
            chain->done.release();
        } else {
            if (!worker().submit(chain->job)) {
                std::abort();
            }
        }
    }
};

void takes_jobs_from_everywhere(void **) {
    static std::array<Chain, 8> chains;
    for (Chain &chain : chains) {
        assert_true(worker().submit(chain.job));
    }
    for (Chain &chain : chains) {
        chain.done.acquire();
        assert_int_equal(chain.left, 0);
    }
}

void threads_end_when_idle(void **) {
    static std::counting_semaphore<> done{0};
    static Job job{post, &done};
    // The threads of sanitizers do not end.
    static unsigned without = 0;
    const pid_t child = test::fork_child();
    assert_true(child >= 0);
    if (child == 0) {
        without = thread_count();
        assert_true(worker().submit(job));
        done.acquire();
        const bool started = thread_count() > without;
        const bool ended = threads_fall_to(without);
        assert_true(worker().submit(job));  // and again after that
        done.acquire();
        _exit(started && ended ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

void a_forked_child_starts_afresh(void **) {
    static Gate gate;
    static std::array<Job, most + 1> blocked;
    gate.block(blocked);
    // In the parent all threads are busy and one job waits; the child has neither.
    const pid_t child = test::fork_child();
    assert_true(child >= 0);
    if (child == 0) {
        static std::counting_semaphore<> done{0};
        static std::array<Job, most> jobs;
        for (Job &job : jobs) {
            job = {post, &done};
            assert_true(worker().submit(job));
        }
        for (unsigned number = 0; number < most; ++number) {
            done.acquire();
        }
        _exit(gate.arrived.try_acquire() ? 1 : 0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    // The jobs of the parent continue.
    gate.open.release(most + 1);
    gate.arrived.acquire();
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

// When the process ends, no job and no thread is left.
void ends_with_the_process(void **) {
    skip_where(CHILDREN_MAKE_NO_THREADS);
    const pid_t child = test::fork_child();
    assert_int_not_equal(child, -1);
    if (child == 0) {
        alarm(60);
        static std::counting_semaphore<> done{0};
        static std::array<Job, 3 * most> jobs;
        for (Job &job : jobs) {
            job = {post, &done};
            assert_true(worker().submit(job));
        }
        Worker::end_all();
        bool all = true;
        for (std::size_t job = 0; job < jobs.size(); ++job) {
            all = done.try_acquire() && all;
        }
        _exit(all && threads_fall_to(1) ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

void blocks_signals_but_faults(void **) {
    static sigset_t mask;
    static std::counting_semaphore<> done{0};
    static Job job{[](void *) {
                       pthread_sigmask(SIG_SETMASK, nullptr, &mask);
                       done.release();
                   },
                   nullptr};
    assert_true(worker().submit(job));
    done.acquire();
    for (const int signal : {SIGINT, SIGTERM, SIGCHLD, SIGUSR1, SIGALRM, SIGPIPE}) {
        assert_int_equal(sigismember(&mask, signal), 1);
    }
    assert_int_equal(sigismember(&mask, SIGSEGV), 0);
    assert_int_equal(sigismember(&mask, SIGBUS), 0);
    // The signal mask of the caller is as before.
    sigset_t own;
    pthread_sigmask(SIG_SETMASK, nullptr, &own);
    assert_int_equal(sigismember(&own, SIGINT), 0);
}

// Guarded sections work on its threads.
void survives_faults(void **) {
    static bool copied = true;
    static std::counting_semaphore<> done{0};
    const int fd = new_file("worker-fault", page);
    char *const memory = map(fd, page);
    assert_int_equal(ftruncate(fd, 0), 0);
    static Job job;
    job = {[](void *address) {
               copied = persist::guarded_copy(address, "x", 1);
               done.release();
           },
           memory};
    persist::install_guard();
    assert_true(worker().submit(job));
    done.acquire();
    assert_false(copied);
    munmap(memory, page);
    close(fd);
    unlink("worker-fault");
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {cmocka_unit_test(runs_blocked_jobs_side_by_side),
                                cmocka_unit_test(one_device_delays_no_other),
                                cmocka_unit_test(runs_in_order_when_busy),
                                cmocka_unit_test(takes_jobs_from_everywhere),
                                cmocka_unit_test(threads_end_when_idle),
                                cmocka_unit_test(a_forked_child_starts_afresh),
                                cmocka_unit_test(ends_with_the_process),
                                cmocka_unit_test(blocks_signals_but_faults),
                                cmocka_unit_test(survives_faults)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
