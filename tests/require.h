/* SPDX-License-Identifier: BSD-3-Clause */
/* A program of several processes ends at the first thing that is not as it should be, and says which. */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static inline void require(bool holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "process %d: not so: %s (last error: %s)\n", (int)getpid(), what, strerror(errno));
        exit(EXIT_FAILURE);
    }
}
#define REQUIRE(holds) require((holds), #holds)
