// SPDX-License-Identifier: BSD-3-Clause
// The tests of room persist make their kinds of memory here. Include this header after the headers that
// cmocka needs.
#pragma once

#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>
// cmocka needs setjmp, and names from all of the above.
#include <setjmp.h>
// cmocka.h comes last, and does not declare its functions as C.
extern "C" {
#include <cmocka.h>
}

#if __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#else
#define VALGRIND_DISABLE_ERROR_REPORTING
#define VALGRIND_ENABLE_ERROR_REPORTING
#endif

constexpr size_t page = 4096;

// Makes an empty file of this size in the current folder, which the build puts on storage. An older one is
// removed.
inline int new_file(const char *name, size_t size) {
    unlink(name);
    const int fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, static_cast<off_t>(size)), 0);
    return fd;
}

inline char *map(int fd, size_t size, int flags = MAP_SHARED) {
    void *const address = mmap(nullptr, size, PROT_READ | PROT_WRITE, flags, fd, 0);
    assert_ptr_not_equal(address, MAP_FAILED);
    return static_cast<char *>(address);
}

inline char *map_anonymous(size_t size, int flags = MAP_PRIVATE) {
    return map(-1, size, flags | MAP_ANONYMOUS);
}

// Returns whether files of the current folder can be durable. A test that needs such files skips, and prints
// it, when not.
inline bool on_storage() {
    constexpr long tmpfs = 0x01021994;
    constexpr long ramfs = 0x858458f6;
    struct statfs status;
    assert_int_equal(statfs(".", &status), 0);
    const bool storage = status.f_type != tmpfs && status.f_type != ramfs;
    if (!storage) {
        print_message("SKIPPED: the build folder is in memory (tmpfs); build on a disk to test durability\n");
    }
    return storage;
}
