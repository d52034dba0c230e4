// SPDX-License-Identifier: BSD-3-Clause
// registry/book: this process's files in the registry, and an rsocket's record in one of them.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.hpp"
#include "registry/process.hpp"
#include "registry/record.hpp"

namespace registry {

class Book;

// The record of one rsocket; or none, where the machine has no room for it, or a process that forked this one
// made it. It is taken out of the registry when this is destroyed. One thread at a time uses it.
class Entry {
public:
    Entry() = default;
    Entry(Entry &&other) noexcept { *this = std::move(other); }
    Entry &operator=(Entry &&other) noexcept;
    ~Entry();

    // Returns whether others can see the rsocket.
    explicit operator bool() const;
    // Has no effect where there is no record.
    void describe(const Description &description);
    // Where a stream writes; nullptr where there is no record. It stays until this is destroyed.
    [[nodiscard]] Live *live() const { return *this ? &record_->live : nullptr; }

private:
    friend class Book;
    Entry(Book &book, Record &record);

    Book *book_ = nullptr;
    Record *record_ = nullptr;
    unsigned generation_ = 0;
};

// Any number of threads may call.
class Book {
public:
    // The one that the process has. Its files are removed when the process ends.
    [[nodiscard]] static Book &instance();
    explicit Book(std::string shared) : shared_{std::move(shared)} {}
    // Entries end before.
    ~Book();
    Book(const Book &) = delete;
    Book &operator=(const Book &) = delete;

    // An rsocket that is not described yet. The first call makes a file, and removes those that processes of
    // this user left behind; where no file can be made, which is logged once, the entry is none.
    [[nodiscard]] Entry add() EXCLUDES(mutex_);

    // Other programs see nothing of this process any more.
    void remove_files() EXCLUDES(mutex_);
    // The process is about to filter its system calls, and its program needs no unlink(2). Another process of
    // the user's removes the files after the end of this one (remove_abandoned()). There will be no new ones.
    void leave_files() EXCLUDES(mutex_);
    // The caller calls these around fork(2). The child has no record, and makes files of its own. The last
    // one frees no memory: after a system call that copies the process, another thread of the parent may have
    // malloc(3)'s locks for ever.
    void before_fork() { mutex_.take(); }
    void after_fork_in_parent() { mutex_.leave(); }
    void after_fork_in_child();

private:
    friend class Entry;
    [[nodiscard]] bool make_file() REQUIRES(mutex_);
    void give_back(Record &record) EXCLUDES(mutex_);

    const std::string shared_;  // the folder of the users' folders
    base::Mutex mutex_;
    std::vector<Record *> free_ GUARDED_BY(mutex_);
    struct File {
        std::string path;
        pid_t process;  // that has made it
        void *memory;
        std::size_t bytes;
    };
    std::vector<File> files_ GUARDED_BY(mutex_);
    std::size_t inherited_ GUARDED_BY(mutex_) = 0;  // of the files: those of the parents, which come first
    [[nodiscard]] std::span<const File> own_files() const REQUIRES(mutex_) {
        return std::span{files_}.subspan(inherited_);
    }
    bool is_out_of_order_ GUARDED_BY(mutex_) = false;
    bool leaves_files_ GUARDED_BY(mutex_) = false;
};

}  // namespace registry
