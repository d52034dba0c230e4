// SPDX-License-Identifier: BSD-3-Clause
// rsocket/datagram_socket: an rsocket of type SOCK_DGRAM. Its descriptor is a UDP socket of the kernel.
#pragma once

#include <mutex>

#include "base/mutex.hpp"
#include "datagram/endpoint.hpp"
#include "rsocket/any_socket.hpp"
#include "rsocket/configuration.hpp"

namespace rsockets {

class DatagramSocket final : public AnySocket {
public:
    // type is SOCK_DGRAM, with or without SOCK_NONBLOCK and SOCK_CLOEXEC.
    [[nodiscard]] static Result<std::shared_ptr<AnySocket>> create(int domain, int type, int protocol);
    DatagramSocket(base::Fd fd, int domain, bool blocks)
        : AnySocket{std::move(fd)}, domain_{domain}, blocks_{blocks} {
        list();
    }
    // Makes a forked child's own rsocket of its parent's.
    DatagramSocket(base::Fd fd, const DatagramSocket &parents);

    [[nodiscard]] Result<void> listen(int backlog) override;
    [[nodiscard]] Result<std::shared_ptr<AnySocket>> accept(sockaddr *address, socklen_t *length,
                                                            int flags) override;
    [[nodiscard]] Result<void> connect(const sockaddr *address, socklen_t length) override;
    [[nodiscard]] Result<std::size_t> receive(msghdr &message, int flags) override;
    [[nodiscard]] Result<std::size_t> send(const msghdr &message, int flags) override;
    [[nodiscard]] Result<void> shutdown(int how) override;
    void close() override;

    // In datagram_options.cpp.
    [[nodiscard]] Result<void> set_option(int level, int name, const void *value, socklen_t length) override;
    [[nodiscard]] Result<void> get_option(int level, int name, void *value, socklen_t *length) override;
    [[nodiscard]] bool blocks() override;
    void set_blocking(bool blocks) override;

    // In datagram_wait.cpp.
    [[nodiscard]] std::shared_ptr<stream::Shard> advance() override;
    [[nodiscard]] short readiness(short events) override;
    [[nodiscard]] Result<void> begin_wait(Sleep &sleep, short events) override;
    void end_wait(const Sleep &sleep) override;
    [[nodiscard]] Result<std::vector<pollfd>> watch(short events) override;
    void end_watch() override;
    [[nodiscard]] bool end_with_process() override { return true; }
    [[nodiscard]] std::shared_ptr<AnySocket> in_child() const override;

private:
    void serve() REQUIRES(mutex_);
    // Makes the endpoint when the socket is used for the first time: options come before that.
    [[nodiscard]] datagram::Endpoint &endpoint() REQUIRES(mutex_);
    [[nodiscard]] Result<std::size_t> take(msghdr &message, int flags) REQUIRES(mutex_);
    [[nodiscard]] std::optional<int> rdma_option(int name) const REQUIRES(mutex_);
    [[nodiscard]] Result<void> set_rdma_option(int name, const void *value, socklen_t length)
        REQUIRES(mutex_);
    // Calls attempt() until it gives something else than EAGAIN, and sleeps for `events` meanwhile. An
    // attempt that finds something wakes the other threads that sleep.
    template <typename Attempt>
    Result<std::size_t> until(short events, bool blocks, milliseconds timeout, Attempt attempt)
        REQUIRES(mutex_);
    [[nodiscard]] Result<void> begin_wait_locked(Sleep &sleep, short events) REQUIRES(mutex_);
    [[nodiscard]] Result<std::vector<pollfd>> begin_wait_of(const Waiter *waiter, short events)
        REQUIRES(mutex_);
    void end_wait_of(const Waiter *waiter) REQUIRES(mutex_);
    void end_wait_locked(const Sleep &sleep) REQUIRES(mutex_);
    void tell_news() REQUIRES(mutex_);
    void list() REQUIRES(mutex_);

    const int domain_;
    base::Mutex mutex_;
    bool blocks_ GUARDED_BY(mutex_);
    bool closed_ GUARDED_BY(mutex_) = false;
    bool is_shut_to_read_ GUARDED_BY(mutex_) = false;
    bool is_shut_to_write_ GUARDED_BY(mutex_) = false;
    stream::Settings settings_ GUARDED_BY(mutex_) = configuration().settings;
    milliseconds receive_timeout_ GUARDED_BY(mutex_){0};
    milliseconds send_timeout_ GUARDED_BY(mutex_){0};
    // Names the queue pairs that a thread sleeps for; nullptr stands for the watch.
    struct Waiting {
        const Waiter *waiter;
        std::vector<datagram::QueuePair *> pairs;
    };
    std::vector<Waiting> waiting_ GUARDED_BY(mutex_);
    std::unique_ptr<datagram::Endpoint> endpoint_ GUARDED_BY(mutex_);
};

}  // namespace rsockets
