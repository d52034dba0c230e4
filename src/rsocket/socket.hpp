// SPDX-License-Identifier: BSD-3-Clause
// rsocket/socket: one rsocket. Its descriptor is a TCP socket of the kernel, which has the names and most of
// the options, and which the stream's device uses for as long as there is a stream.
//
//      Fresh ──► Listening            rsocket, rbind; rlisten
//        │
//        └─────► Reaching ──┐         rconnect: TCP connects
//                           ├──► Streaming        there is a stream, also one that has ended
//      Accepted ────────────┘         raccept: it becomes a stream when it is first read, written or waited
//                                     for, so that options can still be set
#pragma once

#include <mutex>
#include <type_traits>

#include "rsocket/any_socket.hpp"
#include "rsocket/configuration.hpp"
#include "stream/connection.hpp"

namespace rsockets {

class Socket final : public AnySocket {
public:
    enum class State { Fresh, Listening, Reaching, Accepted, Streaming };

    Socket(base::Fd fd, State state, const stream::Settings &settings, bool blocks)
        : AnySocket{std::move(fd)}, state_{state}, settings_{settings}, blocks_{blocks} {}
    Socket(const Socket &) = delete;
    Socket &operator=(const Socket &) = delete;
    ~Socket() override;

    [[nodiscard]] Result<void> listen(int backlog) override;
    [[nodiscard]] Result<std::shared_ptr<AnySocket>> accept(sockaddr *address, socklen_t *length,
                                                            int flags) override;
    [[nodiscard]] Result<void> connect(const sockaddr *address, socklen_t length) override;
    [[nodiscard]] Result<std::size_t> receive(msghdr &message, int flags) override;
    [[nodiscard]] Result<std::size_t> send(const msghdr &message, int flags) override;
    [[nodiscard]] Result<void> shutdown(int how) override;
    // Ends the stream, and waits as SO_LINGER says.
    void close() override;

    // In options.cpp.
    [[nodiscard]] Result<void> set_option(int level, int name, const void *value, socklen_t length) override;
    [[nodiscard]] Result<void> get_option(int level, int name, void *value, socklen_t *length) override;
    [[nodiscard]] bool blocks() override;
    void set_blocking(bool blocks) override;

    [[nodiscard]] short poll(short events) override;
    [[nodiscard]] Result<short> begin_wait(const std::shared_ptr<Waiter> &waiter, short events,
                                           std::vector<pollfd> &descriptors) override;
    void end_wait(const std::shared_ptr<Waiter> &waiter) override;

private:
    [[nodiscard]] Result<std::size_t> receive_parts(std::span<const iovec> parts, int flags);
    [[nodiscard]] Result<std::size_t> send_parts(std::span<const iovec> parts, int flags);
    // With mutex_ held. What it finds wakes the waiters but the one who asks.
    void serve(const Waiter *who_asks = nullptr);
    [[nodiscard]] Result<void> answer_while_waiting(std::unique_lock<std::mutex> &lock, Deadline deadline);
    [[nodiscard]] bool awaits_answer();
    [[nodiscard]] bool reach();
    [[nodiscard]] bool begin_stream(stream::Side side);
    // An errno value, which is told once when it is why there never will be one.
    [[nodiscard]] int why_no_stream();
    void apply_options();
    [[nodiscard]] Result<void> set_socket_option(int name, const void *value, socklen_t length);
    [[nodiscard]] Result<void> set_rdma_option(int name, const void *value, socklen_t length);
    [[nodiscard]] short readiness(short events) const;
    [[nodiscard]] Result<void> begin(const std::shared_ptr<Waiter> &waiter, std::vector<pollfd> &descriptors);
    void end(const std::shared_ptr<Waiter> &waiter);
    void wake_all() const;
    // Calls attempt() until it gives something else than EAGAIN, sleeping meanwhile.
    template <typename Attempt>
    std::invoke_result_t<Attempt> until(std::unique_lock<std::mutex> &lock, bool blocks, Deadline deadline,
                                        Attempt attempt);
    [[nodiscard]] static Result<void> sleep(std::unique_lock<std::mutex> &lock, std::span<pollfd> descriptors,
                                            Deadline deadline);
    [[nodiscard]] Deadline deadline_of(milliseconds timeout) const;

    std::mutex mutex_;
    State state_;
    stream::Settings settings_;
    bool blocks_;
    bool closed_ = false;
    // Why there is no stream, as an errno value, until a call or SO_ERROR has told it.
    int pending_error_ = 0;
    milliseconds receive_timeout_{0};
    milliseconds send_timeout_{0};
    std::size_t receive_low_water_ = 1;
    linger linger_{};
    struct Option {
        int level;
        int name;
        std::vector<std::byte> value;
    };
    // The kernel's options that the program set. The device sets some of them too, and they are set again
    // then.
    std::vector<Option> options_;
    struct Waiting {
        std::shared_ptr<Waiter> waiter;
        bool in_stream;
    };
    std::vector<Waiting> waiting_;
    // What this one accepted and its program may not have used yet.
    std::vector<std::weak_ptr<Socket>> unanswered_;
    std::unique_ptr<stream::Connection> stream_;
};

template <typename Attempt>
std::invoke_result_t<Attempt> Socket::until(std::unique_lock<std::mutex> &lock, bool blocks,
                                            Deadline deadline, Attempt attempt) {
    const auto try_once = [&](const Waiter *waiter) {
        serve(waiter);
        return closed_ ? std::invoke_result_t<Attempt>{base::failure(EBADF)} : attempt();
    };
    const auto is_waiting = [](const auto &result) { return !result && result.error().number == EAGAIN; };
    auto result = try_once(nullptr);
    if (!is_waiting(result) || !blocks) {
        return result;
    }
    for (const auto until = base::Clock::now() + configuration().polling_time; base::Clock::now() < until;) {
        lock.unlock();
        lock.lock();
        if (result = try_once(nullptr); !is_waiting(result)) {
            return result;
        }
    }
    const auto waiter = Waiter::of_this_thread();
    if (!waiter) {
        return std::unexpected{waiter.error()};
    }
    while (!deadline || base::Clock::now() < *deadline) {
        std::vector<pollfd> descriptors{{.fd = (*waiter)->fd(), .events = POLLIN, .revents = 0}};
        (*waiter)->clear();
        if (auto begun = begin(*waiter, descriptors); !begun) {
            return std::unexpected{begun.error()};
        }
        // Anything that came before begin() makes no descriptor readable.
        result = try_once(waiter->get());
        const auto slept = is_waiting(result) ? sleep(lock, descriptors, deadline) : Result<void>{};
        end(*waiter);
        if (!slept) {
            return std::unexpected{slept.error()};
        }
        if (!is_waiting(result)) {
            return result;
        }
        if (result = try_once(nullptr); !is_waiting(result)) {
            return result;
        }
    }
    return result;
}

}  // namespace rsockets
