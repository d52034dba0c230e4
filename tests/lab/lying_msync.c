/* SPDX-License-Identifier: BSD-3-Clause */
/* Preloaded, a persistent flush of the page cache acknowledges without persisting: the power cut has to show
 * it. */
#include <stddef.h>

__attribute__((visibility("default"))) int msync(void *address, size_t length, int flags);

int msync(void *address, size_t length, int flags) {
    (void)address;
    (void)length;
    (void)flags;
    return 0;
}
