// SPDX-License-Identifier: BSD-3-Clause
// rsocket/probe: see the header.
#include "rsocket/probe.hpp"

#include <pthread.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <string>

#include "base/clock.hpp"
#include "registry/known_listener.hpp"
#include "rsocket/configuration.hpp"
#include "stream/address.hpp"

#include <rpma/rsocket.h>

namespace rsockets {

namespace {

constexpr std::chrono::minutes remembered_for{1};
constexpr std::size_t most_remembered = 256;

struct Memory {
    std::mutex mutex;
    std::map<std::string, base::Clock::time_point> until;  // by address and port
};

// Never destroyed: other threads may be in a call when main() returns.
Memory &memory() {
    static auto *const all = new Memory;
    return *all;
}

// Held while the process forks, so that the child finds it whole and nobody in it.
[[maybe_unused]] const int memory_survives_forks = pthread_atfork(
    [] { memory().mutex.lock(); }, [] { memory().mutex.unlock(); }, [] { memory().mutex.unlock(); });

std::string key_of(const sockaddr_storage &address) {
    return stream::host_of(address).value_or("") + " " + stream::port_text(address);
}

bool is_remembered(const sockaddr_storage &address) {
    Memory &all = memory();
    const std::scoped_lock lock{all.mutex};
    const auto known = all.until.find(key_of(address));
    return known != all.until.end() && base::Clock::now() < known->second;
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
                               [&](const Network &network) { return network.has(address); }) ||
           registry::is_known_listener(reinterpret_cast<const sockaddr *>(&address),
                                       stream::length_of(address));
}

void remember_tcp(const sockaddr_storage &address) {
    Memory &all = memory();
    const std::scoped_lock lock{all.mutex};
    const auto now = base::Clock::now();
    if (all.until.size() >= most_remembered) {
        std::erase_if(all.until, [&](const auto &one) { return one.second <= now; });
    }
    if (all.until.size() >= most_remembered) {
        all.until.clear();
    }
    all.until.insert_or_assign(key_of(address), now + remembered_for);
}

void forget_tcp(const sockaddr_storage &address) {
    Memory &all = memory();
    const std::scoped_lock lock{all.mutex};
    if (!all.until.empty()) {
        all.until.erase(key_of(address));
    }
}

}  // namespace rsockets
