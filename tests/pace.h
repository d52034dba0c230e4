/* SPDX-License-Identifier: BSD-3-Clause */
/* pace: measures how long something took, in seconds that the machine could have used for it. A thread spins
 * meanwhile, and the test reads the processor time of that thread. On a busy machine the thread gets as
 * little time as any other thread does. On an idle machine its processor time is the time on the clock.
 * Include it after cmocka.h. */
#ifndef PACE_H
#define PACE_H 1

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

struct pace {
    pthread_t thread;
    atomic_bool over;
};

static inline void *keep_pace(void *argument) {
    struct pace *const pace = argument;
    while (!atomic_load_explicit(&pace->over, memory_order_relaxed)) {
    }
    return NULL;
}

static inline void begin_pace(struct pace *pace) {
    atomic_init(&pace->over, false);
    assert_int_equal(pthread_create(&pace->thread, NULL, keep_pace, pace), 0);
}

/* Returns the seconds since begin_pace. */
static inline double paced_seconds(const struct pace *pace) {
    clockid_t clock = 0;
    struct timespec used;
    assert_int_equal(pthread_getcpuclockid(pace->thread, &clock), 0);
    assert_int_equal(clock_gettime(clock, &used), 0);
    return (double)used.tv_sec + (double)used.tv_nsec / 1e9;
}

static inline double end_pace(struct pace *pace) {
    const double used = paced_seconds(pace);
    atomic_store(&pace->over, true);
    assert_int_equal(pthread_join(pace->thread, NULL), 0);
    return used;
}

#endif
