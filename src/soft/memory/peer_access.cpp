// SPDX-License-Identifier: BSD-3-Clause
#include "soft/memory/peer_access.hpp"

#include <cinttypes>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "soft/ground/wrong_keys.hpp"
#include "soft/memory/window.hpp"

namespace soft {

[[gnu::hot]] OrRefusal<Pin> PeerAccess::pin(const Access &access, const char *refusal,
                                            std::span<const std::byte> read_request) {
    Memory::instance().see_registrations(registrations_seen_);
    const unsigned withheld = withheld_.load(std::memory_order_relaxed);
    const bool given_back = !invalidated_.empty() && invalidated_.contains(access.by, access.key);
    auto pin = (access.rights & withheld) != 0 ? std::unexpected{Fault::QueuePairAccess}
               : given_back                    ? std::unexpected{Fault::InvalidKey}
                                               : Memory::instance().pin(access);
    if (pin) {
        offers_.offer(pin->region(), withheld_);
        return std::move(*pin);
    }
    const Fault fault = pin.error();
    BASE_LOG_PEER(Warning, "%s: %s: %" PRIu64 " bytes at 0x%" PRIx64 " with key 0x%" PRIx32 ": %s",
                  text_.c_str(), refusal, access.length, access.address, access.key, text_of(fault));
    if (fault == Fault::InvalidKey || fault == Fault::ProtectionDomain || fault == Fault::QueuePair) {
        WrongKeys::instance().note(origin_, base::Clock::now());
    }
    return std::unexpected{
        Refusal{.violation = {refusal, access.rights == IBV_ACCESS_REMOTE_WRITE ? tagged_code(fault)
                                                                                : rdmap_code(fault)},
                .of = Refusal::Of::Access,
                .read_request = read_request}};
}

OrRefusal<> PeerAccess::invalidate(std::uint32_t key) {
    if (invalidated_.add(peer_, key)) {
        offers_.withdraw(key);
        MemoryWindow::give_back(peer_, key);
        return {};
    }
    BASE_LOG_PEER(Warning, "%s invalidates key 0x%" PRIx32 ", which it has not, or has given back before",
                  text_.c_str(), key);
    WrongKeys::instance().note(origin_, base::Clock::now());
    return make_refusal({"a key that cannot be invalidated", wire::terminate::cannot_invalidate});
}

bool PeerAccess::guesses_keys() const {
    return WrongKeys::instance().guesses(origin_, base::Clock::now());
}

}  // namespace soft
