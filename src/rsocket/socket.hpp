// SPDX-License-Identifier: BSD-3-Clause
// rsocket/socket: one rsocket. Its descriptor is a TCP socket of the kernel, which has the names and most of
// the options, and which the soft device uses for as long as there is a stream. Where a device of the kernel
// serves the address, the TCP socket only keeps the descriptor's number and the port.
//
//      Fresh ──► Listening            rsocket, rbind; rlisten
//        │
//        ├─────► Reaching ──► Offered         rconnect: TCP connects; the request for a stream is out, and
//        │          ┌─────────┤    │           what the program sends is kept (socket_reach.cpp)
//        │          │ no      │    │ the peer answers
//        │          ▼         │    ▼
//        │      Replaying     │  Streaming     there is a stream, also one that has ended
//        │          │         │    ▲
//        │          ▼         │    │ the peer asks
//        └─────► Plain ◄──────┴─ Undecided     raccept: what came first decides, when the program first
//                                              reads, writes or waits, so that options can still be set
//
// Plain is TCP for good: the kernel does everything (socket_plain.cpp). Replaying connects in TCP again, and
// sends there what was kept. Over a device of the kernel rconnect goes to Offered at once, and raccept to
// Streaming.
//
// A forked child has lost what is Offered, Replaying or Streaming, and uses the others. So does a process
// that gets the descriptor by exec or SCM_RIGHTS, when it adopts it (adopt.cpp). Where several
// processes have an Undecided one, the first that begins its stream has it, and the others have lost it.
#pragma once

#include <atomic>
#include <mutex>
#include <type_traits>

#include "base/small_mutex.hpp"
#include "rsocket/any_socket.hpp"
#include "rsocket/configuration.hpp"
#include "rsocket/decision_time.hpp"
#include "rsocket/kernel_socket.hpp"
#include "rsocket/listening.hpp"
#include "rsocket/open_stream.hpp"
#include "rsocket/replay.hpp"
#include "rsocket/socket_options.hpp"
#include "stream/connection.hpp"

namespace rsockets {

class Socket final : public AnySocket, private stream::Observer {
public:
    enum class State { Fresh, Listening, Reaching, Offered, Replaying, Undecided, Streaming, Plain, Lost };

    Socket(base::Fd fd, State state, const stream::Settings &settings, bool blocks)
        : AnySocket{std::move(fd)}, state_{state}, options_{settings}, blocks_{blocks} {
        keep_blocking(this->fd(), blocks);
        list();
    }
    // In a forked child: the child's own of its parent's.
    Socket(base::Fd fd, const Socket &parents);
    // In adopt.cpp. Makes an rsocket of a TCP socket of the kernel, in the state that the kernel tells.
    // ENOTSUP: it is something else. ECONNRESET: somebody has read or written the connection.
    [[nodiscard]] static Result<std::shared_ptr<AnySocket>> adopt(int fd);
    // Another program has begun the socket's stream: each use gives ECONNRESET. The caller logs why.
    [[nodiscard]] static std::shared_ptr<AnySocket> of_anothers_stream(int fd);
    Socket(const Socket &) = delete;
    Socket &operator=(const Socket &) = delete;
    ~Socket() override;

    [[nodiscard]] Result<void> listen(int backlog) override;
    [[nodiscard]] Result<std::shared_ptr<AnySocket>> accept(sockaddr *address, socklen_t *length,
                                                            int flags) override;
    [[nodiscard]] Result<void> connect(const sockaddr *address, socklen_t length) override;
    [[nodiscard]] Result<std::size_t> receive(msghdr &message, int flags) override;
    [[nodiscard]] Result<std::size_t> send(const msghdr &message, int flags) override;
    [[nodiscard]] Result<std::size_t> receive_part(void *bytes, std::size_t size, int flags) override;
    [[nodiscard]] Result<std::size_t> send_part(const void *bytes, std::size_t size, int flags) override;
    [[nodiscard]] Result<void> shutdown(int how) override;
    // Ends the stream, and waits as SO_LINGER says.
    void close() override;

    [[nodiscard]] Result<void> name(End end, sockaddr *address, socklen_t *length) override;

    // In options.cpp.
    [[nodiscard]] Result<void> set_option(int level, int name, const void *value, socklen_t length) override;
    [[nodiscard]] Result<void> get_option(int level, int name, void *value, socklen_t *length) override;
    [[nodiscard]] bool blocks() override;
    void set_blocking(bool blocks) override;

    // In direct.cpp.
    [[nodiscard]] Result<off_t> map(void *begin, std::size_t bytes, int protection, off_t offset) override;
    [[nodiscard]] Result<void> unmap(const void *begin, std::size_t bytes) override;
    [[nodiscard]] Result<std::size_t> write_at(const void *from, std::size_t bytes, off_t offset,
                                               int flags) override;

