/* SPDX-License-Identifier: BSD-3-Clause */
/* jobs: has many threads run a function at once. They use expect() instead of cmocka's
 * assertions, which only the main thread may use. */
#ifndef JOBS_H
#define JOBS_H 1

#include "ends.h"

#define THREADS 4
#define ROUNDS 25

/* Prints `what` when it does not hold. The test then fails when its jobs have ended. */
void expect(bool holds, const char *what, int line);
bool expectations_failed(void);
#define EXPECT(holds) expect((holds), #holds, __LINE__)
#define EXPECT_OK(call) EXPECT((call) == 0)

/* Waits for the next event. The test fails when it is another one than this. */
void expect_event(struct rpma_conn *conn, enum rpma_conn_event expected);

/* A job gets the ends and the number of its thread, which is below THREADS. */
typedef void (*job_function)(struct ends *ends, int thread);

/* Runs each of the functions in THREADS threads, and waits for all. There are at most 8 functions. */
void run_all(struct ends *ends, const job_function functions[], int count);
#define RUN_ALL(ends, ...)                                                           \
    do {                                                                             \
        const job_function functions[] = {__VA_ARGS__};                              \
        run_all((ends), functions, (int)(sizeof(functions) / sizeof(functions[0]))); \
    } while (false)

#endif
