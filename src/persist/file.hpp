// SPDX-License-Identifier: BSD-3-Clause
// persist/file: msync of a file's pages, and what this process knows of it since. The kernel tells an open
// file only once that it lost bytes, whoever of its mappings, threads and connections asks first; so what is
// known belongs to the file, and lasts as long as the process.
#pragma once

#include <cstdint>
#include <memory>

#include "base/condition.hpp"
#include "persist/proc_text.hpp"

namespace persist {

class File {
public:
    // The only one with this number. Kept until nobody uses it; for ever when storage has lost bytes of it.
    // Any thread.
    [[nodiscard]] static std::shared_ptr<File> of(FileNumber number);
    File() = default;

    // Makes the pages of a mapping of this file durable: 0, ENOMEM when a part is no longer mapped, or the
    // error of storage (EIO, ENOSPC), from then on always. Waits for storage, and before it says 0 for the
    // calls on this file that began before: one of them may have been told of these bytes. Any number of
    // threads.
    [[nodiscard]] int sync(std::uintptr_t first_page, std::size_t length) EXCLUDES(mutex_);

    // The error of storage, or 0.
    [[nodiscard]] int failed() const EXCLUDES(mutex_);

private:
    // One msync under way, oldest first.
    struct Call {
        std::uint64_t number;
        Call *next;
    };
    void end(const Call &call) REQUIRES(mutex_);
    void after_fork_in_child();
    static const int renews_after_forks;

    mutable base::Mutex mutex_;  // never held during msync
    base::Condition ended_;
    Call *oldest_ GUARDED_BY(mutex_) = nullptr;
    std::uint64_t begun_ GUARDED_BY(mutex_) = 0;
    int failed_ GUARDED_BY(mutex_) = 0;
};

}  // namespace persist
