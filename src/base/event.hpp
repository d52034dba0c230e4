// SPDX-License-Identifier: BSD-3-Clause
// base/event: writes and reads an eventfd(2) without a cancellation point. A thread that is cancelled in the
// C library's functions for that would leave its work half done, and other threads asleep.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace base {

// Makes the descriptor readable.
inline void raise_event(int fd) {
    const std::uint64_t one = 1;
    static_cast<void>(syscall(SYS_write, fd, &one, sizeof(one)));
}

// Makes the descriptor unreadable. Returns false when it was that, if the descriptor does not block (errno).
inline bool take_event(int fd) {
    std::uint64_t raised = 0;
    return syscall(SYS_read, fd, &raised, sizeof(raised)) == static_cast<long>(sizeof(raised));
}

}  // namespace base
