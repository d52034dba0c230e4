/* SPDX-License-Identifier: BSD-3-Clause */
/* unit/soft: this header has the event channel of a test, and a watchdog that ends
 * the program when an event does not come. */
#ifndef CHANNEL_H
#define CHANNEL_H 1

#include <unistd.h>

#include "softrdma.h"

enum { watchdog_s = 50 };

static struct rdma_event_channel *channel;

static inline int begin_test(void **state) {
    (void)state;
    alarm(watchdog_s);
    channel = softrdma_rdma_create_event_channel();
    return channel != NULL ? 0 : -1;
}

static inline int end_test(void **state) {
    (void)state;
    softrdma_rdma_destroy_event_channel(channel);
    return 0;
}

#endif
