/* SPDX-License-Identifier: BSD-3-Clause */
/* Prints the soft device's names: softrdma.h compiles, and libsoftrdma answers, from where they are
 * installed. */
#include <softrdma.h>
#include <stdio.h>

int main(void) {
    int count = 0;
    struct ibv_device **devices = softrdma_ibv_get_device_list(&count);
    for (int i = 0; devices != NULL && i < count; i++) {
        puts(softrdma_ibv_get_device_name(devices[i]));
    }
    if (devices != NULL) {
        softrdma_ibv_free_device_list(devices);
    }
    return count > 0 ? 0 : 1;
}
