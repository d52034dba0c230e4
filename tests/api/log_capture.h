/* SPDX-License-Identifier: BSD-3-Clause */
/* log_capture: keeps the log of the process, so that a test can look at
 * it. The lines are not written anywhere. */
#ifndef LOG_CAPTURE_H
#define LOG_CAPTURE_H 1

#include <librpma.h>
#include <stdbool.h>

/* Keeps lines up to this level from now on, and forgets those that were kept before. */
void capture_log(enum rpma_log_level level);

/* Returns whether a kept line has all of the texts. NULL ends the list of texts. */
bool logged(const char *text, ...) __attribute__((sentinel));

/* Returns the number of lines that were kept. */
int logged_lines(void);

#endif
