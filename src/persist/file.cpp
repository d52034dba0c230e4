// SPDX-License-Identifier: BSD-3-Clause
// persist/file: see the header.
#include "persist/file.hpp"

#include <pthread.h>
#include <sys/mman.h>

#include <cerrno>
#include <map>
#include <new>

#include "persist/mapping.hpp"

namespace persist {

namespace {

// Never destroyed: connections may end after main().
struct Table {
    std::mutex mutex;
    std::map<FileNumber, std::shared_ptr<File>> files;
};
Table &table() {
    static Table &all = *new Table;
    return all;
}

}  // namespace

std::shared_ptr<File> File::of(FileNumber number) {
    Table &all = table();
    const std::scoped_lock lock{all.mutex};
    std::erase_if(all.files, [](const auto &known) {
        return known.second.use_count() == 1 && known.second->failed() == 0;
    });
    const auto found = all.files.find(number);
    return found != all.files.end() ? found->second
                                    : all.files.emplace(number, std::make_shared<File>()).first->second;
}

int File::failed() const {
    const std::scoped_lock lock{mutex_};
    return failed_;
}

// With the lock held.
void File::end(const Call &call) {
    Call **here = &oldest_;
    while (*here != &call) {
        here = &(*here)->next;
    }
    *here = call.next;
}

int File::sync(std::uintptr_t first_page, std::size_t length) {
    std::unique_lock<std::mutex> lock{mutex_};
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
    // ENOMEM says either; storage then has kept its own for a later call.
    const bool vanished = error == ENOMEM && !is_mapped(first_page, length);
    lock.lock();
    end(call);
    if (error != 0 && !vanished && failed_ == 0) {
        failed_ = error;
    }
    ended_.notify_all();
    const std::uint64_t newest = begun_;
    ended_.wait(lock, [&] { return failed_ != 0 || oldest_ == nullptr || oldest_->number > newest; });
    if (failed_ != 0) {
        return failed_;
    }
    return vanished ? error : 0;
}

// The threads that held locks or were in msync are the parent's.
void File::after_fork_in_child() {
    new (&mutex_) std::mutex;
    new (&ended_) std::condition_variable;
    oldest_ = nullptr;
}

// Made here, when the library is loaded: a fork cannot come in between. The table is whole in the child,
// because its lock is held, never for long, while the process forks.
const int File::renews_after_forks =
    pthread_atfork([] { table().mutex.lock(); }, [] { table().mutex.unlock(); },
                   [] {
                       for (const auto &known : table().files) {
                           known.second->after_fork_in_child();
                       }
                       table().mutex.unlock();
                   });

}  // namespace persist
