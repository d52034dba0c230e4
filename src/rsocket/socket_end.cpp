// SPDX-License-Identifier: BSD-3-Clause
// rsocket/socket: shutdown, close, and the end of the process.
#include <cerrno>
#include <utility>

#include "rsocket/socket.hpp"
#include "rsocket/wait.hpp"
#include "stream/leaving.hpp"

namespace rsockets {

Result<void> Socket::shutdown(int how) {
    if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR) {
        return base::failure(EINVAL);
    }
    const base::Lock lock{carrier_.mutex()};
    carrier_.serve();
    const State state = carrier_.state();
    if (state == State::Listening) {
        return ::shutdown(fd(), how) == 0 ? Result<void>{} : base::last_failure();
    }
    if (carrier_.stream() == nullptr) {
        return state == State::Lost ? carrier_.lost() : base::failure(ENOTCONN);
    }
    if (const StreamLock in_stream{carrier_.stream()}) {
        carrier_.stream()->shut(how != SHUT_WR, how != SHUT_RD);
    }
    waiters_.wake();
    return {};
}

void Socket::leave_stream() {
    const linger &lingering = carrier_.options().lingering();
    (void)carrier_.stream()->serve_shard();
    if (lingering.l_onoff != 0 && lingering.l_linger == 0) {
        carrier_.stream()->abort();
    } else {
        carrier_.stream()->leave();
    }
}

// The stream ends first: then the device drops what the peer still writes, and the bytes that were sent
// leave.
Result<void> Socket::end_mappings() {
    const base::Lock lock{carrier_.mutex()};
    const StreamLock in_stream{carrier_.stream()};
    if (!in_stream || !carrier_.stream()->has_mappings()) {
        return {};
    }
    leave_stream();
    const auto ended = carrier_.stream()->unmap_all();
    waiters_.wake();
    return ended;
}

void Socket::close() {
    const base::Lock lock{carrier_.mutex()};
    const linger &lingering = carrier_.options().lingering();
    const bool lingers = lingering.l_onoff != 0 && lingering.l_linger != 0;
    // No stream begins here: another process may have inherited the descriptor, and use it.
    if (const StreamLock in_stream{carrier_.stream()}) {
        leave_stream();
    }
    if (lingers && carrier_.stream() != nullptr) {
        Wait wait{carrier_, true, base::Clock::now() + std::chrono::seconds{lingering.l_linger}};
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
    if (carrier_.stream() == nullptr) {
        return true;
    }
    if (!carrier_.stream()->mutex().try_lock()) {
        return false;
    }
    carrier_.stream()->mutex().unlock();
    {
        const StreamLock in_stream{carrier_.stream()};
        carrier_.stream()->leave();
    }
    carrier_.end_with_process();
    stream::Leaving::instance().add(carrier_.release(), take_fd());
    return true;
}

}  // namespace rsockets
