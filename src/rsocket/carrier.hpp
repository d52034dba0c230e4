// SPDX-License-Identifier: BSD-3-Clause
// rsocket/carrier: the state of an rsocket, and its stream. The descriptor is a TCP socket of the kernel,
// which has the names and most of the options, and which the soft device uses for as long as there is a
// stream. Where a device of the kernel serves the address, the TCP socket only keeps the descriptor's number
// and the port.
//
//      Fresh ──► Listening                  rsocket, rbind; rlisten
//        ▲│
//        │└────► Connecting ──────────┐     rconnect: TCP connects, and then the request for a stream is out
//        └──────────┘ it fails        │ the peer answers
//                                     ▼
//                Accepted ───────► Streaming     there is a stream, also one that has ended
//                          this end answers
//
// raccept answers at once, so that its rsocket is Streaming. In a program that asks for support of fork(2)
// (RDMAV_FORK_SAFE) it is Accepted until the program first uses it, and a forked child may be the one that
// does. Over a device of the kernel raccept always answers.
//
// A forked child has lost the rsockets that are Connecting or Streaming, and uses the others. Where several
// processes have an Accepted one, the first that uses it has it, and the others have lost it.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/small_mutex.hpp"
#include "rsocket/any_socket.hpp"
#include "rsocket/listening.hpp"
#include "rsocket/open_stream.hpp"
#include "rsocket/socket_options.hpp"
#include "stream/connection.hpp"

namespace rsockets {

// Holds the lock of a stream, if there is a stream: without one there is nothing that it guards.
class SCOPED_CAPABILITY StreamLock {
public:
    explicit StreamLock(const std::unique_ptr<stream::Connection> &stream) ACQUIRE(stream->mutex())
        : held_{taken(stream)} {}
    ~StreamLock() RELEASE() = default;
    StreamLock(const StreamLock &) = delete;
    StreamLock &operator=(const StreamLock &) = delete;
    // Returns whether there is a stream.
    explicit operator bool() const { return held_.owns_lock(); }
    // Ends it before the scope ends. The stream may be another one when the lock is taken again.
    void unlock() RELEASE() { held_ = {}; }
    void lock(const std::unique_ptr<stream::Connection> &stream) ACQUIRE() { held_ = taken(stream); }

private:
    using Held = std::unique_lock<base::SmallMutex>;
    static Held taken(const std::unique_ptr<stream::Connection> &stream) {
        return stream != nullptr ? Held{stream->mutex()} : Held{};
    }
    Held held_;
};

// It has the lock of the rsocket.
class Carrier final : private stream::Observer {
public:
    enum class State { Fresh, Listening, Connecting, Accepted, Streaming, Lost };
    using Stream = std::unique_ptr<stream::Connection>;

    Carrier(AnySocket &rsocket, State state, const stream::Settings &settings, bool blocks);
    // Makes a forked child's own object of its parent's.
    Carrier(AnySocket &rsocket, const Carrier &parents);
    Carrier(const Carrier &) = delete;
    Carrier &operator=(const Carrier &) = delete;

    [[nodiscard]] base::SmallMutex &mutex() RETURN_CAPABILITY(mutex_) { return mutex_; }
    // The rsocket is not in the table yet, so no other thread uses it.
    void is_new() const ASSERT_CAPABILITY(mutex_) {}
    // Tells the analysis that a function that Wait calls holds these locks.
    void assert_looks() const ASSERT_CAPABILITY(mutex_, stream()->mutex());
    [[nodiscard]] AnySocket &rsocket() const { return rsocket_; }
    [[nodiscard]] int fd() const { return rsocket_.fd(); }

    [[nodiscard]] State state() const { return state_; }
    void set_state(State state) REQUIRES(mutex_) { state_ = state; }
    // Returns nullptr when there is none.
    [[nodiscard]] const Stream &stream() const REQUIRES(mutex_) { return stream_; }
    // Gives the stream away. From now on it does not tell this object of its changes.
    [[nodiscard]] Stream release() REQUIRES(mutex_);

    // The next four are in carrier_begin.cpp.
    // Asks the peer, over the device that serves the local address of the route.
    [[nodiscard]] Result<void> connect(const sockaddr *address, socklen_t length) REQUIRES(mutex_);
    // Answers a peer whose request has come, or is to come on the rsocket's own TCP socket; in this case when
    // the shard is served. Then there is a stream, which may have broken already. ECONNABORTED: the peer has
    // gone.
    [[nodiscard]] Result<void> answer(Result<stream::Approach> approach) REQUIRES(mutex_);
    // Takes an rsocket that is Connecting or Accepted to its next state, if there is news for that.
    void go_on() {
        mutex_.assert_held();
        if (is_beginning()) {
            begin();
        }
    }
    [[nodiscard]] bool is_beginning() const {
        const State state = state_;
        return state == State::Connecting || state == State::Accepted;
    }
    // Does the same, and serves the stream's shard.
    void serve() REQUIRES(mutex_) {
        go_on();
        if (const StreamLock in_stream{stream_}) {
            (void)stream_->serve_shard();
        }
    }

