// SPDX-License-Identifier: BSD-3-Clause
// socket_preload/stdio: FILE streams on rsockets.
#pragma once

namespace socket_preload {

// libc's stdin, stdout and stderr read and write by calls that cannot be interposed. When their number, 0 to
// 2, becomes a socket's, this puts streams in their place that use that socket.
void begin_standard_stream(int number);

}  // namespace socket_preload
