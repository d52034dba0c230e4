/* SPDX-License-Identifier: BSD-3-Clause */
/* before_doorbell: what happens at a moment that a test cannot choose from outside. */
#ifndef BEFORE_DOORBELL_H
#define BEFORE_DOORBELL_H 1

#include <stdatomic.h>

/* Called once, in the thread that is about to ring, when it is not NULL. That thread has a lock of its
 * socket. */
extern __attribute__((visibility("default"))) void (*before_doorbell)(void);
/* The same, before the bell is counted, and behind the bytes that it is for. */
extern __attribute__((visibility("default"))) void (*before_count)(void);
/* Called once when it is not NULL. The kernel has put the descriptor there, and the call has not returned. */
extern __attribute__((visibility("default"))) void (*after_dup3)(void);
/* How often the process has called malloc(3) and free(3). */
extern __attribute__((visibility("default"))) atomic_int memory_calls;

#endif
