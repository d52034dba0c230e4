// SPDX-License-Identifier: BSD-3-Clause
// verbs/siw: a defect of rdma-core's driver for the kernel's soft-iWARP (siw), and the way around it.
#pragma once

#include <infiniband/verbs.h>

namespace verbs::siw {

// Does what ibv_create_cq does. The kernel maps the queues of a process's siw device one behind the other.
// The driver takes the offset 0x90000 for a failure of the kernel: it destroys the queue that begins there,
// and returns NULL without an errno. The next queue begins there again, and so on. Therefore the first
// completion queue on such a device comes with one that covers the offset and lasts as long as the device is
// open (1 MiB of the kernel's memory). A device that is closed and opened again may get no new cover;
// librdmacm keeps those that it opens while they exist.
ibv_cq *create_cq(ibv_context *context, int cqe, void *cq_context, ibv_comp_channel *channel,
                  int comp_vector);

}  // namespace verbs::siw
