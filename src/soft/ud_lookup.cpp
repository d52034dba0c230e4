// SPDX-License-Identifier: BSD-3-Clause
// soft/ud_lookup: see the header.
#include "soft/ud_lookup.hpp"

#include <algorithm>

#include "soft/limits.hpp"

namespace soft {

bool LookupService::begin(const Lookup &lookup) {
    const std::scoped_lock lock{mutex_};
    const auto known = std::ranges::find(exchanges_, lookup, &Exchange::lookup);
    if (known != exchanges_.end()) {
        if (known->reply_bytes != 0) {
            (void)send_reply(*known);
        }
        return false;
    }
    if (exchanges_.size() >= limits::max_listen_backlog) {
        const auto answered =
            std::ranges::find_if(exchanges_, [](const Exchange &one) { return one.reply_bytes != 0; });
        if (answered == exchanges_.end()) {
            return false;
        }
        exchanges_.erase(answered);
    }
    exchanges_.push_back({.lookup = lookup, .reply = {}});
    return true;
}

int LookupService::answer(const Lookup &lookup, wire::LookupReply reply) {
    reply.token = lookup.token;
    const std::scoped_lock lock{mutex_};
    const auto open = std::ranges::find(exchanges_, lookup, &Exchange::lookup);
    if (open == exchanges_.end() || open->reply_bytes != 0) {
        return EINVAL;
    }
    open->reply_bytes = wire::encode(reply, open->reply);
    return send_reply(*open);
}

// A reply that is lost is sent again when it is asked for again.
int LookupService::send_reply(Exchange &exchange) const {
    iovec piece{.iov_base = exchange.reply.data(), .iov_len = exchange.reply_bytes};
    return udp::send(socket_.get(), exchange.lookup.to, exchange.lookup.from, {&piece, 1});
}

}  // namespace soft
