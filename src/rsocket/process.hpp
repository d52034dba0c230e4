// SPDX-License-Identifier: BSD-3-Clause
// rsocket/process: the calls of librsocket-preload.so that are not in rpma/rsocket.h. It needs them because
// its program knows nothing of rsockets when it begins and when it ends.
#pragma once

namespace rsockets {

// Returns whether a process has begun a stream on this socket of the kernel.
[[nodiscard]] bool carries_stream(int fd);
// Makes an rsocket of such a socket. Each use of it gives ECONNRESET; the caller logs why. Throws
// std::bad_alloc.
void add_lost(int fd);

// Returns an RDMA_REASON_ in words, and "" for RDMA_REASON_NONE.
[[nodiscard]] const char *text_of_reason(int reason);

// Ends the streams, as the kernel ends the sockets of a process that ends: their peers see an end of the
// stream. Waits until their bytes have left, two seconds at most; the rest is lost. Has no effect in a child
// of vfork(2).
void end_streams_with_process();
// Destroys the streams that their programs have closed and whose bytes have left.
void sweep_left_streams();
// Returns whether a thread is about to end them, or has done it. Other threads may be in calls for
// streams that end so.
[[nodiscard]] bool process_ends();

}  // namespace rsockets
