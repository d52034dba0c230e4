// SPDX-License-Identifier: BSD-3-Clause
// verbs_preload/files: libc's calls that take a path. They see the folders of face.hpp where the kernel has
// its own, or none.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>

#include "base/interpose.hpp"
#include "verbs_preload/face.hpp"

using base::mode_of;
using face::Path;

// ---- opening ----

NAMED(int, open, const char *path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    const mode_t mode = mode_of(flags, arguments);
    va_end(arguments);
    return LIBC(open)(Path{path}.get(), flags, mode);
}

NAMED(int, openat, int folder, const char *path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    const mode_t mode = mode_of(flags, arguments);
    va_end(arguments);
    return LIBC(openat)(folder, Path{path}.get(), flags, mode);
}

// Those with _FORTIFY_SOURCE for calls without a mode.
NAMED(int, __open_2, const char *path, int flags) {
    return LIBC(open)(Path{path}.get(), flags);
}

NAMED(int, __openat_2, int folder, const char *path, int flags) {
    return LIBC(openat)(folder, Path{path}.get(), flags);
}

NAMED(FILE *, fopen, const char *path, const char *mode) {
    return LIBC(fopen)(Path{path}.get(), mode);
}

NAMED(DIR *, opendir, const char *path) {
    return LIBC(opendir)(Path{path}.get());
}

NAMED(int, scandir, const char *path, struct dirent ***names, int (*filter)(const struct dirent *),
      int (*compare)(const struct dirent **, const struct dirent **)) {
    return LIBC(scandir)(Path{path}.get(), names, filter, compare);
}

// ---- asking ----

NAMED(int, stat, const char *path, struct stat *status) {
    return LIBC(stat)(Path{path}.get(), status);
}

NAMED(int, lstat, const char *path, struct stat *status) {
    return LIBC(lstat)(Path{path}.get(), status);
}

NAMED(int, fstatat, int folder, const char *path, struct stat *status, int flags) {
    return LIBC(fstatat)(folder, Path{path}.get(), status, flags);
}

NAMED(int, statx, int folder, const char *path, int flags, unsigned mask, struct statx *status) {
    return LIBC(statx)(folder, Path{path}.get(), flags, mask, status);
}

// The names before glibc 2.33. The first parameter is the form of the structure; x86-64 has one.
NAMED(int, __xstat, int, const char *path, struct stat *status) {
    return LIBC(stat)(Path{path}.get(), status);
}

NAMED(int, __lxstat, int, const char *path, struct stat *status) {
    return LIBC(lstat)(Path{path}.get(), status);
}

NAMED(int, access, const char *path, int how) {
    return LIBC(access)(Path{path}.get(), how);
}

NAMED(int, faccessat, int folder, const char *path, int how, int flags) {
    return LIBC(faccessat)(folder, Path{path}.get(), how, flags);
}

NAMED(int, euidaccess, const char *path, int how) {
    return LIBC(euidaccess)(Path{path}.get(), how);
}

NAMED(ssize_t, readlink, const char *path, char *target, size_t room) {
    return LIBC(readlink)(Path{path}.get(), target, room);
}

NAMED(ssize_t, readlinkat, int folder, const char *path, char *target, size_t room) {
    return LIBC(readlinkat)(folder, Path{path}.get(), target, room);
}

// `ls -l` asks for access control lists so, which no file here has.
NAMED(ssize_t, getxattr, const char *path, const char *name, void *value, size_t room) {
    return LIBC(getxattr)(Path{path}.get(), name, value, room);
}

NAMED(ssize_t, lgetxattr, const char *path, const char *name, void *value, size_t room) {
    return LIBC(lgetxattr)(Path{path}.get(), name, value, room);
}

NAMED(char *, realpath, const char *path, char *resolved) {
    char *const found = LIBC(realpath)(Path{path}.get(), resolved);
    if (found != nullptr) {
        face::take_tree_off(found);
    }
    return found;
}

NAMED(char *, __realpath_chk, const char *path, char *resolved, size_t room) {
    using Function = char *(const char *, char *, size_t);
    char *const found = base::behind<"__realpath_chk", Function>()(Path{path}.get(), resolved, room);
    if (found != nullptr) {
        face::take_tree_off(found);
    }
    return found;
}

NAMED(char *, canonicalize_file_name, const char *path) {
    char *const found = LIBC(canonicalize_file_name)(Path{path}.get());
    if (found != nullptr) {
        face::take_tree_off(found);
    }
    return found;
}

// The same on machines whose file offsets have 64 bits.
static_assert(sizeof(off64_t) == sizeof(off_t));
EXPORTED [[gnu::alias("open")]] int open64(const char *path, int flags, ...);
EXPORTED [[gnu::alias("openat")]] int openat64(int folder, const char *path, int flags, ...);
EXPORTED [[gnu::alias("__open_2")]] int program_open64_2(const char *path, int flags) asm("__open64_2");
EXPORTED [[gnu::alias("__openat_2")]] int program_openat64_2(int folder, const char *path,
                                                             int flags) asm("__openat64_2");
EXPORTED [[gnu::alias("fopen")]] FILE *fopen64(const char *path, const char *mode);
EXPORTED [[gnu::alias("stat")]] int stat64(const char *path, struct stat64 *status) noexcept;
EXPORTED [[gnu::alias("lstat")]] int lstat64(const char *path, struct stat64 *status) noexcept;
EXPORTED [[gnu::alias("fstatat")]] int fstatat64(int folder, const char *path, struct stat64 *status,
                                                 int flags) noexcept;
EXPORTED [[gnu::alias("__xstat")]] int program_xstat64(int form, const char *path,
                                                       struct stat64 *status) asm("__xstat64");
EXPORTED [[gnu::alias("__lxstat")]] int program_lxstat64(int form, const char *path,
                                                         struct stat64 *status) asm("__lxstat64");
EXPORTED [[gnu::alias("euidaccess")]] int eaccess(const char *path, int how) noexcept;
