// SPDX-License-Identifier: BSD-3-Clause
// rsocket/carrier: the state of an rsocket: whether nothing yet, a stream, or TCP carries its bytes. The
// descriptor is a TCP socket of the kernel, which has the names and most of the options, and which the soft
// device uses for as long as there is a stream. Where a device of the kernel serves the address, the TCP
// socket only keeps the descriptor's number and the port.
//
//      Fresh ──► Listening            rsocket, rbind; rlisten
//        │
//        ├─────► Reaching ──► Offered         rconnect: TCP connects; the request for a stream is out, and
//        │          ┌─────────┤    │           what the program sends is kept (beginning_reach.cpp)
//        │          │ no      │    │ the peer answers
//        │          ▼         │    ▼
//        │      Replaying     │  Streaming     there is a stream, also one that has ended
//        │          │         │    ▲
//        │          ▼         │    │ the peer asks
//        └─────► Plain ◄──────┴─ Undecided     raccept: what came first decides, when the program first
//                                              reads, writes or waits, so that options can still be set
//                                              (beginning_accepted.cpp)
//
// Plain is TCP for good: the kernel does everything. Replaying connects in TCP again, and sends the kept
// bytes there. Over a device of the kernel rconnect goes to Offered at once, and raccept to Streaming.
//
// A forked child has lost the rsockets that are Offered, Replaying or Streaming, and uses the others. So
// does a process that gets the descriptor by exec or SCM_RIGHTS, when it adopts it (adopt.cpp). Where
// several processes have an Undecided one, the first that begins its stream has it, and the others have lost
// it.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "base/small_mutex.hpp"
#include "rsocket/any_socket.hpp"
#include "rsocket/listening.hpp"
#include "rsocket/open_stream.hpp"
#include "rsocket/socket_options.hpp"
#include "stream/connection.hpp"

namespace rsockets {

// It has the lock of the rsocket.
class Carrier final : private stream::Observer {
public:
    enum class State { Fresh, Listening, Reaching, Offered, Replaying, Undecided, Streaming, Plain, Lost };
    using Stream = std::unique_ptr<stream::Connection>;

    // reason: RDMA_REASON_, why it is Plain. The caller logs why it is Lost.
    Carrier(AnySocket &rsocket, State state, const stream::Settings &settings, bool blocks, int reason);
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
    // Returns whether it is not known yet if the rsocket is a stream or TCP.
    [[nodiscard]] bool is_open_yet() const {
        const State state = state_;
        return state == State::Reaching || state == State::Offered || state == State::Replaying ||
               state == State::Undecided;
    }
    // Returns nullptr when there is none.
    [[nodiscard]] const Stream &stream() const REQUIRES(mutex_) { return stream_; }
    // Takes a stream, which tells observer() of its changes. The state is Offered or Streaming.
    void take(Stream taken) REQUIRES(mutex_);
    [[nodiscard]] stream::Observer &observer() { return *this; }
    // The stream that was Offered can be used with the lock of its shard alone from now on.
    void become_stream() REQUIRES(mutex_);
    // From now on the kernel alone uses the socket. It gets all options that the program has set.
    void become_plain(int reason) REQUIRES(mutex_);
    // There is no stream and no connection. A call of the program is told the error.
    void fail(int error) REQUIRES(mutex_);
    // Gives the stream away. From now on it does not tell this object of its changes.
    [[nodiscard]] Stream release() REQUIRES(mutex_);
    void destroy_stream() REQUIRES(mutex_);
    // Returns the shortest way for the bytes, which needs no lock of the rsocket.
    [[nodiscard]] OpenStream &open_stream() { return open_stream_; }
    [[nodiscard]] Listening &listening() REQUIRES(mutex_) { return listening_; }

    // The program has closed the rsocket, and may free the memory that it has mapped.
    void close() REQUIRES(mutex_);
    // The rsocket is closed because the process ends. No thread and no other program is told.
    void end_with_process() REQUIRES(mutex_);
    [[nodiscard]] bool is_closed() const REQUIRES(mutex_) { return closed_; }
    // The directions that rshutdown has ended.
    struct Ended {
        bool receiving = false;
        bool sending = false;
    };
    [[nodiscard]] Ended &ended() REQUIRES(mutex_) { return ended_; }

    [[nodiscard]] SocketOptions &options() REQUIRES(mutex_) { return options_; }
    void copy_options(const Carrier &from) REQUIRES(mutex_, from.mutex_);
    [[nodiscard]] bool blocks() const REQUIRES(mutex_) { return blocks_; }
    void set_blocking(bool blocks) REQUIRES(mutex_);
    // The size of one of the two buffers, as far as it is known.
    [[nodiscard]] int buffer_bytes(std::uint32_t stream::Settings::*buffer) const REQUIRES(mutex_);

    // Why it is Plain, or is to be: RDMA_REASON_.
    [[nodiscard]] int reason() const REQUIRES(mutex_) { return reason_; }
    void set_reason(int reason) REQUIRES(mutex_) { reason_ = reason; }
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

    AnySocket &rsocket_;
    base::SmallMutex mutex_;
    // It is changed with the lock held.
    std::atomic<State> state_;
    SocketOptions options_ GUARDED_BY(mutex_);
    bool blocks_ GUARDED_BY(mutex_);
    bool closed_ GUARDED_BY(mutex_) = false;
    bool loss_told_ GUARDED_BY(mutex_);
    int pending_error_ GUARDED_BY(mutex_) = 0;
    int reason_ GUARDED_BY(mutex_);
    Ended ended_ GUARDED_BY(mutex_);
    Listening listening_ GUARDED_BY(mutex_);
    Stream stream_ GUARDED_BY(mutex_);
    // It is open from when the state becomes Streaming until the rsocket is closed.
    OpenStream open_stream_;
};

// Holds the lock of a stream, if there is a stream: without one there is nothing that it guards.
class SCOPED_CAPABILITY StreamLock {
public:
    explicit StreamLock(const Carrier::Stream &stream) ACQUIRE(stream->mutex()) : held_{taken(stream)} {}
    ~StreamLock() RELEASE() = default;
    StreamLock(const StreamLock &) = delete;
    StreamLock &operator=(const StreamLock &) = delete;
    // Returns whether there is a stream.
    explicit operator bool() const { return held_.owns_lock(); }
    // Ends it before the scope ends. The stream may be another one when the lock is taken again.
    void unlock() RELEASE() { held_ = {}; }
    void lock(const Carrier::Stream &stream) ACQUIRE() { held_ = taken(stream); }

private:
    using Held = std::unique_lock<base::SmallMutex>;
    static Held taken(const Carrier::Stream &stream) {
        return stream != nullptr ? Held{stream->mutex()} : Held{};
    }
    Held held_;
};

inline void Carrier::assert_looks() const {
    mutex_.assert_held();
    if (stream_ != nullptr) {
        stream_->mutex().assert_held();
    }
}

}  // namespace rsockets
