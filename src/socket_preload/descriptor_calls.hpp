// SPDX-License-Identifier: BSD-3-Clause
// socket_preload/descriptor_calls: close, dup, fcntl, ioctl.
#pragma once

namespace socket_preload {

// Does what the program wants of close(2).
int close_any(int fd);

}  // namespace socket_preload
