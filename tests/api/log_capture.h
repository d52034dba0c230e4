/* SPDX-License-Identifier: BSD-3-Clause */
/* log_capture: the log of the process, kept for a test to look at instead of being written. */
#ifndef LOG_CAPTURE_H
#define LOG_CAPTURE_H 1

#include <librpma.h>
#include <stdbool.h>

/* From now on, up to level; what was kept before is forgotten. */
void capture_log(enum rpma_log_level level);

/* Whether a line was kept that has all of the texts, which end with NULL. */
bool logged(const char *text, ...) __attribute__((sentinel));

/* How many lines were kept. */
int logged_lines(void);

#endif
