// SPDX-License-Identifier: BSD-3-Clause
// soft/datagram/lookup: the socket on which the requests for a service come. It remembers what was asked and
// answered: a request that comes again, because its reply was lost, is no second one.
#pragma once

#include <cstdint>
#include <deque>

#include "base/fd.hpp"
#include "base/mutex.hpp"
#include "soft/datagram/socket.hpp"
#include "soft/ground/origin.hpp"
#include "soft/wire/datagram.hpp"

namespace soft {

// The asker, and what makes its request different from others.
struct Lookup {
    udp::Endpoint from;
    ibv_gid to{};
    std::uint64_t token = 0;

    friend bool operator==(const Lookup &a, const Lookup &b) {
        return a.from == b.from && udp::same(a.to, b.to) && a.token == b.token;
    }
};

// Shared by a listener and the requests that came to it. Any thread.
class LookupService {
public:
    explicit LookupService(base::Fd socket) : socket_{std::move(socket)} {}

    [[nodiscard]] int socket() const { return socket_.get(); }
    // Returns true when the request is new: then it is to be answered. One that was answered gets the same
    // answer. Where there are too many another is forgotten.
    [[nodiscard]] bool begin(const Lookup &lookup) EXCLUDES(mutex_);
    // Returns 0 or an errno value: EINVAL when it was answered, or is forgotten. The token of the reply is
    // the lookup's.
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
    base::Mutex mutex_;  // nothing else is locked with it held
    std::deque<Exchange> exchanges_
        GUARDED_BY(mutex_);             // in the order of their beginning; at most limits::max_listen_backlog
    Shares shares_ GUARDED_BY(mutex_);  // that origins have of them
};

}  // namespace soft
