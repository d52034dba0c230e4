// SPDX-License-Identifier: BSD-3-Clause
// rsocket/socket: shutdown, close, and the end of the process.
#include <cerrno>
#include <utility>

#include "rsocket/kernel_socket.hpp"
#include "rsocket/leaving.hpp"
#include "rsocket/socket.hpp"

#include <rpma/rsocket.h>

namespace rsockets {

Result<void> Socket::shutdown(int how) {
    if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR) {
        return base::failure(EINVAL);
    }
    const base::Lock lock{mutex_};
    (void)serve();
    if (state_ == State::Undecided && options_.may_be_tcp() && !lose_to_another()) {
        become_plain(RDMA_REASON_SPOKE_FIRST);
    }
    if (state_ == State::Listening || state_ == State::Plain) {
        return ::shutdown(fd(), how) == 0 ? Result<void>{} : base::last_failure();
    }
    if (stream_ == nullptr && state_ != State::Replaying) {
        return is_lost() ? lost() : base::failure(ENOTCONN);
    }
    ends_receiving_ = ends_receiving_ || how != SHUT_WR;
    ends_sending_ = ends_sending_ || how != SHUT_RD;
    if (const StreamLock in_stream{stream_}) {
        stream_->shut(how != SHUT_WR, how != SHUT_RD);
    }
    waiters_.wake();
    return {};
}

bool Socket::waits_with_bytes() const {
    const bool asks = state_ == State::Offered && decision_time_.awaits_answer();
    return state_ == State::Replaying ||
           (asks && !stream_->early_sends().empty() && !stream_->life().was_established());
}

// The bytes that were sent to a peer that has not answered go by the stream, or in TCP.
void Socket::send_what_is_kept(Deadline deadline) {
    if (state_ == State::Replaying || state_ == State::Offered) {
        (void)until(true, deadline, [&]() -> Result<void> {
            assert_looks();
            return waits_with_bytes() ? base::failure(EAGAIN) : Result<void>{};
        });
    }
}

void Socket::close() {
    const base::Lock lock{mutex_};
    const linger &lingering = options_.lingering();
    const bool lingers = lingering.l_onoff != 0;
    const bool cuts = lingers && lingering.l_linger == 0;
    const auto time = lingers ? std::chrono::seconds{lingering.l_linger} : 2 * DecisionTime::time_to_answer;
    const Deadline deadline = base::Clock::now() + time;
    // The kernel's close does everything that TCP needs, and cuts what is undecided. No stream begins here:
    // another process may have inherited the descriptor, and use it.
    if (cuts && state_ == State::Undecided) {
        options_.of_stream().apply(fd());
    }
    if (!cuts) {
        send_what_is_kept(deadline);
    }
    if (const StreamLock in_stream{stream_}) {
        (void)stream_->serve_shard();
        if (cuts) {
            stream_->abort();
        } else {
            stream_->leave();
        }
    }
    if (lingers && !cuts && stream_ != nullptr) {
        (void)until(true, deadline, [&]() -> Result<void> {
            assert_looks();
            return stream_ == nullptr || stream_->gone() ? Result<void>{} : base::failure(EAGAIN);
        });
    }
    closed_ = true;
    if (entry_) {
        list();
    }
    if (const StreamLock in_stream{stream_}) {
        open_stream_.close();
        stream_->unmap_all();  // the program may free the memory from now on
    }
    waiters_.wake();
}

bool Socket::end_with_process() {
    if (!mutex_.try_lock()) {
        return false;
    }
    const base::Lock lock{mutex_, base::adopt};
    if (stream_ != nullptr) {
        if (!stream_->mutex().try_lock()) {
            return false;
        }
        stream_->mutex().unlock();
    }
    if (state_ == State::Replaying || state_ == State::Offered) {
        (void)serve();
        const StreamLock in_stream{stream_};
        if (waits_with_bytes()) {
            return false;
        }
    }
    if (stream_ == nullptr) {
        return true;
    }
    {
        const StreamLock in_stream{stream_};
        open_stream_.close();
        stream_->leave();
        stream_->forget_observer();
    }
    closed_ = true;
    state_ = State::Fresh;
    Leaving::instance().add(std::move(stream_), take_fd());
    return true;
}

}  // namespace rsockets
