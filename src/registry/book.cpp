// SPDX-License-Identifier: BSD-3-Clause
// registry/book: files in memory that other programs read.
#include "registry/book.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "base/at_exit.hpp"
#include "base/fd.hpp"
#include "base/file_limit.hpp"
#include "base/fork.hpp"
#include "base/log.hpp"
#include "base/result.hpp"
#include "registry/reader.hpp"
#include "registry/user_folder.hpp"

namespace registry {

namespace {

const base::AtExit<[] { Book::instance().remove_files(); }> at_exit;

// Makes a file without a name, with memory for all its bytes, so that a store into the mapping cannot fail.
// It is locked before it has a name, because a reader removes a file that nobody has locked.
base::Result<base::Fd> make_nameless(const UserFolder &folder, std::size_t bytes) {
    constexpr mode_t readable = S_IRUSR | S_IWUSR | S_IRGRP | S_IROTH;
    base::Fd file{openat(folder.fd.get(), ".", O_TMPFILE | O_RDWR | O_CLOEXEC, readable)};
    if (!file || fchmod(file.get(), readable) != 0) {
        return base::last_failure();
    }
    const int error =
        base::may_make_file(bytes) ? posix_fallocate(file.get(), 0, static_cast<off_t>(bytes)) : errno;
    if (error != 0) {
        return base::failure(error);
    }
    if (const auto locked = lock_while_mapped(file.get()); !locked) {
        return std::unexpected{locked.error()};
    }
    return file;
}

// Returns the file's memory, with the header in it.
base::Result<void *> map(const base::Fd &file, std::size_t bytes) {
    void *const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    if (memory == MAP_FAILED) {
        return base::last_failure();
    }
    const Header header;
    std::memcpy(memory, &header, sizeof(header));
    return memory;
}

base::Result<FileName> give_name(const base::Fd &file, const UserFolder &folder) {
    struct stat status{};
    const ino_t space = own_space();
    if (space == 0 || fstat(file.get(), &status) != 0) {
        return base::failure(space != 0 ? errno : ENOENT);
    }
    const FileName name{.user = status.st_uid, .space = space, .process = getpid(), .inode = status.st_ino};
    const std::string self = "/proc/self/fd/" + std::to_string(file.get());
    if (linkat(AT_FDCWD, self.c_str(), folder.fd.get(), name.text().c_str(), AT_SYMLINK_FOLLOW) != 0) {
        return base::last_failure();
    }
    return name;
}

}  // namespace

Entry::Entry(Book &book, Record &record)
    : book_{&book}, record_{&record}, generation_{base::fork_generation()} {}

Entry &Entry::operator=(Entry &&other) noexcept {
    std::swap(book_, other.book_);
    std::swap(record_, other.record_);
    std::swap(generation_, other.generation_);
    return *this;
}

Entry::~Entry() {
    if (*this) {
        book_->give_back(*record_);
    }
}

Entry::operator bool() const {
    return record_ != nullptr && generation_ == base::fork_generation();
}

void Entry::describe(const Description &description) {
    if (!*this) {
        return;
    }
    const std::atomic_ref sequence{record_->sequence};
    const std::uint32_t before = sequence.load(std::memory_order_relaxed);
    sequence.store(before + 1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    record_->description = description;
    record_->used = 1;
    sequence.store(before + 2, std::memory_order_release);
}

// Never destroyed: other threads may be in a call when main() returns.
Book &Book::instance() {
    static auto *const book = new Book{shared_folder};
    return *book;
}

Book::~Book() {
    remove_files();
    for (const File &file : files_) {
        munmap(file.memory, file.bytes);
    }
}

Entry Book::add() {
    const base::Lock lock{mutex_};
    if (free_.empty() && !make_file()) {
        return {};
    }
    Record &record = *free_.back();
    free_.pop_back();
    record.live = {};
    return {*this, record};
}

bool Book::make_file() {
    if (is_out_of_order_ || leaves_files_) {
        return false;
    }
    if (own_files().empty()) {
        remove_abandoned(shared_);
    }
    const std::size_t bytes = first_file_bytes << own_files().size();
    const auto own = bytes <= most_file_bytes ? own_folder(shared_) : base::failure(ENOSPC);
    const auto file = own ? make_nameless(*own, bytes) : std::unexpected{own.error()};
    const auto memory = file ? map(*file, bytes) : std::unexpected{file.error()};
    const auto name = memory ? give_name(*file, *own) : std::unexpected{memory.error()};
    if (!name) {
        if (memory) {
            munmap(*memory, bytes);
        }
        BASE_LOG(Notice,
                 "%s: cannot make a file for the registry of rsockets: %s; other programs do not see %s",
                 shared_.c_str(), std::strerror(name.error().number),
                 own_files().empty() ? "this process" : "its further rsockets");
        is_out_of_order_ = true;
        return false;
    }
    const std::span records{static_cast<Record *>(*memory), bytes / sizeof(Record)};
    files_.push_back({.path = own->path + "/" + name->text(),
                      .process = name->process,
                      .memory = *memory,
                      .bytes = bytes});
    free_.reserve(free_.capacity() + records.size());  // to give one back allocates nothing
    for (auto record = records.rbegin(); record != records.rend() - 1; ++record) {
        free_.push_back(&*record);
    }
    return true;
}

void Book::give_back(Record &record) {
    const base::Lock lock{mutex_};
    const std::atomic_ref sequence{record.sequence};
    sequence.fetch_add(1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    record.used = 0;
    sequence.fetch_add(1, std::memory_order_release);
    free_.push_back(&record);
}

// A child of vfork(2) has this memory too, and its end is not the parent's.
void Book::remove_files() {
    const base::Lock lock{mutex_};
    for (const File &file : own_files()) {
        if (!leaves_files_ && file.process == getpid()) {
            (void)unlink(file.path.c_str());
        }
    }
}

void Book::leave_files() {
    const base::Lock lock{mutex_};
    leaves_files_ = true;
}

// Other memory takes the place of the mappings, which would keep the parent's locks: streams that the child
// inherited point there, and write nothing.
void Book::after_fork_in_child() {
    mutex_.assert_held();
    for (const File &file : own_files()) {
        (void)mmap(file.memory, file.bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    }
    free_.clear();
    inherited_ = files_.size();
    is_out_of_order_ = false;
    mutex_.leave();
}

}  // namespace registry
