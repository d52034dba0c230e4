// SPDX-License-Identifier: BSD-3-Clause
// carry_device/spares: how the agents of a connection's two ends meet by TCP when the device has lost the
// peer. Each process has one port for all its connections; the ends have told each other theirs, and a key,
// over the device.
//
// An end that has lost its device connects to the other one's port, and greets with that end's key. Both may
// do so at once. Then the connection of side 1 counts, and side 0 waits for it:
//
//      side 0 ── greets ──►  has not begun: Taken, this connection is it
//                            has begun:     Comes, side 0 waits for the other's
//      side 1 ── greets ──►  Taken
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <list>
#include <utility>

#include "base/clock.hpp"
#include "carry/link.hpp"
#include "carry_device/spare.hpp"
#include "carry_device/watched.hpp"

namespace carry_device {

struct Greeting {
    std::uint64_t mark = carry::Link::mark;
    std::uint64_t name = 0;  // of the connection
    std::uint64_t key = 0;   // of the end that is greeted
    std::uint32_t side = 0;  // of the end that greets
    std::uint32_t unused = 0;
};

enum class Reply : std::uint8_t { Refused, Taken, Comes };

// The process's port, and who has come there.
class Spares {
public:
    // events: an epoll set of the agent's, which wakes it. Returns false when there is no port.
    [[nodiscard]] bool begin_to_listen(int events);
    // Returns the port, and a new key.
    [[nodiscard]] SparePort announce() const;
    // Calls greeted(greeting, its connection) for each greeting that has come. It answers. Returns whether
    // more may have come: a crowd at the port does not keep the agent from its work.
    template <typename Greeted>
    [[nodiscard]] bool serve(Greeted greeted) {
        const bool is_more = accept_some();
        for (auto one = all_.begin(); one != all_.end();) {
            const auto next = std::next(one);
            if (reads(*one)) {
                greeted(one->greeting, std::move(one->fd));
            }
            if (!one->fd) {
                all_.erase(one);
            }
            one = next;
        }
        while (all_.size() > most) {  // the oldest, which has had its time, makes room for others
            all_.pop_front();
        }
        return is_more;
    }
    // In a forked child: whoever greets its parent must not wait for this process.
    void close_in_child() { listener_.close_in_child(); }

private:
    static constexpr std::size_t most = 64;  // that are accepted at once, and that have not greeted

    struct Incoming {
        Watched fd;
        Greeting greeting;
        std::size_t got = 0;  // bytes of it
    };
    // Returns whether there may be more.
    [[nodiscard]] bool accept_some();
    [[nodiscard]] static bool reads(Incoming &one);

    int events_ = -1;
    Watched listener_;
    std::uint16_t port_ = 0;
    std::list<Incoming> all_;
};

// One end's way to the other. The agent calls.
class Attempt {
public:
    enum class Result { Later, Goes, Fails };

    explicit Attempt(std::chrono::milliseconds limit = std::chrono::seconds{10}) : limit_{limit} {}
    // Does what can be done without a wait. Fails when the peer's port refuses, or the peer, or when the time
    // from the first call on is over. A connection that ends without a reply is tried again.
    [[nodiscard]] Result advance(int events, const carry::FourTuple &connection, std::uint64_t name,
                                 const SparePort &peers);
    [[nodiscard]] bool is_under_way() const { return state_ != State::None; }
    [[nodiscard]] Watched take() { return std::move(fd_); }
    // The peer has come.
    void end() { fd_.reset(); }

private:
    enum class State { None, Connects, Asks, Waits };
    [[nodiscard]] bool connect(int events, const carry::FourTuple &connection, std::uint16_t port);
    [[nodiscard]] bool greet(const Greeting &greeting) const;
    [[nodiscard]] Result hear();
    [[nodiscard]] Result wait();

    const std::chrono::milliseconds limit_;
    base::Clock::time_point ends_;
    State state_ = State::None;
    Watched fd_;
    base::Clock::time_point until_;  // of Waits
};

}  // namespace carry_device
