// SPDX-License-Identifier: BSD-3-Clause
// rsocket/socket: one rsocket of type SOCK_STREAM, with the calls of the program.
//
//      Socket ─┬─ Carrier      the states, the stream, the lock, the options (carrier.hpp draws them)
//              │   ├─ OpenStream, Listening, SocketOptions
//              └─ Beginning    how it becomes a stream or TCP
//                  └─ DecisionTime, Replay
//
// A call that may wait is a Wait; one that moves bytes a Receiving or Sending (transfer.hpp), unless
// OpenStream moves them all.
#pragma once

#include "rsocket/any_socket.hpp"
#include "rsocket/beginning.hpp"
#include "rsocket/carrier.hpp"

namespace rsockets {

class Socket final : public AnySocket {
public:
    using State = Carrier::State;

    Socket(base::Fd fd, State state, const stream::Settings &settings, bool blocks, int reason = 0)
        : AnySocket{std::move(fd)}, carrier_{*this, state, settings, blocks, reason} {}
    // Makes a forked child's own rsocket of its parent's.
    Socket(base::Fd fd, const Socket &parents)
        : AnySocket{std::move(fd)},
          carrier_{*this, parents.carrier_},
          beginning_{carrier_, parents.beginning_} {}
    // In adopt.cpp. Makes an rsocket of a TCP socket of the kernel, in the state that the kernel tells.
    // ENOTSUP: it is no TCP socket. ECONNRESET: it carries another program's stream.
    [[nodiscard]] static Result<std::shared_ptr<AnySocket>> adopt(int fd);
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

    [[nodiscard]] Result<void> name(base::End end, sockaddr *address, socklen_t *length) override;

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
    [[nodiscard]] bool is_undecided() const override { return carrier_.state() == State::Undecided; }
    [[nodiscard]] bool is_plain() const override { return carrier_.state() == State::Plain; }
    [[nodiscard]] Answering answer() override;
    [[nodiscard]] short readiness(short events) override;
    [[nodiscard]] Result<void> begin_wait(Sleep &sleep, short events) override;
    void end_wait(const Sleep &sleep) override { waiters_.remove(sleep.waiter()); }
    [[nodiscard]] Result<Watched> watch(short events) override;
    [[nodiscard]] bool end_with_process() override;
    [[nodiscard]] std::shared_ptr<AnySocket> in_child() const override;

private:
    [[nodiscard]] Result<std::size_t> receive_any(msghdr &message, int flags);
    [[nodiscard]] Result<std::size_t> receive_of_stream(std::span<const iovec> parts, int flags);
    [[nodiscard]] Result<std::size_t> send_any(const msghdr &message, int flags);
    [[nodiscard]] Result<std::size_t> send_by_stream(std::span<const iovec> parts, int flags);
    // Waits until an accepted socket is a stream or TCP.
    enum class Use { Receive, Send };
    [[nodiscard]] Result<void> decide(Use use, int flags);
    [[nodiscard]] Result<std::shared_ptr<Socket>> next_client(sockaddr *address, socklen_t *length, int flags)
        REQUIRES(carrier_.mutex());
    // `goes_on`: a signal has interrupted an earlier call that connected.
    [[nodiscard]] Result<void> connect_in_tcp(const sockaddr *address, socklen_t length, bool goes_on);
    [[nodiscard]] Result<void> wait_for_peer() REQUIRES(carrier_.mutex());

    Carrier carrier_;
    Beginning beginning_ GUARDED_BY(carrier_.mutex()){carrier_};
    // A signal has interrupted a blocking connect, and no call has completed it yet.
    bool connect_was_interrupted_ GUARDED_BY(carrier_.mutex()) = false;
};

}  // namespace rsockets
