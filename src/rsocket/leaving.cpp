// SPDX-License-Identifier: BSD-3-Clause
// rsocket/leaving: streams whose rsockets are closed, until their bytes have left.
#include "rsocket/leaving.hpp"

#include <utility>

#include "base/fork.hpp"
#include "base/log.hpp"

namespace rsockets {

namespace {

bool is_done(const stream::Connection &stream) {
    if (!stream.mutex().try_lock()) {
        return false;
    }
    const base::Lock lock{stream.mutex(), base::adopt};
    (void)stream.serve_shard();
    return stream.idle();
}

}  // namespace

// Never destroyed: other threads may be in a call when main() returns.
Leaving &Leaving::instance() {
    static auto *const leaving = new Leaving;
    return *leaving;
}

void Leaving::add(std::unique_ptr<stream::Connection> stream, base::Fd fd) {
    Left left{.fd = std::move(fd), .stream = std::move(stream)};
    if (is_done(*left.stream)) {
        return;
    }
    const base::Lock lock{streams_->mutex};
    try {
        streams_->all.push_back(std::move(left));
    } catch (const std::bad_alloc &) {
        BASE_LOG(Error, "a stream is cut off before all of it has left: out of memory");
    }
}

void Leaving::after_fork_in_child() {
    // A thread of the parent that holds the lock may be about to change the list.
    if (streams_->mutex.try_lock()) {
        const base::Lock lock{streams_->mutex, base::adopt};
        for (Left &left : streams_->all) {
            base::leave_to_parent(std::move(left.stream));
        }
        streams_->all.clear();
    }
    base::leave_to_parent(std::exchange(streams_, std::make_unique<Streams>()));
}

bool Leaving::sweep() {
    if (!streams_->mutex.try_lock()) {
        return true;
    }
    const base::Lock lock{streams_->mutex, base::adopt};
    std::erase_if(streams_->all, [](const Left &left) { return is_done(*left.stream); });
    return !streams_->all.empty();
}

}  // namespace rsockets
