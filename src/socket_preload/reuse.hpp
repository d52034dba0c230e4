// SPDX-License-Identifier: BSD-3-Clause
// socket_preload/reuse: numbers that the program closed behind the library's back, by a raw system call for
// instance.
#pragma once

namespace socket_preload {

// Takes the result of a call of libc's that makes a descriptor, and returns it. Where the number was an
// rsocket's, the program has closed that: it ends, and the new descriptor keeps the number.
int fresh(int made);

}  // namespace socket_preload