    [[nodiscard]] std::shared_ptr<stream::Shard> advance() override;
    [[nodiscard]] bool is_undecided() const override { return state_ == State::Undecided; }
    [[nodiscard]] bool is_plain() const override { return state_ == State::Plain; }
    [[nodiscard]] Answering answer() override;
    [[nodiscard]] short readiness(short events) override;
    [[nodiscard]] Result<void> begin_wait(Sleep &sleep, short events) override;
    void end_wait(const Sleep &sleep) override { waiters_.remove(sleep.waiter()); }
    [[nodiscard]] Result<Watched> watch(short events) override;
    [[nodiscard]] bool end_with_process() override;
    [[nodiscard]] std::shared_ptr<AnySocket> in_child() const override;

private:
    // The wish of a call that receives. It may return with less than is wanted, but waits for `least` bytes.
    struct Wish {
        stream::Reading reading;
        bool blocks;
        std::size_t wanted;
        std::size_t least;

        [[nodiscard]] bool peeks() const {
            return reading == stream::Reading::Peek || reading == stream::Reading::Count;
        }
        [[nodiscard]] bool is_granted(std::size_t received) const { return received >= least || peeks(); }
    };
    [[nodiscard]] Result<std::size_t> receive_any(msghdr &message, int flags);
    [[nodiscard]] Result<std::size_t> receive_parts(std::span<const iovec> parts, int flags);
    [[nodiscard]] Result<std::size_t> send_any(const msghdr &message, int flags);
    [[nodiscard]] Result<std::size_t> send_parts(std::span<const iovec> parts, int flags);
    // These go on when the first look, which gave `first`, was not enough.
    [[nodiscard]] Result<std::size_t> receive_rest(std::span<const iovec> parts, const Wish &wish,
                                                   Result<std::size_t> first) REQUIRES(mutex_);
    [[nodiscard]] Result<std::size_t> send_rest(std::span<const iovec> parts, int flags,
                                                Result<std::size_t> first) REQUIRES(mutex_);
    [[nodiscard]] Result<std::size_t> try_to_receive(std::span<const iovec> parts, const Wish &wish,
                                                     std::size_t received) REQUIRES(mutex_, stream_->mutex());
    [[nodiscard]] Result<std::size_t> try_to_send(std::span<const iovec> parts)
        REQUIRES(mutex_, stream_->mutex());
    // Returns whether there was anything for any stream. mutex_ is taken before the shard's lock.
    bool serve() REQUIRES(mutex_);
    // Whether it is not known yet if the socket is a stream or TCP.
    [[nodiscard]] bool is_open_yet() const {
        const State state = state_;
        return state == State::Reaching || state == State::Offered || state == State::Replaying ||
               state == State::Undecided;
    }
    // Takes the socket to its next state, if there is news for that.
    void go_on() REQUIRES(mutex_) {
        if (is_open_yet()) {
            decide_now();
        }
    }
    void decide_now() REQUIRES(mutex_);
    [[nodiscard]] Result<void> begin_to_reach(const sockaddr *address, socklen_t length) REQUIRES(mutex_);
    [[nodiscard]] Result<void> listen_at(const sockaddr_storage &local, int backlog) REQUIRES(mutex_);
    [[nodiscard]] Result<std::shared_ptr<Socket>> next_client(sockaddr *address, socklen_t *length, int flags)
        REQUIRES(mutex_);
    [[nodiscard]] bool reach() REQUIRES(mutex_);
    // These return whether the state has changed.
    [[nodiscard]] bool take_answer() REQUIRES(mutex_);
    [[nodiscard]] bool replay() REQUIRES(mutex_);
    // Whether the socket stays TCP if the peer of its stream does not answer.
    [[nodiscard]] bool may_fall_back() const REQUIRES(mutex_) {
        return options_.may_be_tcp() && stream_ != nullptr && !stream_->shard()->device().is_of_kernel();
    }
    void fall_back(int reason) REQUIRES(mutex_);
    void drop_stream() REQUIRES(mutex_);
    // There is no connection, and another may be made. The program is told why.
    void give_up(int error) REQUIRES(mutex_);
    [[nodiscard]] Result<void> connect_in_tcp(const sockaddr *address, socklen_t length);
    [[nodiscard]] Result<void> wait_for_peer() REQUIRES(mutex_);
    // Whether the peer is to get what was sent, and it is not decided how.
    [[nodiscard]] bool waits_with_bytes() const REQUIRES(mutex_, stream_->mutex());
    void send_what_is_kept(Deadline deadline) REQUIRES(mutex_);
    [[nodiscard]] Result<std::size_t> keep_for_replay(std::span<const iovec> parts) REQUIRES(mutex_);
    [[nodiscard]] bool begin_stream(stream::Side side) REQUIRES(mutex_);
    // There is a peer, and there can be no stream with it.
    void lose_peer(int error) REQUIRES(mutex_);
    // In socket_plain.cpp. Looks at what an accepted socket's peer has sent first. Returns whether that
    // decides.
    [[nodiscard]] bool decide_by_what_came() REQUIRES(mutex_);
    void speak_first() REQUIRES(mutex_);
    // Whether another process that has the descriptor has begun a stream on it. Then this one has lost it.
    [[nodiscard]] bool lose_to_another() REQUIRES(mutex_);
    // Until when more may come that decides; nothing when that time is over.
    [[nodiscard]] Deadline decision_due() const REQUIRES(mutex_) {
        return options_.may_be_tcp() ? decision_time_.due() : std::nullopt;
    }
    void become_plain(int reason) REQUIRES(mutex_);
    void set_kernel_blocking(bool blocks) const;
    // These take the lock by themselves. Waits until an accepted socket is a stream or TCP.
    enum class Use { Receive, Send };
    [[nodiscard]] Result<void> decide(Use use, int flags);
    [[nodiscard]] Result<std::size_t> receive_plain(msghdr &message, int flags) const;
    [[nodiscard]] Result<std::size_t> send_plain(const msghdr &message, int flags) const;
    // Whether the stream is that of the process that forked this one.
    [[nodiscard]] bool is_lost() const { return state_ == State::Lost; }
    // Says so once in the log.
    [[nodiscard]] base::Failure lost() REQUIRES(mutex_);
    // The socket has become a stream: now it can be used with the lock of its shard alone.
    void become_stream() REQUIRES(mutex_);
    using Stream = std::unique_ptr<stream::Connection>;
    // Holds the lock of a stream, if there is a stream: without one there is nothing that it guards.
    class SCOPED_CAPABILITY StreamLock {
    public:
        explicit StreamLock(const Stream &stream) ACQUIRE(stream->mutex()) : held_{taken(stream)} {}
        ~StreamLock() RELEASE() = default;
        StreamLock(const StreamLock &) = delete;
        StreamLock &operator=(const StreamLock &) = delete;
        // Whether there is a stream.
        explicit operator bool() const { return held_.owns_lock(); }
        // Ends it before the scope ends. The stream may be another one when the lock is taken again.
        void unlock() RELEASE() { held_ = {}; }
        void lock(const Stream &stream) ACQUIRE() { held_ = taken(stream); }

