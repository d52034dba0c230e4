// SPDX-License-Identifier: BSD-3-Clause
#include "persist/file.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <map>

#include "persist/mapping.hpp"

namespace persist {

namespace {

// The table is never destroyed, because connections may end after main().
struct Table {
    base::LastingMutex mutex;
    std::map<FileNumber, std::shared_ptr<File>> files GUARDED_BY(mutex);
};
Table &table() {
    static Table &all = *new Table;
    return all;
}

}  // namespace

std::shared_ptr<File> File::of(FileNumber number) {
    Table &all = table();
    const base::Lock lock{all.mutex};
    std::erase_if(all.files, [](const auto &known) {
        return known.second.use_count() == 1 && known.second->failed() == 0;
    });
    const auto found = all.files.find(number);
    return found != all.files.end() ? found->second
                                    : all.files.emplace(number, std::make_shared<File>()).first->second;
}

int File::failed() const {
    const base::Lock lock{mutex_};
    return failed_;
}

void File::end(const Call &call) {
    Call **here = &oldest_;
    while (*here != &call) {
        here = &(*here)->next;
    }
    *here = call.next;
}

int File::sync(std::uintptr_t first_page, std::size_t length) {
    base::Lock lock{mutex_};
    if (failed_ != 0) {
        return failed_;
    }
    Call call{++begun_, nullptr};
    Call **last = &oldest_;
    while (*last != nullptr) {
        last = &(*last)->next;
    }
    *last = &call;
    lock.unlock();
    const int error = ::msync(reinterpret_cast<void *>(first_page), length, MS_SYNC) == 0 ? 0 : errno;
    // ENOMEM may come from the mapping or from storage. In the first case storage keeps its error for a later
    // call.
    const bool vanished = error == ENOMEM && !is_mapped(first_page, length);
    lock.lock();
    end(call);
    if (error != 0 && !vanished && failed_ == 0) {
        failed_ = error;
    }
    ended_.notify_all();
    const std::uint64_t newest = begun_;
    while (failed_ == 0 && oldest_ != nullptr && oldest_->number <= newest) {
        ended_.wait(mutex_);
    }
    if (failed_ != 0) {
        return failed_;
    }
    return vanished ? error : 0;
}

// The threads that held locks or were in msync exist only in the parent.
void File::after_fork_in_child() {
    mutex_.renew_after_fork();
    ended_.renew_after_fork();
    const base::Lock lock{mutex_};
    oldest_ = nullptr;
}

// This is initialized when the library is loaded, so that no fork comes before it. The table is consistent in
// the child, because its lock is held, briefly, while the process forks.
const base::ForkHook File::renews_after_forks{base::ForkLevel::Persist,
                                              {.before = [] { table().mutex.take(); },
                                               .after_in_parent = [] { table().mutex.leave(); },
                                               .after_in_child =
                                                   [] {
                                                       Table &all = table();
                                                       all.mutex.assert_held();
                                                       for (const auto &known : all.files) {
                                                           known.second->after_fork_in_child();
                                                       }
                                                       all.mutex.leave();
                                                   }}};

}  // namespace persist
