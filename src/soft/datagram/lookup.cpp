// SPDX-License-Identifier: BSD-3-Clause
#include "soft/datagram/lookup.hpp"

#include <algorithm>
#include <new>

#include "soft/ground/limits.hpp"

namespace soft {

namespace {

base::Origin origin_of(const Lookup &lookup) {
    return base::origin_of(udp::address_of(lookup.from));
}

}  // namespace

bool LookupService::begin(const Lookup &lookup) {
    const base::Lock lock{mutex_};
    const auto known = std::ranges::find(exchanges_, lookup, &Exchange::lookup);
    if (known != exchanges_.end()) {
        if (known->reply_bytes != 0) {
            (void)send_reply(*known);
        }
        return false;
    }
    const base::Origin origin = origin_of(lookup);
    shares_.add(origin);
    try {
        exchanges_.push_back({.lookup = lookup, .reply = {}});
    } catch (const std::bad_alloc &) {
        shares_.remove(origin);
        throw;
    }
    if (exchanges_.size() > limits::max_listen_backlog) {
        forget_one();
    }
    return true;
}

// Forgets the oldest request that was answered; when there is none, the oldest of the origin that has most.
void LookupService::forget_one() {
    auto gone = std::ranges::find_if(exchanges_, [](const Exchange &one) { return one.reply_bytes != 0; });
    if (gone == exchanges_.end()) {
        gone = std::ranges::find_if(exchanges_, [this, most = shares_.most()](const Exchange &one) {
            mutex_.assert_held();
            return shares_.of(origin_of(one.lookup)) == most;
        });
    }
    shares_.remove(origin_of(gone->lookup));
    exchanges_.erase(gone);
}

int LookupService::answer(const Lookup &lookup, wire::LookupReply reply) {
    reply.token = lookup.token;
    const base::Lock lock{mutex_};
    const auto open = std::ranges::find(exchanges_, lookup, &Exchange::lookup);
    if (open == exchanges_.end() || open->reply_bytes != 0) {
        return EINVAL;
    }
    open->reply_bytes = wire::encode(reply, open->reply);
    return send_reply(*open);
}

// A lost reply is sent again when the request comes again.
int LookupService::send_reply(Exchange &exchange) const {
    iovec piece{.iov_base = exchange.reply.data(), .iov_len = exchange.reply_bytes};
    return udp::send(socket_.get(), exchange.lookup.to, exchange.lookup.from, {&piece, 1});
}

}  // namespace soft
