/* SPDX-License-Identifier: BSD-3-Clause */
/* When this library is preloaded, a persistent flush of the page cache is acknowledged without persisting.
 * The power cut has to show that. */
#include <stddef.h>

__attribute__((visibility("default"))) int msync(void *address, size_t length, int flags);

int msync(void *address, size_t length, int flags) {
    (void)address;
    (void)length;
    (void)flags;
    return 0;
}