    private:
        using Held = std::unique_lock<base::SmallMutex>;
        static Held taken(const Stream &stream) { return stream != nullptr ? Held{stream->mutex()} : Held{}; }
        Held held_;
    };
    // For the analysis, in what look() calls.
    void assert_looks() const ASSERT_CAPABILITY(mutex_, stream_->mutex()) {
        mutex_.assert_held();
        if (stream_ != nullptr) {
            stream_->mutex().assert_held();
        }
    }
    [[nodiscard]] bool is_connecting() const REQUIRES(mutex_);
    // Tells other programs what the rsocket is; of a stream that begins, how it fares too.
    void list() REQUIRES(mutex_);
    void report_stream() REQUIRES(mutex_);
    // A child that waits for the listener that it inherited has it in a file of its own.
    void list_in_child() REQUIRES(mutex_);
    [[nodiscard]] short stream_readiness(short events) const REQUIRES(mutex_, stream_->mutex());
    [[nodiscard]] Result<void> begin_wait_locked(Sleep &sleep) REQUIRES(mutex_);
    // Returns the descriptors that tell when the stream may begin, or another may be accepted.
    [[nodiscard]] Watched descriptors_before_stream() REQUIRES(mutex_);
    void changed() override { waiters_.wake(); }
    // Returns an errno value for a call that needs a stream. The reason for which rconnect failed is told
    // once.
    [[nodiscard]] int why_no_stream() REQUIRES(mutex_);
    // The size of one of the two buffers, as far as it is known.
    [[nodiscard]] int buffer_bytes(std::uint32_t stream::Settings::*buffer) const REQUIRES(mutex_);
    // Returns one of RDMA_MODE_.
    [[nodiscard]] int mode() REQUIRES(mutex_);
    void copy_options(const Socket &from) REQUIRES(mutex_, from.mutex_) {
        options_ = from.options_;
        open_stream_.set_low_water(options_.receive_low_water());
    }
    // Whether it is still open what the rsocket's stream will be like.
    [[nodiscard]] bool can_set_stream_options() const REQUIRES(mutex_);
    // Calls attempt(), which begins with assert_looks(), with the stream's lock, if there is a stream.
    template <typename Attempt>
    std::invoke_result_t<Attempt> look(Attempt attempt) REQUIRES(mutex_) {
        bool ignored = false;
        return look(attempt, false, ignored);
    }
    // `serves`: serves the stream's shard first, and notes whether there was anything for any stream.
    template <typename Attempt>
    [[gnu::always_inline]] std::invoke_result_t<Attempt> look(Attempt &attempt, bool serves, bool &any)
        REQUIRES(mutex_) {
        go_on();
        if (closed_ || is_lost()) {
            return closed_ ? base::failure(EBADF) : lost();
        }
        StreamLock in_stream{stream_};
        any = serves && in_stream && stream_->serve_shard();
        if (any && is_open_yet()) {
            in_stream.unlock();
            go_on();  // with the answer that may have come
            in_stream.lock(stream_);
        }
        return attempt();
    }
    template <typename Answer>
    [[nodiscard]] static bool is_waiting(const Answer &answer) {
        return !answer && answer.error().number == EAGAIN;
    }
    // Looks until attempt() gives something else than EAGAIN, and sleeps meanwhile.
    template <typename Attempt>
    std::invoke_result_t<Attempt> until(bool blocks, Deadline deadline, Attempt attempt) REQUIRES(mutex_) {
        auto answer = look(attempt);  // what is here already: the device need not be asked
        if (is_waiting(answer)) {
            answer = keep_looking(blocks, deadline, attempt);
        }
        return answer;
    }
    template <typename Attempt>
    [[gnu::noinline]] std::invoke_result_t<Attempt> keep_looking(bool blocks, Deadline deadline,
                                                                 Attempt attempt) REQUIRES(mutex_);
    [[nodiscard]] static Deadline deadline_of(milliseconds timeout) {
        return timeout.count() != 0 ? Deadline{base::Clock::now() + timeout} : std::nullopt;
    }

