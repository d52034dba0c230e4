/* SPDX-License-Identifier: BSD-3-Clause */
/* When this library is preloaded, some calls of fsync are acknowledged and do nothing: with RPMA_LIE=name
 * those of folders and of files that have a name, with RPMA_LIE=file those of all files. With both, so is
 * syncfs, with which a server makes durable what it finds. The power cuts of a store have to show that. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

__attribute__((visibility("default"))) int fsync(int fd);
__attribute__((visibility("default"))) int syncfs(int fd);

int fsync(int fd) {
    const char *const lie = getenv("RPMA_LIE");
    struct stat status;
    if (lie != NULL && fstat(fd, &status) == 0 &&
        (strcmp(lie, "name") == 0 ? status.st_nlink > 0 : S_ISREG(status.st_mode))) {
        return 0;
    }
    return (int)syscall(SYS_fsync, fd);
}

int syncfs(int fd) {
    return getenv("RPMA_LIE") != NULL ? 0 : (int)syscall(SYS_syncfs, fd);
}
