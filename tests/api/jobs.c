/* SPDX-License-Identifier: BSD-3-Clause */
/* jobs: has functions that many threads run at once. */
#include "jobs.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

static atomic_int failures;

void expect(bool holds, const char *what, int line) {
    if (!holds) {
        atomic_fetch_add(&failures, 1);
        fprintf(stderr, "line %d: not so: %s\n", line, what);
    }
}

bool expectations_failed(void) {
    return atomic_load(&failures) != 0;
}

void expect_event(struct rpma_conn *conn, enum rpma_conn_event expected) {
    enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
    EXPECT_OK(rpma_conn_next_event(conn, &event));
    EXPECT(event == expected);
}

struct job {
    job_function function;
    struct ends *ends;
    int thread;
    pthread_t id;
};

static void *run_job(void *argument) {
    const struct job *job = argument;
    job->function(job->ends, job->thread);
    return NULL;
}

#define MOST_JOBS (THREADS * 8)
void run_all(struct ends *ends, const job_function functions[], int count) {
    struct job jobs[MOST_JOBS];
    int started = 0;
    atomic_store(&failures, 0);
    assert_in_range(count, 1, MOST_JOBS / THREADS);
    for (int i = 0; i < count * THREADS; ++i) {
        jobs[i] = (struct job){.function = functions[i % count], .ends = ends, .thread = i / count};
        if (pthread_create(&jobs[i].id, NULL, run_job, &jobs[i]) != 0) {
            break;
        }
        ++started;
    }
    for (int i = 0; i < started; ++i) {
        pthread_join(jobs[i].id, NULL);
    }
    assert_int_equal(started, count * THREADS);
    assert_false(expectations_failed());
}
