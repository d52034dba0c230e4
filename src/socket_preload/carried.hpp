// SPDX-License-Identifier: BSD-3-Clause
// socket_preload/carried: the numbers of an rsocket or a repoll, of which librsocket knows the first.
#pragma once

#include "socket_preload/descriptor_kinds.hpp"

namespace socket_preload {

// Makes `number` another number of the rsocket or repoll that librsocket knows as `first`. again is
// RsocketAgain or RepollAgain.
void add_number(int first, int number, Kind again);

// Closes the number fd, which is of this kind; the last number closes the rsocket or repoll. Returns 0; or -1
// and EBADF when another thread has closed it, or the error of rclose.
int close_carried(int fd, Kind kind);

}  // namespace socket_preload
