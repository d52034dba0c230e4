// SPDX-License-Identifier: BSD-3-Clause
// rsocket/socket: shutdown, close, and the end of the process.
#include <cerrno>
#include <utility>

#include "rsocket/socket.hpp"
#include "rsocket/wait.hpp"
#include "stream/leaving.hpp"

#include <rpma/rsocket.h>

namespace rsockets {

Result<void> Socket::shutdown(int how) {
    if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR) {
        return base::failure(EINVAL);
    }
    const base::Lock lock{carrier_.mutex()};
    (void)beginning_.serve();
    if (is_undecided() && carrier_.options().may_be_tcp() && !beginning_.lose_to_another()) {
        beginning_.stay_tcp(RDMA_REASON_SPOKE_FIRST);
    }
    const State state = carrier_.state();
    if (state == State::Listening || state == State::Plain) {
        return ::shutdown(fd(), how) == 0 ? Result<void>{} : base::last_failure();
    }
    if (carrier_.stream() == nullptr && state != State::Replaying) {
        return state == State::Lost ? carrier_.lost() : base::failure(ENOTCONN);
    }
    const bool receiving = how != SHUT_WR;
    const bool sending = how != SHUT_RD;
    Carrier::Ended &ended = carrier_.ended();
    ended = {.receiving = ended.receiving || receiving, .sending = ended.sending || sending};
    if (const StreamLock in_stream{carrier_.stream()}) {
        carrier_.stream()->shut(receiving, sending);
    }
    waiters_.wake();
    return {};
}

void Socket::close() {
    const base::Lock lock{carrier_.mutex()};
    const linger &lingering = carrier_.options().lingering();
    const bool lingers = lingering.l_onoff != 0;
    const bool cuts = lingers && lingering.l_linger == 0;
    const auto time = lingers ? std::chrono::seconds{lingering.l_linger} : 2 * DecisionTime::time_to_answer;
    Wait wait{beginning_, true, base::Clock::now() + time};
    // The kernel's close does everything that TCP needs, and cuts what is undecided. No stream begins here:
    // another process may have inherited the descriptor, and use it.
    if (cuts && is_undecided()) {
        carrier_.options().of_stream().apply(fd());
    }
    if (!cuts && (carrier_.state() == State::Replaying || carrier_.state() == State::Offered)) {
        // The bytes that were sent to a peer that has not answered go by the stream, or in TCP.
        (void)wait.until([&]() -> Result<void> {
            carrier_.assert_looks();
            return beginning_.waits_with_bytes() ? base::failure(EAGAIN) : Result<void>{};
        });
    }
    if (const StreamLock in_stream{carrier_.stream()}) {
        (void)carrier_.stream()->serve_shard();
        if (cuts) {
            carrier_.stream()->abort();
        } else {
            carrier_.stream()->leave();
        }
    }
    if (lingers && !cuts && carrier_.stream() != nullptr) {
        (void)wait.until([&]() -> Result<void> {
            carrier_.assert_looks();
            return carrier_.stream() == nullptr || carrier_.stream()->gone() ? Result<void>{}
                                                                             : base::failure(EAGAIN);
        });
    }
    carrier_.close();
}

bool Socket::end_with_process() {
    if (!carrier_.mutex().try_lock()) {
        return false;
    }
    const base::Lock lock{carrier_.mutex(), base::adopt};
    if (carrier_.stream() != nullptr) {
        if (!carrier_.stream()->mutex().try_lock()) {
            return false;
        }
        carrier_.stream()->mutex().unlock();
    }
    if (carrier_.state() == State::Replaying || carrier_.state() == State::Offered) {
        (void)beginning_.serve();
        const StreamLock in_stream{carrier_.stream()};
        if (beginning_.waits_with_bytes()) {
            return false;
        }
    }
    if (carrier_.stream() == nullptr) {
        return true;
    }
    {
        const StreamLock in_stream{carrier_.stream()};
        carrier_.stream()->leave();
    }
    carrier_.end_with_process();
    stream::Leaving::instance().add(carrier_.release(), take_fd());
    return true;
}

}  // namespace rsockets
