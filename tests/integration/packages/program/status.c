/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls what librpma.h's callers call of libibverbs: it comes with librpma. */
#include <librpma.h>
#include <stdio.h>

int main(void) {
    return puts(ibv_wc_status_str(IBV_WC_SUCCESS)) < 0;
}
