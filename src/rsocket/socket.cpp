// SPDX-License-Identifier: BSD-3-Clause
// rsocket/socket: one rsocket, from rsocket() to rclose().
#include "rsocket/socket.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <cerrno>

#include "rsocket/leaving.hpp"
#include "rsocket/poll.hpp"

namespace rsockets {

namespace {

// The events that a kernel's socket is ready for now.
short polled(int fd, short events) {
    pollfd one{.fd = fd, .events = events, .revents = 0};
    return ::poll(&one, 1, 0) > 0 ? one.revents : short{0};
}

int pending_error(int fd) {
    int error = 0;
    socklen_t length = sizeof(error);
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : errno;
}

}  // namespace

Socket::~Socket() {
    if (stream_ != nullptr) {
        {
            const auto in_stream = lock_stream();
            stream_->forget_observer();
        }
        Leaving::instance().add(std::move(stream_));
    }
}

Result<void> Socket::listen(int backlog) {
    const std::scoped_lock lock{mutex_};
    if (state_ != State::Fresh && state_ != State::Listening) {
        return base::failure(EINVAL);
    }
    if (::listen(fd(), backlog) != 0) {
        return base::last_failure();
    }
    state_ = State::Listening;
    return {};
}

Result<std::shared_ptr<AnySocket>> Socket::accept(sockaddr *address, socklen_t *length, int flags) {
    std::unique_lock lock{mutex_};
    if (state_ != State::Listening) {
        return base::failure(EINVAL);
    }
    const Deadline deadline = deadline_of(receive_timeout_);
    if (blocks_) {
        if (auto answered = answer_while_waiting(lock, deadline); !answered) {
            return std::unexpected{answered.error()};
        }
    }
    auto accepted = until(lock, blocks_, deadline, [&]() -> Result<base::Fd> {
        // Never blocking: the device wants it so, and whether the program's calls wait is said elsewhere.
        base::Fd fd{accept4(this->fd(), address, length, SOCK_NONBLOCK | (flags & SOCK_CLOEXEC))};
        if (!fd) {
            return errno == ECONNABORTED ? base::failure(EAGAIN) : base::last_failure();
        }
        return fd;
    });
    if (!accepted) {
        return std::unexpected{accepted.error()};
    }
    auto socket = std::make_shared<Socket>(std::move(*accepted), State::Accepted, settings_,
                                           (flags & SOCK_NONBLOCK) == 0);
    socket->receive_timeout_ = receive_timeout_;
    socket->send_timeout_ = send_timeout_;
    socket->receive_low_water_ = receive_low_water_;
    socket->linger_ = linger_;
    socket->options_ = options_;
    if (blocks_) {
        unanswered_.push_back(socket);
    }
    return socket;
}

// The peers of what was accepted wait until the program uses it. A program that accepts the next one first
// waits here, so that they are answered here.
Result<void> Socket::answer_while_waiting(std::unique_lock<std::mutex> &lock, Deadline deadline) {
    while (!unanswered_.empty() && polled(fd(), POLLIN) == 0) {
        std::vector<pollfd> entries{{.fd = fd(), .events = POLLIN, .revents = 0}};
        std::erase_if(unanswered_, [&](const std::weak_ptr<Socket> &one) {
            const auto socket = one.lock();
            if (socket == nullptr || !socket->awaits_answer()) {
                return true;
            }
            entries.push_back({.fd = socket->fd(), .events = POLLIN | POLLOUT, .revents = 0});
            return false;
        });
        lock.unlock();
        const auto waited = wait_for(entries, deadline);
        lock.lock();
        if (!waited || *waited == 0) {
            return waited ? Result<void>{} : std::unexpected{waited.error()};
        }
    }
    return {};
}

bool Socket::awaits_answer() {
    const std::scoped_lock lock{mutex_};
    (void)serve();
    const auto in_stream = lock_stream();
    return state_ == State::Accepted || (in_stream && !stream_->answered());
}

Result<void> Socket::connect(const sockaddr *address, socklen_t length) {
    std::unique_lock lock{mutex_};
    (void)serve();
    if (pending_error_ != 0) {
        return base::failure(std::exchange(pending_error_, 0));
    }
    if (state_ == State::Fresh) {
        // The peer is to be asked as soon as TCP is connected: its server then sees the request when it
        // accepts, because the kernel sends nothing that would complete the connection before it.
        constexpr int seconds = 1;
        (void)setsockopt(fd(), IPPROTO_TCP, TCP_DEFER_ACCEPT, &seconds, sizeof(seconds));
        if (::connect(fd(), address, length) != 0 && errno != EINPROGRESS) {
            return base::last_failure();
        }
        state_ = State::Reaching;
        (void)serve();
        if (!blocks_ && state_ == State::Reaching) {
            return base::failure(EINPROGRESS);
        }
    } else if (is_connecting()) {
        if (!blocks_) {
            return base::failure(EALREADY);
        }
    } else {
        return base::failure(state_ == State::Listening ? EINVAL : EISCONN);
    }
    const auto connected = until(lock, blocks_, deadline_of(send_timeout_), [&]() -> Result<void> {
        if (pending_error_ != 0) {
            return base::failure(std::exchange(pending_error_, 0));
        }
        return state_ == State::Streaming && stream_->established() ? Result<void>{} : base::failure(EAGAIN);
    });
    if (!connected && connected.error().number == EAGAIN) {
        return base::failure(EINPROGRESS);
    }
    return connected;
}

// TCP's connection: whether anything became of it.
bool Socket::reach() {
    if (polled(fd(), POLLOUT) == 0) {
        return false;
    }
    if (const int error = pending_error(fd()); error != 0) {
        // The kernel would tell it once more, at the next connect.
        const sockaddr nobody{.sa_family = AF_UNSPEC, .sa_data = {}};
        (void)::connect(fd(), &nobody, sizeof(nobody));
        pending_error_ = error;
        state_ = State::Fresh;
        return true;
    }
    return begin_stream(stream::Side::Active);
}

bool Socket::begin_stream(stream::Side side) {
    // This thread can wait for it also when no descriptor is left later.
    const auto waiter = Waiter::of_this_thread();
    auto stream =
        waiter ? stream::Connection::begin(side, fd(), settings_, *this) : std::unexpected{waiter.error()};
    if (!stream) {
        // As good as a peer that is gone, for nobody speaks with it.
        pending_error_ = stream.error().number;
        (void)::shutdown(fd(), SHUT_RDWR);
        state_ = State::Fresh;
        return true;
    }
    stream_ = std::move(*stream);
    state_ = State::Streaming;
    apply_options();
    return true;
}

std::unique_lock<std::mutex> Socket::lock_stream() const {
    return stream_ != nullptr && !stream_->inherited() ? std::unique_lock{stream_->shard()->mutex()}
                                                       : std::unique_lock<std::mutex>{};
}

void Socket::go_on() {
    const bool any = state_ == State::Reaching
                         ? reach()
                         : state_ == State::Accepted && begin_stream(stream::Side::Passive);
    if (any) {
        waiters_.wake();  // they sleep on something else
    }
}

bool Socket::is_connecting() const {
    const auto in_stream = lock_stream();
    return state_ == State::Reaching ||
           (state_ == State::Streaming && !stream_->established() && stream_->error() == 0);
}

bool Socket::serve() {
    go_on();
    const auto in_stream = lock_stream();
    const bool any = in_stream && stream_->shard()->serve();
    note_failure();
    return any;
}

// Why rconnect failed is told once; why a stream broke, again and again.
void Socket::note_failure() {
    if (stream_ != nullptr && !failure_noted_ && stream_->error() != 0 && !stream_->was_established()) {
        failure_noted_ = true;
        pending_error_ = stream_->error();
    }
}

std::shared_ptr<stream::Shard> Socket::advance() {
    const std::scoped_lock lock{mutex_};
    go_on();
    return stream_ != nullptr && !is_lost() ? stream_->shard() : nullptr;
}

Deadline Socket::deadline_of(milliseconds timeout) const {
    return timeout.count() != 0 ? Deadline{base::Clock::now() + timeout} : std::nullopt;
}

Result<void> Socket::begin_wait(Sleep &sleep, short) {
    const std::scoped_lock lock{mutex_};
    return begin_wait_locked(sleep);
}

Result<void> Socket::begin_wait_locked(Sleep &sleep) {
    waiters_.add(sleep.waiter());
    if (state_ == State::Streaming) {
        return is_lost() ? Result<void>{} : sleep.join(stream_->shard());
    }
    sleep.add({.fd = fd(),
               .events = static_cast<short>(state_ == State::Reaching ? POLLOUT : POLLIN),
               .revents = 0});
    return {};
}

void Socket::after_fork_in_child() {
    new (&mutex_) std::mutex;
    waiters_.after_fork_in_child();
}

}  // namespace rsockets
