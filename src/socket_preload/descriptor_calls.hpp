// SPDX-License-Identifier: BSD-3-Clause
// socket_preload/descriptor_calls: close, dup, fcntl, ioctl.
#pragma once

namespace socket_preload {

// Closes a descriptor as the program's close(2).
int close_any(int fd);

}  // namespace socket_preload
