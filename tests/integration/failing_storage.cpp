// SPDX-License-Identifier: BSD-3-Clause
// This file is linked into an rpma of its own, whose storage fails on purpose. While the file that
// RPMA_TEST_FAILURE names exists, it holds two numbers: the call of pwrite, fsync or syncfs, counted from 1,
// that fails, and the errno value. The failing call writes nothing and removes the file, so that the next
// succeed, as after a write error of the kernel. The FIFO that RPMA_TEST_SLOW names holds pwrite and msync
// for as long as another process has it open for writing; so does the one of RPMA_TEST_SLOW_NAME the opening
// of the folder "slow", the one of RPMA_TEST_SLOW_END the end of the memory through which a push went,
// the one of RPMA_TEST_SLOW_SYNC fsync, and the one of RPMA_TEST_SLOW_FILE the making of a file without a
// name, and the one of RPMA_TEST_SLOW_ALLOCATION fallocate. While the file that RPMA_TEST_NO_FOLDER names
// exists, the next opening of the folder "fenced" fails, and removes the file. While the file that
// RPMA_TEST_NO_REGION names exists, the next region for one connection cannot be made, and while the one of
// RPMA_TEST_NO_FILE exists, the next file without a name, and while the one of RPMA_TEST_NO_READ exists, the
// next pread of a block (with the errno value in that file, or EIO); that failure removes the file too. While
// the file that RPMA_TEST_NO_ALLOCATION names exists, file systems cannot allocate, while the one of
// RPMA_TEST_NO_ROOM exists, they do not tell how much room there is, and while the one of RPMA_TEST_CLONES
// exists, they clone files (FICLONE), by a copy. The FIFO that RPMA_TEST_SLOW_PAGES names holds, in the same
// way, the pages of each file that is mapped to be read. While the file that RPMA_TEST_READ_ONLY names
// exists, no file can be opened for writing. With RPMA_TEST_FILE_SYSTEM each file system says that it
// is of this type, a number.
#include <dlfcn.h>
#include <fcntl.h>
#include <librpma.h>
#include <linux/fs.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "base/fd.hpp"
#include "cli/protocol/blocks.hpp"
#include "cli/protocol/protocol.hpp"

#define EXPORTED extern "C" [[gnu::visibility("default")]]

namespace {

// Returns the errno value with which this call fails, 0 when it does not fail.
int failure() {
    const char *path = std::getenv("RPMA_TEST_FAILURE");
    const std::unique_ptr<FILE, int (*)(FILE *)> file{path != nullptr ? std::fopen(path, "r+") : nullptr,
                                                      [](FILE *open) { return std::fclose(open); }};
    int calls = 0;
    int error = 0;
    if (!file || std::fscanf(file.get(), "%d %d", &calls, &error) != 2) {
        return 0;
    }
    if (calls <= 1) {
        (void)unlink(path);
        return error;
    }
    std::rewind(file.get());
    (void)std::fprintf(file.get(), "%d %d\n", calls - 1, error);
    return 0;
}

// Returns whether the file that the variable names exists.
bool exists(const char *variable) {
    const char *path = std::getenv(variable);
    return path != nullptr && access(path, F_OK) == 0;
}

// Returns whether the file that the variable names existed, and removes it.
bool remove_once(const char *variable) {
    const char *path = std::getenv(variable);
    return path != nullptr && unlink(path) == 0;
}

// Returns whether this process is `rpma pull`.
bool is_a_pull() {
    std::ifstream words{"/proc/self/cmdline"};
    std::string word;
    std::getline(words, word, '\0');
    return std::getline(words, word, '\0') && word == "pull";
}

// Waits until a writer has opened the FIFO and has closed it. Without the FIFO it does not wait.
void wait_for_the_disk(const char *variable) {
    const char *path = std::getenv(variable);
    const int fifo = path != nullptr ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fifo >= 0) {
        char byte = 0;
        (void)!read(fifo, &byte, 1);
        close(fifo);
    }
}

// Maps a copy of the file, whose pages are not there until the disk gives them.
void *map_slowly(std::size_t length, int flags, int fd) {
    base::Fd copy{memfd_create("slow pages", MFD_CLOEXEC)};
    base::Fd watcher{static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC))};
    base::Fd file{fcntl(fd, F_DUPFD_CLOEXEC, 0)};
    uffdio_api api{.api = UFFD_API, .features = 0, .ioctls = 0};
    if (!copy || !file || ftruncate(copy.get(), static_cast<off_t>(length)) != 0 || !watcher ||
        syscall(SYS_ioctl, watcher.get(), UFFDIO_API, &api) != 0) {
        return MAP_FAILED;
    }
    const long mapped = syscall(SYS_mmap, nullptr, length, PROT_READ, flags, copy.get(), 0);
    const std::size_t pages = (length + 4095) / 4096 * 4096;
    uffdio_register watched{.range = {.start = static_cast<std::uint64_t>(mapped), .len = pages},
                            .mode = UFFDIO_REGISTER_MODE_MISSING,
                            .ioctls = 0};
    if (mapped == -1 || syscall(SYS_ioctl, watcher.get(), UFFDIO_REGISTER, &watched) != 0) {
        return MAP_FAILED;
    }
    // The end of the watcher wakes those that wait for a page.
    std::thread{[copy = std::move(copy), watcher = std::move(watcher), file = std::move(file)] {
        wait_for_the_disk("RPMA_TEST_SLOW_PAGES");
        off_t offset = 0;
        while (sendfile(copy.get(), file.get(), &offset, std::size_t{1} << 20) > 0) {
        }
    }}.detach();
    return reinterpret_cast<void *>(mapped);
}

}  // namespace

