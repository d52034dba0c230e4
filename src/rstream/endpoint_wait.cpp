// SPDX-License-Identifier: BSD-3-Clause
// rstream/endpoint: who is told of the stream's news: the program, by a descriptor, and the event queue.
#include "rstream/endpoint.hpp"

namespace rstream {

// ---- the device's descriptors ----

base::Result<void> Endpoint::begin_watch(Watcher who) {
    if (watchers_ == 0) {
        descriptors_.clear();
        if (auto begun = shard_->begin_watch(descriptors_, false); !begun) {
            return begun;
        }
    }
    watchers_ |= static_cast<unsigned>(who);
    return {};
}

void Endpoint::end_watch(Watcher who) {
    if (is_watched_by(who)) {
        watchers_ &= ~static_cast<unsigned>(who);
        if (watchers_ == 0) {
            shard_->end_watch();
        }
    }
}

// A descriptor of the device was readable. The kernel's devices make it so once, and are armed again.
void Endpoint::serve_and_arm() {
    shard_->events_came();
    (void)shard_->serve();
    if (shard_->device().is_of_kernel()) {
        std::vector<int> same;
        (void)shard_->begin_watch(same, true);
        (void)shard_->serve();
    }
}

// ---- for the event queue ----

base::Result<void> Endpoint::watch() {
    const base::Lock lock{shard_->mutex()};
    auto begun = begin_watch(Watcher::Queue);
    if (begun) {
        Source *const source = this;
        begun = queue_->wait_set().add(descriptors_, source);
        serve_and_arm();  // what came before does not make a descriptor readable
        tell_descriptor();
    }
    return begun;
}

void Endpoint::unwatch() {
    const base::Lock lock{shard_->mutex()};
    end_watch_of_queue();
}

void Endpoint::end_watch_of_queue() {
    if (is_watched_by(Watcher::Queue)) {
        queue_->wait_set().remove(descriptors_);
        end_watch(Watcher::Queue);
    }
}

void Endpoint::serve() {
    const base::Lock lock{shard_->mutex()};
    if (watchers_ != 0) {
        serve_and_arm();
    } else {
        (void)shard_->serve();
    }
    tell_descriptor();
}

// ---- for the program ----

int Endpoint::get_wait(int *fd) {
    if (!wait_set_) {
        auto made = WaitSet::make();
        if (!made) {
            return -made.error().number;
        }
        if (shard_ == nullptr) {
            wait_set_ = std::move(*made);
        } else if (const int result = guarded([&] { return returned<int>(watch_with(std::move(*made))); });
                   result != 0) {
            return result;
        }
    }
    *fd = wait_set_->fd();
    return 0;
}

base::Result<void> Endpoint::watch_with(WaitSet made) {
    const base::Lock lock{shard_->mutex()};
    wait_set_ = std::move(made);
    auto watched = watch_for_program();
    if (!watched) {
        wait_set_.reset();
    }
    return watched;
}

base::Result<void> Endpoint::watch_for_program() {
    auto watched = begin_watch(Watcher::Program);
    if (watched && !set_has_descriptors_) {
        watched = wait_set_->add(descriptors_, this);
        set_has_descriptors_ = watched.has_value();
        if (!watched) {
            end_watch(Watcher::Program);
        }
    }
    if (watched) {
        (void)shard_->serve();  // what came before does not make a descriptor readable
        tell_descriptor();
    }
    return watched;
}

// A program that calls fi_trywait waits only after that has returned 0. Only then the device's descriptors
// tell of news, because that costs both ends a system call for each message. From the first call that moves
// bytes to the next such fi_trywait the program's descriptor is readable.
//
// With several threads in calls for the endpoint, one may wait while another looks. Then the device's
// descriptors tell of news at all times, and so they do for a program that does not call fi_trywait.

bool Endpoint::waits_by_rule() const {
    return calls_trywait_ && !has_several_callers_;
}

void Endpoint::note_caller() {
    [[gnu::tls_model("initial-exec")]] static constinit thread_local char this_thread = 0;
    if (caller_ == &this_thread || has_several_callers_) [[likely]] {
        return;
    }
    has_several_callers_ = caller_ != nullptr;
    caller_ = &this_thread;
    if (has_several_callers_ && wait_set_ && !is_watched_by(Watcher::Program)) {
        (void)watch_for_program();  // fi_trywait tries it again, and returns the error
    }
}

void Endpoint::begin_call() {
    note_caller();
    waited_before_ = is_watched_by(Watcher::Program) && waits_by_rule();
    if (waited_before_) {
        end_watch(Watcher::Program);
    }
}

void Endpoint::end_call(bool found) {
    if (!waited_before_) {
        tell_descriptor();
    } else if (found) {
        wait_set_->light(true);
    } else {
        (void)watch_for_program();
    }
}

void Endpoint::begin_to_look() {
    if (open_.load(std::memory_order_acquire) != nullptr) {
        const base::Lock lock{shard_->mutex()};
        calls_trywait_ = true;
        begin_call();
    }
}

void Endpoint::end_look() {
    if (open_.load(std::memory_order_acquire) != nullptr) {
        const base::Lock lock{shard_->mutex()};
        end_call(true);
    }
}

bool Endpoint::has_news() {
    if (open_.load(std::memory_order_acquire) == nullptr) {
        return false;
    }
    const base::Lock lock{shard_->mutex()};
    serve_before_wait();
    tell_descriptor();
    return is_ready();
}

base::Result<bool> Endpoint::begin_to_wait() {
    if (open_.load(std::memory_order_acquire) == nullptr) {
        return false;
    }
    const base::Lock lock{shard_->mutex()};
    if (wait_set_ && !is_watched_by(Watcher::Program)) {
        if (const auto watched = watch_for_program(); !watched) {
            return std::unexpected{watched.error()};
        }
    }
    return is_ready();
}

// The program may wait for the descriptor next.
void Endpoint::serve_before_wait() {
    if (is_watched_by(Watcher::Program) && shard_->device().is_of_kernel()) {
        serve_and_arm();
    } else {
        (void)shard_->serve();
    }
}

bool Endpoint::is_ready() const {
    stream_->mutex().assert_held();
    return stream_->can_receive(1) || (send_waits_ && stream_->can_send());
}

void Endpoint::tell_descriptor() {
    if (is_watched_by(Watcher::Program)) {
        wait_set_->light(is_ready());
    }
}

}  // namespace rstream
