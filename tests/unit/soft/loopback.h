/* SPDX-License-Identifier: BSD-3-Clause */
/* loopback: the device of the loopback interface, whose addresses are known. A test includes it after cmocka.
 */
#pragma once

#include <string.h>

#include "softrdma.h"

static struct ibv_context *open_loopback(void) {
    struct ibv_context *found = NULL;
    struct ibv_device **list = softrdma_ibv_get_device_list(NULL);
    assert_non_null(list);
    for (size_t i = 0; list[i] != NULL; i++) {
        if (strcmp(softrdma_ibv_get_device_name(list[i]), "soft_lo") == 0) {
            found = softrdma_ibv_open_device(list[i]);
        }
    }
    softrdma_ibv_free_device_list(list);
    assert_non_null(found);
    return found;
}