EXPORTED void *mmap(void *address, std::size_t length, int protection, int flags, int fd,
                    off_t offset) noexcept {
    if (fd >= 0 && protection == PROT_READ && (flags & MAP_SHARED) != 0 && exists("RPMA_TEST_SLOW_PAGES")) {
        return map_slowly(length, flags, fd);
    }
    return reinterpret_cast<void *>(syscall(SYS_mmap, address, length, protection, flags, fd, offset));
}

EXPORTED int msync(void *address, std::size_t length, int flags) {
    wait_for_the_disk("RPMA_TEST_SLOW");
    return static_cast<int>(syscall(SYS_msync, address, length, flags));
}

EXPORTED ssize_t pwrite(int fd, const void *bytes, std::size_t length, off_t offset) {
    static const bool pulls = is_a_pull();  // which has a disk of its own
    if (!pulls) {
        wait_for_the_disk("RPMA_TEST_SLOW");
        if (const int error = failure(); error != 0) {
            errno = error;
            return -1;
        }
    }
    return syscall(SYS_pwrite64, fd, bytes, length, offset);
}

EXPORTED ssize_t pread(int fd, void *bytes, std::size_t length, off_t offset) {
    if (length == cli::smallest_block && exists("RPMA_TEST_NO_READ")) {
        int error = EIO;
        std::ifstream{std::getenv("RPMA_TEST_NO_READ")} >> error;
        (void)remove_once("RPMA_TEST_NO_READ");
        errno = error != 0 ? error : EIO;
        return -1;
    }
    return syscall(SYS_pread64, fd, bytes, length, offset);
}

EXPORTED int munmap(void *address, std::size_t length) noexcept {
    if (length == cli::window_size) {
        wait_for_the_disk("RPMA_TEST_SLOW_END");
    }
    return static_cast<int>(syscall(SYS_munmap, address, length));
}

EXPORTED int fsync(int fd) {
    wait_for_the_disk("RPMA_TEST_SLOW_SYNC");
    if (const int error = failure(); error != 0) {
        errno = error;
        return -1;
    }
    return static_cast<int>(syscall(SYS_fsync, fd));
}

EXPORTED int syncfs(int fd) noexcept {
    if (const int error = failure(); error != 0) {
        errno = error;
        return -1;
    }
    return static_cast<int>(syscall(SYS_syncfs, fd));
}

EXPORTED int fstatfs(int fd, struct statfs *where) noexcept {
    const auto result = static_cast<int>(syscall(SYS_fstatfs, fd, where));
    if (const char *type = std::getenv("RPMA_TEST_FILE_SYSTEM"); type != nullptr) {
        where->f_type = std::strtol(type, nullptr, 0);
    }
    return result;
}

EXPORTED int openat(int folder, const char *path, int flags, ...) {
    if ((flags & O_TMPFILE) == O_TMPFILE && remove_once("RPMA_TEST_NO_FILE")) {
        errno = EMFILE;
        return -1;
    }
    if ((flags & O_TMPFILE) == O_TMPFILE) {
        wait_for_the_disk("RPMA_TEST_SLOW_FILE");
    }
    if (std::string_view{path} == "fenced" && remove_once("RPMA_TEST_NO_FOLDER")) {
        errno = EMFILE;
        return -1;
    }
    if (std::string_view{path} == "slow") {
        wait_for_the_disk("RPMA_TEST_SLOW_NAME");
    }
    if ((flags & O_ACCMODE) != O_RDONLY && exists("RPMA_TEST_READ_ONLY")) {
        errno = EROFS;
        return -1;
    }
    va_list arguments;
    va_start(arguments, flags);
    const auto mode = va_arg(arguments, mode_t);
    va_end(arguments);
    return static_cast<int>(syscall(SYS_openat, folder, path, flags, mode));
}

EXPORTED int fallocate(int fd, int mode, off_t offset, off_t length) {
    wait_for_the_disk("RPMA_TEST_SLOW_ALLOCATION");
    if (exists("RPMA_TEST_NO_ALLOCATION")) {
        errno = EOPNOTSUPP;
        return -1;
    }
    return static_cast<int>(syscall(SYS_fallocate, fd, mode, offset, length));
}

EXPORTED int fstatvfs(int fd, struct statvfs *where) noexcept {
    if (exists("RPMA_TEST_NO_ROOM")) {
        errno = EIO;
        return -1;
    }
    using Look = decltype(fstatvfs);
    return reinterpret_cast<Look *>(dlsym(RTLD_NEXT, "fstatvfs"))(fd, where);
}

EXPORTED int ioctl(int fd, unsigned long request, ...) noexcept {
    va_list arguments;
    va_start(arguments, request);
    void *const argument = va_arg(arguments, void *);
    va_end(arguments);
    if (request != FICLONE || !exists("RPMA_TEST_CLONES")) {
        return static_cast<int>(syscall(SYS_ioctl, fd, request, argument));
    }
    const int source = static_cast<int>(reinterpret_cast<std::intptr_t>(argument));
    struct stat status{};
    off_t offset = 0;
    if (fstat(source, &status) != 0) {
        return -1;
    }
    while (offset < status.st_size) {
        if (sendfile(fd, source, &offset, static_cast<std::size_t>(status.st_size - offset)) <= 0) {
            return -1;
        }
    }
    return 0;
}

EXPORTED int rpma_conn_req_mr_reg(rpma_conn_req *request, void *memory, std::size_t size, int usage,
                                  rpma_mr_local **region) {
    if (remove_once("RPMA_TEST_NO_REGION")) {
        return RPMA_E_PROVIDER;
    }
    using Register = decltype(rpma_conn_req_mr_reg);
    auto *const next = reinterpret_cast<Register *>(dlsym(RTLD_NEXT, "rpma_conn_req_mr_reg"));
    return next(request, memory, size, usage, region);
}
