// SPDX-License-Identifier: BSD-3-Clause
// cli/pool: creates, locks, checks, maps and stores a pool.
#include "cli/pool.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "cli/checksum.hpp"
#include "cli/page_cache.hpp"
#include "cli/staged_file.hpp"
#include "cli/write_all.hpp"

namespace cli {

namespace {

// This size stays in the processor's cache for the checksum.
constexpr std::uint64_t read_size = std::uint64_t{128} << 10;

// Returns the size in the form of --size.
std::string size_option(std::uint64_t bytes) {
    constexpr std::string_view suffixes = "KMGT";
    std::size_t suffix = 0;
    for (; suffix < suffixes.size() && bytes % 1024 == 0; ++suffix) {
        bytes /= 1024;
    }
    return fmt::format("{}{}", bytes, suffix > 0 ? suffixes.substr(suffix - 1, 1) : "");
}

[[nodiscard]] int sync(int fd) {
    return fdatasync(fd) == 0 ? 0 : errno;
}

}  // namespace

Outcome<> lock_pool(int fd, const std::string &path, int kind) {
    if (flock(fd, kind | LOCK_NB) == 0) {
        return {};
    }
    if (errno != EWOULDBLOCK) {
        return failed("pool {}: cannot lock: {}", path, errno_text(errno));
    }
    // Checks share the lock.
    if (kind == LOCK_EX && flock(fd, LOCK_SH | LOCK_NB) == 0) {
        return failed("pool {}: is being checked by another process (expected the end of rpma check first)",
                      path);
    }
    return failed(
        "pool {}: is already served by another process (expected one server for each pool, and none "
        "while it is checked)",
        path);
}

Outcome<Pool> Pool::open(const std::string &path, std::optional<std::uint64_t> capacity) {
    if (capacity > largest_capacity) {
        return failed("pool {}: a capacity of {} bytes is too large (expected at most {})", path, *capacity,
                      largest_capacity);
    }
    Pool pool{path, Layout{capacity.value_or(0)}};
    const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) {
        if (!capacity) {
            return failed("pool {}: does not exist (expected --size, to create it)", path);
        }
        TRY(pool.create());
    } else {
        pool.fd_.reset(fd);
    }
    if (!pool.fd_) {
        return failed("pool {}: cannot open: {}", path, errno_text(errno));
    }
    if (!pool.created_) {
        TRY(lock_pool(pool.fd_.get(), path, LOCK_EX));
    }
    const auto layout = pool.read_layout();
    if (!layout) {
        return failed("pool {}: {}", path, layout.error().text);
    }
    if (capacity && *capacity != layout->capacity) {
        return failed(Exit::Usage, "pool {}: was created with --size {}; you gave {}", path,
                      size_option(layout->capacity), size_option(*capacity));
    }
    pool.layout_ = *layout;
    if (const std::string fault = pool.fault(); !fault.empty()) {
        return failed("pool {}: {}", path, fault);
    }
    TRY(pool.read_content());
    TRY(pool.map());
    return pool;
}

// Creates a pool. The file gets its name only when it is complete and locked, so that no process opens a
// partial pool.
Outcome<> Pool::create() {
    // The kernel shows a file that was opened without a name as deleted for ever, and a deleted file is not
    // durable.
    StagedFile file = TRY(StagedFile::create(path_, 0600, StagedFile::Until::Hidden));
    // The storage is allocated at once, so that a full disk is an error now and not a lost connection later.
    if (const int error = posix_fallocate(file.fd(), 0, static_cast<off_t>(layout_.file_size()));
        error != 0) {
        return failed("pool {}: cannot allocate {} bytes (two contents of {}): {}", path_,
                      layout_.file_size(), layout_.capacity, errno_text(error));
    }
    const Superblock superblock = encode_superblock(layout_);
    if (pwrite(file.fd(), superblock.data(), superblock.size(), 0) != ssize_t{sizeof(superblock)}) {
        return failed("pool {}: cannot write: {}", path_, errno_text(errno));
    }
    TRY(lock_pool(file.fd(), path_, LOCK_EX));
    created_ = TRY(file.publish(StagedFile::Existing::Keep));
    // When it was not created, another process was faster, and its pool is used.
    fd_ = created_ ? file.release() : base::Fd{::open(path_.c_str(), O_RDWR | O_CLOEXEC)};
    return {};
}

