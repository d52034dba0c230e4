// SPDX-License-Identifier: BSD-3-Clause
// soft/link/multipath_link: a link that is one connected socket of MPTCP. It is a TcpLink, but the kernel has
// no TCP_USER_TIMEOUT for such a socket. So the link itself gives a silent peer up (look_at_peer()).
#pragma once

#include <atomic>
#include <chrono>

#include "soft/link/tcp_link.hpp"

namespace soft {

class MultipathLink final : public TcpLink {
public:
    // The link fails when the peer acknowledges nothing, or takes nothing, for `silence`.
    MultipathLink(base::Fd socket, std::chrono::milliseconds silence)
        : TcpLink{std::move(socket)}, silence_{silence} {}

    [[nodiscard]] Sent send(std::span<const iovec> pieces) override;
    [[nodiscard]] Received receive(std::span<const iovec> pieces) override;
    [[nodiscard]] Ready ready() const override;
    [[nodiscard]] int failure() override;
    [[nodiscard]] std::chrono::milliseconds user_timeout() const override { return silence_; }
    [[nodiscard]] std::size_t max_segment() const override;
    [[nodiscard]] base::Clock::time_point look_at_peer() override;
    [[nodiscard]] std::optional<std::size_t> paths() const override;

private:
    const std::chrono::milliseconds silence_;
    std::atomic<bool> given_up_{false};
    // Only the thread that receives uses these.
    std::uint64_t acknowledged_ = 0;
    base::Clock::time_point moved_ = base::Clock::now();  // when the peer last acknowledged or had everything
};

// Returns the link of a socket, whichever of the two it is.
[[nodiscard]] std::unique_ptr<Link> link_on(base::Fd socket, std::chrono::milliseconds silence);

}  // namespace soft
