// SPDX-License-Identifier: BSD-3-Clause
// soft/link/tcp_link: a link that is one connected TCP socket.
#pragma once

#include <utility>

#include "soft/link/link.hpp"

namespace soft {

class TcpLink : public Link {
public:
    // The socket does not block (tcp.hpp makes such sockets).
    explicit TcpLink(base::Fd socket) : socket_{std::move(socket)} {}

    [[nodiscard]] Sent send(std::span<const iovec> pieces) override;
    bool finish() override;
    [[nodiscard]] Received receive(std::span<const iovec> pieces) override;
    void abort() override;
    void abandon() override;
    [[nodiscard]] int descriptor() const override { return socket_.get(); }
    [[nodiscard]] bool own_lent_descriptor() override;
    [[nodiscard]] base::Fd take_descriptor() override { return std::move(socket_); }
    [[nodiscard]] Ready ready() const override;
    [[nodiscard]] int failure() override;
    [[nodiscard]] std::size_t unread_bytes() const override;
    [[nodiscard]] bool undelivered() const override;
    [[nodiscard]] std::chrono::milliseconds user_timeout() const override;
    void limit_unsent(std::size_t bytes) override;
    [[nodiscard]] const char *name() const override { return "tcp"; }
    [[nodiscard]] std::size_t max_segment() const override;

private:
    base::Fd socket_;
};

}  // namespace soft
