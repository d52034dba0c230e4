// SPDX-License-Identifier: BSD-3-Clause
// rsocket/socket: one rsocket of type SOCK_STREAM, with the calls of the program.
//
//      Socket ── Carrier      the states, the stream, the lock, the options (carrier.hpp draws the states)
//                 └─ OpenStream, Listening, SocketOptions
//
// A call that may wait is a Wait; one that moves bytes a Receiving or Sending (transfer.hpp), unless
// OpenStream moves them all.
#pragma once

#include "rsocket/any_socket.hpp"
#include "rsocket/carrier.hpp"

namespace rsockets {

class Socket final : public AnySocket {
public:
    using State = Carrier::State;

    Socket(base::Fd fd, State state, const stream::Settings &settings, bool blocks)
        : AnySocket{std::move(fd)}, carrier_{*this, state, settings, blocks} {}
    // Makes a forked child's own rsocket of its parent's.
    Socket(base::Fd fd, const Socket &parents)
        : AnySocket{std::move(fd)}, carrier_{*this, parents.carrier_} {}
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
    [[nodiscard]] Result<void> end_mappings() override;
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
    [[nodiscard]] short readiness(short events) override;
    [[nodiscard]] Result<void> begin_wait(Sleep &sleep, short events) override;
    void end_wait(const Sleep &sleep) override { waiters_.remove(sleep.waiter()); }
    [[nodiscard]] Result<std::vector<pollfd>> watch(short events) override;
    [[nodiscard]] bool end_with_process() override;
    [[nodiscard]] std::shared_ptr<AnySocket> in_child() const override;

private:
    // The long way of a receive and a send.
    [[nodiscard]] Result<std::size_t> receive_parts(std::span<const iovec> parts, int flags);
    [[nodiscard]] Result<std::size_t> send_parts(std::span<const iovec> parts, int flags);
    struct Accepted {
        std::shared_ptr<Socket> socket;
        bool has_asked = false;  // its request has come as a whole
    };
    [[nodiscard]] Result<Accepted> next_client(sockaddr *address, socklen_t *length, int flags)
        REQUIRES(carrier_.mutex());
    void await_request();
    void leave_stream() REQUIRES(carrier_.mutex(), carrier_.stream()->mutex());
    [[nodiscard]] Result<void> wait_for_peer() REQUIRES(carrier_.mutex());

    Carrier carrier_;
    // A signal has interrupted a blocking connect, and no call has completed it yet.
    bool connect_was_interrupted_ GUARDED_BY(carrier_.mutex()) = false;
};

}  // namespace rsockets
