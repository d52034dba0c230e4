// SPDX-License-Identifier: BSD-3-Clause
// soft/memory/mapped_object: finds and maps the file, or memfd, of which another process of this host has a
// shared mapping. The kernel tells which object that is (proc_pid_maps(5)), and checks each step: this
// process may read the other's /proc (ptrace(2), "access mode checking"), and may open the object. The other
// process does nothing, and what it says of its memory is not used.
//
// A thread of its own does the work. When the memory is a mapping of a file, the thread gives up the
// program's descriptors, and has only those that it opens. Closing a descriptor of a file would take the
// record locks from the program that it has on this file (fcntl_locking(2)). To give them up, the kernel
// copies the lowest 64 descriptors at least, and closes the copies. That is a close(2) to a file system that
// looks at each one: NFS writes back, and a message queue forgets a mq_notify(3) of this process.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace soft {

// Memory of the process that has the thread.
struct PeerMemory {
    pid_t thread;
    std::uint64_t place;
    std::uint64_t bytes;
    bool writes;   // it has to be mapped for writing too
    bool durable;  // bytes that are written there may have to become durable
};

// Maps the pages of the memory. Returns null when this memory is not a shared mapping of one regular file, or
// the file is shorter, or this process may not open it. Takes some 100 microseconds, or longer for a process
// with many mappings or descriptors; it waits for the file system. Any thread may call it.
[[nodiscard]] void *map_object_of(const PeerMemory &memory);

}  // namespace soft
