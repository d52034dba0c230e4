// SPDX-License-Identifier: BSD-3-Clause
// soft/queues/completion_channel: completion channels.
#include <fcntl.h>
#include <pthread.h>

#include <cerrno>

#include "base/shared_value.hpp"
#include "soft/queues/completion_queue.hpp"

namespace soft {

namespace {

// The channel for which this thread is in next_event(). It takes an event that it makes itself before it does
// anything that may block, so the descriptor need not tell of that one.
thread_local const CompletionChannel *waited_for = nullptr;

struct WaitsFor {
    explicit WaitsFor(const CompletionChannel &channel) { waited_for = &channel; }
    ~WaitsFor() { waited_for = nullptr; }
    WaitsFor(const WaitsFor &) = delete;
    WaitsFor &operator=(const WaitsFor &) = delete;
};

}  // namespace

base::Result<CompletionChannel *> CompletionChannel::create(ibv_context *context) {
    auto readable = base::Readable::create();
    if (!readable) {
        return std::unexpected{readable.error()};
    }
    const int fd = readable->fd();
    auto *const channel = new CompletionChannel{std::move(*readable)};
    channel->context = context;
    channel->fd = fd;
    channel->refcnt = 0;
    return channel;
}

bool CompletionChannel::busy() {
    if (inherited()) {
        return false;
    }
    const base::Lock lock{mutex_};
    return !attached_.empty();
}

void CompletionChannel::attach(CompletionQueue &queue) {
    const base::Lock lock{mutex_};
    base::Ring<CompletionQueue *> larger{attached_.size() + 1};
    attached_.push_back(&queue);  // the last step that needs memory
    refcnt = static_cast<int>(attached_.size());
    for (; !pending_.empty(); pending_.pop()) {
        larger.push(pending_.front());
    }
    pending_ = std::move(larger);
}

void CompletionChannel::detach(CompletionQueue &queue) {
    const base::Lock lock{mutex_};
    std::erase(attached_, &queue);
    refcnt = static_cast<int>(attached_.size());
    for (std::size_t left = pending_.size(); left != 0; --left) {
        CompletionQueue *const front = pending_.front();
        pending_.pop();
        if (front != &queue) {
            pending_.push(front);
        }
    }
    readable_.set(!pending_.empty());
}

void CompletionChannel::notify(CompletionQueue &queue) {
    const base::Lock lock{mutex_};
    if (queue.pending_events_++ == 0) {
        pending_.push(&queue);
    }
    if (waited_for != this) {
        readable_.set(true);
    }
}

CompletionQueue *CompletionChannel::take() {
    const base::Lock lock{mutex_};
    if (pending_.empty()) {
        return nullptr;
    }
    CompletionQueue *const queue = pending_.front();
    if (--queue->pending_events_ == 0) {
        pending_.pop();
    }
    readable_.set(!pending_.empty());
    pthread_mutex_lock(&queue->mutex);
    ++queue->unacknowledged_events_;
    pthread_mutex_unlock(&queue->mutex);
    return queue;
}

base::Result<CompletionQueue *> CompletionChannel::next_event() {
    if (inherited()) {
        return base::failure(EINVAL);
    }
    CompletionQueue *event = take();
    if (event != nullptr) {
        return event;
    }
    thread_local std::vector<std::shared_ptr<Group>> groups;
    groups.clear();
    {
        const base::Lock lock{mutex_};
        for (CompletionQueue *const queue : attached_) {
            groups.push_back(queue->group_);
            queue->for_other_groups([](const auto &other) { groups.push_back(other); });
        }
    }
    const bool blocks = (fcntl(fd, F_GETFL) & O_NONBLOCK) == 0;
    base::set_shared(sleeps_here_, blocks);
    bool interrupted = false;
    if (blocks) {
        const WaitsFor waits{*this};
        interrupted = !Group::wait(groups, fd, [&] { return (event = take()) != nullptr; });
    } else {
        for (const auto &group : groups) {
            group->poll(false);
            group->hand_over();
        }
        event = take();
    }
    groups.clear();  // so that no group is kept alive while this thread does something else
    if (event != nullptr) {
        return event;
    }
    return base::failure(interrupted ? EINTR : EAGAIN);
}

}  // namespace soft
