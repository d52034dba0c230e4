// SPDX-License-Identifier: BSD-3-Clause
// soft/datagram/lookup: the socket on which the requests for a service come. It remembers requests and
// replies, so that a request that comes again, because its reply was lost, does not count as a second one.
#pragma once

#include <cstdint>
#include <deque>

#include "base/fd.hpp"
#include "base/mutex.hpp"
#include "base/origin.hpp"
#include "soft/datagram/socket.hpp"
#include "soft/wire/datagram.hpp"

namespace soft {

// The sender of a request, and the token that tells it from others.
struct Lookup {
    udp::Endpoint from;
    ibv_gid to{};
    std::uint64_t token = 0;

    friend bool operator==(const Lookup &a, const Lookup &b) {
        return a.from == b.from && udp::same(a.to, b.to) && a.token == b.token;
    }
};

// A listener and its requests share it. Any thread may use it.
class LookupService {
public:
    explicit LookupService(base::Fd socket) : socket_{std::move(socket)} {}

    [[nodiscard]] int socket() const { return socket_.get(); }
    // Returns true when the request is new and needs an answer. A request that was answered gets the same
    // answer again. When there are too many requests, another one is forgotten.
    [[nodiscard]] bool begin(const Lookup &lookup) EXCLUDES(mutex_);
    // Sends the answer, with the token of the lookup. Returns 0 or an errno value: EINVAL when the request
    // was answered, or is forgotten.
    [[nodiscard]] int answer(const Lookup &lookup, wire::LookupReply reply) EXCLUDES(mutex_);

private:
    struct Exchange {
        Lookup lookup;
        std::size_t reply_bytes = 0;  // 0: not answered yet
        wire::LookupReplyBytes reply;
    };
    void forget_one() REQUIRES(mutex_);
    [[nodiscard]] int send_reply(Exchange &exchange) const;

    const base::Fd socket_;
    base::Mutex mutex_;  // no other lock is taken with it
    std::deque<Exchange> exchanges_
        GUARDED_BY(mutex_);  // in the order of their arrival; at most limits::max_listen_backlog
    base::Shares shares_ GUARDED_BY(mutex_);  // how many each origin has
};

}  // namespace soft
