// SPDX-License-Identifier: BSD-3-Clause
#include "soft/queues/xrc_domain.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <map>
#include <tuple>
#include <utility>

#include "base/error_text.hpp"
#include "base/log.hpp"
#include "soft/queues/shared_receive.hpp"

namespace soft {

namespace {

constinit base::LastingMutex files_lock;  // taken before the locks of lower rooms, and no other of this one

const base::HeldWhileForking<files_lock> files_survive_forks{base::ForkLevel::SoftQueues};

using File = std::tuple<const ibv_device *, dev_t, ino_t>;
using Files = std::map<File, std::weak_ptr<XrcDomain>>;
Files &files() REQUIRES(files_lock) {
    static auto &all = *new Files;  // never destroyed, because handles may be closed while the process ends
    return all;
}

wire::Queue next_number() {
    static std::atomic<std::uint32_t> next{std::to_underlying(wire::Queue::FirstShared)};
    return wire::Queue{next.fetch_add(1, std::memory_order_relaxed)};
}

}  // namespace

base::Result<std::shared_ptr<XrcDomain>> XrcDomain::create(ibv_context &context) {
    auto *const queue = CompletionQueue::create(&context, 1, nullptr, nullptr).value_or(nullptr);
    if (queue == nullptr) {
        return base::failure(EMFILE);
    }
    return std::shared_ptr<XrcDomain>{new XrcDomain{std::unique_ptr<CompletionQueue>{queue}}};
}

XrcDomain::XrcDomain(std::unique_ptr<CompletionQueue> no_completions)
    : no_completions_{std::move(no_completions)} {
    protection_domain_.context = no_completions_->context;
    protection_domain_.of_xrc = &reached_;
}

base::Result<std::shared_ptr<XrcDomain>> XrcDomain::of_file(ibv_context &context, int descriptor, int flags) {
    base::Fd held{::fcntl(descriptor, F_DUPFD_CLOEXEC, 0)};
    struct stat file{};
    if (!held || ::fstat(held.get(), &file) != 0) {
        const int error = errno;
        BASE_LOG(Error, "no XRC domain: descriptor %d cannot be copied: %s; expected one of a file, or -1",
                 descriptor, base::error_text(error));
        return base::failure(error);
    }
    const base::Lock lock{files_lock};
    std::erase_if(files(), [](const auto &known) { return known.second.expired(); });
    std::weak_ptr<XrcDomain> &known = files()[{context.device, file.st_dev, file.st_ino}];
    if (auto domain = known.lock(); domain != nullptr && !domain->inherited()) {
        if ((flags & O_EXCL) != 0) {
            BASE_LOG(Error, "no XRC domain: this process has one of the file, and O_EXCL asks for a new one");
            return base::failure(EINVAL);
        }
        return domain;
    }
    if ((flags & O_CREAT) == 0) {
        BASE_LOG(Error,
                 "no XRC domain: this process has none of the file, and O_CREAT is not set; one of "
                 "another process cannot be shared");
        return base::failure(EAGAIN);
    }
    auto made = create(context);
    if (made) {
        (*made)->file_ = std::move(held);
        known = *made;
    }
    return made;
}

wire::Queue XrcDomain::add(SharedReceiveQueue &queue) {
    const base::Lock lock{group()->mutex()};
    const wire::Queue number = next_number();
    queues_.emplace(number, &queue);
    try {
        reached_.add(domain_of(*queue.pd));
    } catch (const std::bad_alloc &) {
        queues_.erase(number);
        throw;
    }
    return number;
}

void XrcDomain::remove(wire::Queue number) {
    group()->mutex().assert_held();
    const auto known = queues_.find(number);
    reached_.remove(domain_of(*known->second->pd));
    queues_.erase(known);
}

SharedReceiveQueue *XrcDomain::find(wire::Queue number) const {
    group()->mutex().assert_held();
    const auto known = queues_.find(number);
    return known != queues_.end() ? known->second : nullptr;
}

void XrcDomain::forget(TakesReceives &taker) const {
    group()->mutex().assert_held();
    for (const auto &[number, queue] : queues_) {
        queue->forget(taker);
    }
}

}  // namespace soft