Outcome<Layout> Pool::read_layout() const {
    struct stat status{};
    if (fstat(fd_.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
        return failed("expected a regular file");
    }
    Superblock superblock{};
    const ssize_t got = pread(fd_.get(), superblock.data(), superblock.size(), 0);
    return decode_superblock(std::span{superblock}.first(got > 0 ? static_cast<std::size_t>(got) : 0));
}

std::string Pool::fault() const {
    const auto found = read_layout();
    struct stat status{};
    if (!found) {
        return found.error().text;
    }
    if (found->capacity != layout_.capacity || fstat(fd_.get(), &status) != 0) {
        return fmt::format("is damaged: it is one of {} bytes now (expected {})", found->capacity,
                           layout_.capacity);
    }
    if (status.st_nlink == 0) {
        return "was deleted (expected its file to stay while it is served)";
    }
    if (std::cmp_not_equal(status.st_size, layout_.file_size())) {
        return fmt::format("is {}: it has {} bytes (expected {})",
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

// All reads here are through the file, because an access to the mapping of a truncated file ends the process.
Outcome<> Pool::read_content() {
    if (!created_ && is_on_storage()) {
        TRY(forget_cached(fd_.get(), path_));
    }
    std::array<std::byte, Layout::control_size> control;
    if (const int error = read(control, 0); error != 0) {
        return failed("pool {}: cannot read: {}", path_, errno_text(error));
    }
    auto content = committed_content(control, layout_);
    if (!content) {
        return failed("pool {}: is damaged: {}", path_, content.error().text);
    }
    content_ = *content;
    if (content_) {
        if (const auto other = slot_content(control, 1 - content_->slot, layout_)) {
            other_content_ = *other;
        }
    }
    return {};
}

std::string Pool::fault_of(const Content &content) const {
    std::uint32_t found = 0;
    if (const int error = checksum(content.slot, content.length, found); error != 0) {
        return fmt::format("cannot be read: {}", errno_text(error));
    }
    return found == content.checksum
               ? std::string{}
               : fmt::format("is damaged: storage has another checksum, {}", checksum_text(found));
}

std::span<std::byte> Pool::slot(unsigned slot) const {
    return (copy_ ? copy_ : mapping_).bytes().subspan(layout_.content(slot), layout_.content_pages());
}

bool Pool::is_on_storage() const {
    struct statfs where{};
    return fstatfs(fd_.get(), &where) == 0 && where.f_type != TMPFS_MAGIC && where.f_type != RAMFS_MAGIC;
}

bool Pool::is_without_room() const {
    constexpr std::uint64_t least_room = std::uint64_t{1} << 20;
    struct statvfs where{};
    return fstatvfs(fd_.get(), &where) == 0 && where.f_bavail * where.f_frsize < least_room;
}

Outcome<> Pool::serve_copy() {
    const auto size = static_cast<std::size_t>(layout_.file_size());
    Mapping copy{size, MAP_PRIVATE | MAP_ANONYMOUS, -1};
    if (!copy) {
        return failed("pool {}: cannot allocate {} bytes for a copy of it: {}", path_, size,
                      errno_text(errno));
    }
    if (const int error = read(copy.bytes(), 0); error != 0) {
        return failed("pool {}: cannot read: {}", path_, errno_text(error));
    }
    copy_ = std::move(copy);
    mapping_ = {};
    return {};
}

// Returns ENODATA when the file was truncated.
int Pool::read(std::span<std::byte> bytes, std::uint64_t offset) const {
    while (!bytes.empty()) {
        const ssize_t got = pread(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
        if (got <= 0 && !(got < 0 && errno == EINTR)) {
            return got < 0 ? errno : ENODATA;
        }
        const std::size_t progress = got > 0 ? static_cast<std::size_t>(got) : 0;
        bytes = bytes.subspan(progress);
        offset += progress;
    }
    return 0;
}

int Pool::store(unsigned slot, std::uint64_t offset, std::uint64_t length) const {
    if (copy_) {
        const int error =
            write_all(fd_.get(), this->slot(slot).subspan(offset, length), layout_.content(slot) + offset);
        return error != 0 ? error : sync(fd_.get());
    }
    const std::uint64_t page = offset / page_size * page_size;
    return msync(this->slot(slot).data() + page, offset + length - page, MS_SYNC) == 0 ? 0 : errno;
}

int Pool::checksum(unsigned slot, std::uint64_t length, std::uint32_t &found) const {
    const auto memory = std::make_unique_for_overwrite<std::byte[]>(std::min(length, read_size));
    Crc32c checksum;
    for (std::uint64_t done = 0; done < length; done += read_size) {
        const std::span buffer{memory.get(), std::min(length - done, read_size)};
        if (const int error = read(buffer, layout_.content(slot) + done); error != 0) {
            return error;
        }
        if (copy_ && !std::ranges::equal(buffer, this->slot(slot).subspan(done, buffer.size()))) {
            return ESTALE;
        }
        checksum.update(buffer);
    }
    found = checksum.value();
    return 0;
}

// The header is written each time, and not only synced. A page whose write failed is clean for the kernel,
// which would sync nothing and report no failure. The sync is of the whole file, so it includes the content's
// bytes.
int Pool::store_header(const Content &content) const {
    const int error = write_all(fd_.get(), content.header(), Layout::header(content.slot));
    return error != 0 ? error : sync(fd_.get());
}

int Pool::store_word(const Content &content) const {
    const int error = write_all(fd_.get(), content.word(), Layout::commit_word);
    return error != 0 ? error : sync(fd_.get());
}

void Pool::discard_created() const {
    if (created_) {
        unlink(path_.c_str());
    }
}

}  // namespace cli
