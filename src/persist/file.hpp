// SPDX-License-Identifier: BSD-3-Clause
// persist/file: msync of a file's pages, and the errors that it has reported. The kernel reports lost bytes
// of an open file only once, to the first of its mappings, threads and connections that asks. So the error
// belongs to the file, and is remembered as long as the process lives.
#pragma once

#include <cstdint>
#include <memory>

#include "base/condition.hpp"
#include "base/fork.hpp"
#include "persist/proc_text.hpp"

namespace persist {

class File {
public:
    // Returns the only File with this number. It is kept while it is used, and for ever when storage has lost
    // bytes of it. Any thread may call it.
    [[nodiscard]] static std::shared_ptr<File> of(FileNumber number);
    File() = default;

    // Makes the pages of a mapping of this file durable. Returns 0; ENOMEM when a part is no longer mapped;
    // or the error of storage (EIO, ENOSPC), and then always. Waits for storage. Before it returns 0 it also
    // waits for the earlier calls on this file, because one of them may get the error of these bytes. Any
    // number of threads may call it at once.
    [[nodiscard]] int sync(std::uintptr_t first_page, std::size_t length) EXCLUDES(mutex_);

    // Returns the error of storage, or 0.
    [[nodiscard]] int failed() const EXCLUDES(mutex_);

private:
    // One msync that is under way; the oldest comes first.
    struct Call {
        std::uint64_t number;
        Call *next;
    };
    void end(const Call &call) REQUIRES(mutex_);
    void after_fork_in_child();
    static const base::ForkHook renews_after_forks;

    mutable base::Mutex mutex_;  // never held during msync
    base::Condition ended_;
    Call *oldest_ GUARDED_BY(mutex_) = nullptr;
    std::uint64_t begun_ GUARDED_BY(mutex_) = 0;
    int failed_ GUARDED_BY(mutex_) = 0;
};

}  // namespace persist