    // Begins a wait for the stream, or for what comes before there is one.
    [[nodiscard]] Result<void> begin_wait(Sleep &sleep) REQUIRES(mutex_);
    // Returns the kernel's descriptors that tell when a stream may begin, or another client may be accepted.
    [[nodiscard]] std::vector<pollfd> watched() REQUIRES(mutex_);

    // Returns the shortest way for the bytes, which needs no lock of the rsocket.
    [[nodiscard]] OpenStream &open_stream() { return open_stream_; }
    [[nodiscard]] Listening &listening() REQUIRES(mutex_) { return listening_; }

    // The program has closed the rsocket. Its mappings have ended.
    void close() REQUIRES(mutex_);
    // The rsocket is closed because the process ends. No thread and no other program is told.
    void end_with_process() REQUIRES(mutex_);
    [[nodiscard]] bool is_closed() const REQUIRES(mutex_) { return closed_; }
    [[nodiscard]] SocketOptions &options() REQUIRES(mutex_) { return options_; }
    void copy_options(const Carrier &from) REQUIRES(mutex_, from.mutex_);
    [[nodiscard]] bool blocks() const REQUIRES(mutex_) { return blocks_; }
    void set_blocking(bool blocks) REQUIRES(mutex_) { blocks_ = blocks; }
    // The size of one of the two buffers, as far as it is known.
    [[nodiscard]] int buffer_bytes(std::uint32_t stream::Settings::*buffer) const REQUIRES(mutex_);

    // Returns the failure of an rsocket that is Lost, and says so once in the log.
    [[nodiscard]] base::Failure lost() REQUIRES(mutex_);
    // Returns why there is no stream, as an errno value, until a call or SO_ERROR is told, and 0 when
    // nothing failed.
    [[nodiscard]] int take_error() REQUIRES(mutex_) { return std::exchange(pending_error_, 0); }
    [[nodiscard]] bool has_error() const REQUIRES(mutex_) { return pending_error_ != 0; }
    // Returns an errno value for a call that needs a stream.
    [[nodiscard]] int why_no_stream() REQUIRES(mutex_);

    // Tells other programs what the rsocket is.
    void list() REQUIRES(mutex_);
    // A child that waits for the listener that it inherited has it in a file of its own.
    void list_in_child() REQUIRES(mutex_);

private:
    void changed() override { rsocket_.waiters().wake(); }
    void begin() REQUIRES(mutex_);
    // These return whether the state has changed.
    [[nodiscard]] bool take_connection() REQUIRES(mutex_);
    [[nodiscard]] bool take_answer() REQUIRES(mutex_);
    [[nodiscard]] bool lose_to_another() REQUIRES(mutex_);
    [[nodiscard]] Result<Stream> begin_stream(Result<stream::Approach> approach) REQUIRES(mutex_);
    void take(Stream taken) REQUIRES(mutex_);
    void destroy_stream() REQUIRES(mutex_);
    // There is no connection, and another may be made. A call of the program is told the error.
    void fail(int error) REQUIRES(mutex_);

    AnySocket &rsocket_;
    base::SmallMutex mutex_;
    // It is changed with the lock held.
    std::atomic<State> state_;
    SocketOptions options_ GUARDED_BY(mutex_);
    bool blocks_ GUARDED_BY(mutex_);
    bool closed_ GUARDED_BY(mutex_) = false;
    bool loss_told_ GUARDED_BY(mutex_);
    int pending_error_ GUARDED_BY(mutex_) = 0;
    // The program has bound the rsocket that connects to it.
    std::optional<sockaddr_storage> bound_ GUARDED_BY(mutex_);
    Listening listening_ GUARDED_BY(mutex_);
    Stream stream_ GUARDED_BY(mutex_);
    // It is open from when the state becomes Streaming until the rsocket is closed.
    OpenStream open_stream_;
};

inline void Carrier::assert_looks() const {
    mutex_.assert_held();
    if (stream_ != nullptr) {
        stream_->mutex().assert_held();
    }
}

}  // namespace rsockets