    base::SmallMutex mutex_;
    // The socket is not in the table yet, and nobody else uses it.
    void is_new() const ASSERT_CAPABILITY(mutex_) {}
    // Changed with the lock held.
    std::atomic<State> state_;
    SocketOptions options_ GUARDED_BY(mutex_);
    bool blocks_ GUARDED_BY(mutex_);
    bool closed_ GUARDED_BY(mutex_) = false;
    bool loss_told_ GUARDED_BY(mutex_) = false;
    // Why there is no stream, as an errno value, until a call or SO_ERROR has told it.
    int pending_error_ GUARDED_BY(mutex_) = 0;
    int reason_ GUARDED_BY(mutex_) = 0;  // RDMA_REASON_
    DecisionTime decision_time_ GUARDED_BY(mutex_);
    Replay replay_ GUARDED_BY(mutex_);
    // The directions that rshutdown has ended.
    bool ends_sending_ GUARDED_BY(mutex_) = false;
    bool ends_receiving_ GUARDED_BY(mutex_) = false;
    Listening listening_ GUARDED_BY(mutex_);
    Stream stream_ GUARDED_BY(mutex_);
    // The same from when the state becomes Streaming until the socket is closed, for calls without the lock.
    OpenStream open_stream_;
};

template <typename Attempt>
std::invoke_result_t<Attempt> Socket::keep_looking(bool blocks, Deadline deadline, Attempt attempt) {
    constexpr int most_rounds = 8;
    bool any = false;
    const auto serve_and_look = [&] {
        mutex_.assert_held();
        return look(attempt, true, any);
    };
    (void)stream::Shard::serve_expecting();
    std::invoke_result_t<Attempt> result = base::failure(EAGAIN);
    if (!blocks || Looking::is_worth_while()) {
        const auto begin = blocks ? base::Clock::now() : base::Clock::time_point{};
        for (int round = 1; is_waiting(result); ++round) {
            result = serve_and_look();
            // A call that does not wait goes on only while there is something, and for at most most_rounds
            // rounds.
            if (!is_waiting(result) || (blocks ? base::Clock::now() - begin >= configuration().polling_time
                                               : !any || round == most_rounds)) {
                break;
            }
            mutex_.unlock();
            mutex_.lock();
        }
        if (blocks) {
            Looking::found(!is_waiting(result));
        }
    }
    while (blocks && is_waiting(result) && (!deadline || base::Clock::now() < *deadline)) {
        const auto waiter = Waiter::of_this_thread();
        if (!waiter) {
            return std::unexpected{waiter.error()};
        }
        {
            Sleep sleep{*waiter};
            auto slept = begin_wait_locked(sleep);
            if (slept) {
                result = serve_and_look();
            }
            if (slept && is_waiting(result)) {
                const base::Unlock unlocked{mutex_};
                slept = sleep.until(deadline);
            }
            end_wait(sleep);
            if (!slept) {
                return std::unexpected{slept.error()};
            }
        }
        if (is_waiting(result)) {
            result = serve_and_look();
        }
    }
    return result;
}

}  // namespace rsockets
