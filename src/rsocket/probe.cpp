// SPDX-License-Identifier: BSD-3-Clause
#include "rsocket/probe.hpp"

#include <algorithm>
#include <map>
#include <string>

#include "base/clock.hpp"
#include "base/fork.hpp"
#include "base/mutex.hpp"
#include "registry/known_listener.hpp"
#include "rsocket/configuration.hpp"
#include "stream/address.hpp"

#include <rpma/rsocket.h>

namespace rsockets {

namespace {

constexpr std::chrono::minutes remembered_for{1};
constexpr std::size_t most_remembered = 256;
// It leaves 0.2 ms of the 10 ms by default. A request follows its connection within 0.1 ms where the client's
// machine has a processor for it, and within 10 ms where it has not.
constexpr int grace_divisor_of_remembered = 50;

constinit base::LastingMutex lock_of_remembered;

// Until when each address and port is remembered. Never destroyed: other threads may be in a call when main()
// returns.
auto &remembered() REQUIRES(lock_of_remembered) {
    static auto &until = *new std::map<std::string, base::Clock::time_point>;
    return until;
}

const base::HeldWhileForking<lock_of_remembered> remembered_survives_forks{base::ForkLevel::Rsocket};

std::string key_of(const sockaddr_storage &address) {
    return stream::host_of(address).value_or("") + " " + stream::port_text(address);
}

bool is_remembered(const sockaddr_storage &address) {
    const base::Lock lock{lock_of_remembered};
    const auto known = remembered().find(key_of(address));
    return known != remembered().end() && base::Clock::now() < known->second;
}

}  // namespace

int why_not_ask(const sockaddr_storage &address) {
    switch (configuration().probe) {
        case Probe::Never:
            return RDMA_REASON_NOT_ASKED;
        case Probe::Known:
            return is_known(address) ? RDMA_REASON_NONE : RDMA_REASON_NOT_ASKED;
        case Probe::Always:
        case Probe::Only:
            break;
    }
    return is_remembered(address) ? RDMA_REASON_REMEMBERED : RDMA_REASON_NONE;
}

bool is_known(const sockaddr_storage &address) {
    return std::ranges::any_of(configuration().peers,
                               [&](const base::Network &network) { return network.has(address); }) ||
           registry::is_known_listener(address);
}

std::chrono::microseconds grace_of(const sockaddr_storage &client) {
    const std::chrono::microseconds grace = configuration().grace;
    return grace.count() != 0 && is_remembered(client) ? grace / grace_divisor_of_remembered : grace;
}

void remember_tcp(const sockaddr_storage &address) {
    const base::Lock lock{lock_of_remembered};
    const auto now = base::Clock::now();
    if (remembered().size() >= most_remembered) {
        std::erase_if(remembered(), [&](const auto &one) { return one.second <= now; });
    }
    if (remembered().size() >= most_remembered) {
        remembered().clear();
    }
    remembered().insert_or_assign(key_of(address), now + remembered_for);
}

void forget_tcp(const sockaddr_storage &address) {
    const base::Lock lock{lock_of_remembered};
    if (!remembered().empty()) {
        remembered().erase(key_of(address));
    }
}

}  // namespace rsockets
