// SPDX-License-Identifier: BSD-3-Clause
// cli/pool: create, lock, check, map.
#include "cli/pool.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "cli/staged_file.hpp"

namespace cli {

Outcome<Pool> Pool::open(const std::string &path, std::uint64_t capacity) {
    if (capacity > largest_capacity) {
        return failed("pool {}: a capacity of {} bytes is too large (expected at most {})", path, capacity,
                      largest_capacity);
    }
    Pool pool{path, Layout{capacity}};
    pool.fd_.reset(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (!pool.fd_ && errno == ENOENT) {
        TRY(pool.create());
    }
    if (!pool.fd_) {
        return failed("pool {}: cannot open: {}", path, errno_text(errno));
    }
    if (!pool.created_) {
        TRY(pool.lock(pool.fd_.get()));
    }
    TRY(pool.check());
    TRY(pool.map());
    TRY(pool.content());
    return pool;
}

// Under its name only when complete, and locked before that: nobody ever opens half a pool.
Outcome<> Pool::create() {
    StagedFile file = TRY(StagedFile::create(path_, 0600));
    // Allocated at once, so that a full disk is an error now and not a lost connection later.
    if (const int error = posix_fallocate(file.fd(), 0, static_cast<off_t>(layout_.file_size()));
        error != 0) {
        return failed("pool {}: cannot allocate {} bytes (two contents of {}): {}", path_,
                      layout_.file_size(), layout_.capacity, errno_text(error));
    }
    const Superblock superblock = encode_superblock(layout_);
    if (pwrite(file.fd(), superblock.data(), superblock.size(), 0) != ssize_t{sizeof(superblock)}) {
        return failed("pool {}: cannot write: {}", path_, errno_text(errno));
    }
    TRY(lock(file.fd()));
    created_ = TRY(file.publish(StagedFile::Existing::Keep));
    // Without one, another process was faster: its pool is the one.
    fd_ = created_ ? file.release() : base::Fd{::open(path_.c_str(), O_RDWR | O_CLOEXEC)};
    return {};
}

Outcome<> Pool::lock(int fd) const {
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
        return {};
    }
    if (errno == EWOULDBLOCK) {
        return failed("pool {}: is already served by another process (expected one server a pool)", path_);
    }
    return failed("pool {}: cannot lock: {}", path_, errno_text(errno));
}

Outcome<> Pool::check() const {
    struct stat status{};
    if (fstat(fd_.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
        return failed("pool {}: expected a regular file", path_);
    }
    if (status.st_nlink == 0) {
        return failed("pool {}: was deleted (expected its file to stay while it is served)", path_);
    }
    Superblock superblock{};
    const ssize_t got = pread(fd_.get(), superblock.data(), superblock.size(), 0);
    const auto found =
        decode_superblock(std::span{superblock}.first(got > 0 ? static_cast<std::size_t>(got) : 0));
    if (!found) {
        return failed("pool {}: {}", path_, found.error().text);
    }
    if (found->capacity != layout_.capacity) {
        return failed("pool {}: holds contents of up to {} bytes (expected --size {})", path_,
                      found->capacity, layout_.capacity);
    }
    if (std::cmp_not_equal(status.st_size, layout_.file_size())) {
        return failed("pool {}: is {}: it has {} bytes (expected {})", path_,
                      std::cmp_less(status.st_size, layout_.file_size()) ? "truncated" : "damaged",
                      status.st_size, layout_.file_size());
    }
    return {};
}

Outcome<> Pool::map() {
    const auto size = static_cast<std::size_t>(layout_.file_size());
    mapping_ = Mapping{size, MAP_SHARED_VALIDATE | MAP_SYNC, fd_.get()};
    is_dax_ = static_cast<bool>(mapping_);
    if (!is_dax_) {
        mapping_ = Mapping{size, MAP_SHARED, fd_.get()};
    }
    if (!mapping_) {
        return failed("pool {}: cannot map {} bytes: {}", path_, size, errno_text(errno));
    }
    return {};
}

Outcome<std::optional<Content>> Pool::content() const {
    std::array<std::byte, Layout::control_size> control;
    const ssize_t got = pread(fd_.get(), control.data(), control.size(), page_size);
    if (got != ssize_t{sizeof(control)}) {
        return failed("pool {}: cannot read: {}", path_, got < 0 ? errno_text(errno) : "it was truncated");
    }
    auto content = committed_content(control, layout_);
    if (!content) {
        return failed("pool {}: is damaged: {}", path_, content.error().text);
    }
    return content;
}

bool Pool::is_on_storage() const {
    struct statfs where{};
    return fstatfs(fd_.get(), &where) == 0 && where.f_type != TMPFS_MAGIC && where.f_type != RAMFS_MAGIC;
}

Outcome<> Pool::serve_copy() {
    const auto original = region();
    Mapping copy{original.size(), MAP_PRIVATE | MAP_ANONYMOUS, -1};
    if (!copy) {
        return failed("pool {}: cannot allocate {} bytes for a copy of it: {}", path_, original.size(),
                      errno_text(errno));
    }
    // Through the file: a mapping of one that somebody truncates ends the process.
    for (std::size_t done = 0; done < original.size();) {
        const auto rest = copy.bytes().subspan(done);
        const ssize_t got = pread(fd_.get(), rest.data(), rest.size(), static_cast<off_t>(page_size + done));
        if (got <= 0 && !(got < 0 && errno == EINTR)) {
            return failed("pool {}: cannot read: {}", path_,
                          got < 0 ? errno_text(errno) : "it was truncated");
        }
        done += got > 0 ? static_cast<std::size_t>(got) : 0;
    }
    copy_ = std::move(copy);
    mapping_ = {};
    return {};
}

Outcome<> Pool::store(std::uint64_t offset, std::uint64_t length) const {
    if (offset > copy_.bytes().size() || length > copy_.bytes().size() - offset) {
        return failed("pool {}: {} bytes at {} are to be stored (expected a range within its {} bytes)",
                      path_, length, offset, copy_.bytes().size());
    }
    auto rest = copy_.bytes().subspan(offset, length);
    while (!rest.empty()) {
        const auto where = static_cast<off_t>(page_size + offset + length - rest.size());
        const ssize_t put = pwrite(fd_.get(), rest.data(), rest.size(), where);
        if (put < 0 && errno != EINTR) {
            return failed("pool {}: cannot write: {}", path_, errno_text(errno));
        }
        rest = rest.subspan(put > 0 ? static_cast<std::size_t>(put) : 0);
    }
    if (fdatasync(fd_.get()) != 0) {
        return failed("pool {}: cannot make it durable: {}", path_, errno_text(errno));
    }
    return {};
}

Outcome<> Pool::make_commit_durable() const {
    if (copy_) {
        return store(Layout::commit_word, sizeof(CommitWord));
    }
    if (msync(region().data(), page_size, MS_SYNC) != 0) {
        return failed("pool {}: cannot make it durable: {}", path_, errno_text(errno));
    }
    return {};
}

void Pool::discard_created() const {
    if (created_) {
        unlink(path_.c_str());
    }
}

}  // namespace cli
