// SPDX-License-Identifier: BSD-3-Clause
#include "soft/memory/invalidated_keys.hpp"

#include <algorithm>
#include <utility>

namespace soft {

bool InvalidatedKeys::contains(const Asker &peer, std::uint32_t key) const {
    const auto known = std::ranges::lower_bound(entries_, key, {}, &Entry::key);
    return known != entries_.end() && known->key == key &&
           Memory::instance().registration_for(peer, key) == known->registration;
}

bool InvalidatedKeys::add(const Asker &peer, std::uint32_t key) {
    const auto registration = Memory::instance().registration_for(peer, key);
    if (!registration) {
        return false;
    }
    if (entries_.size() == entries_.capacity()) {
        std::erase_if(entries_, [&](const Entry &entry) {
            return Memory::instance().registration_for(peer, entry.key) != entry.registration;
        });
    }
    const auto place = std::ranges::lower_bound(entries_, key, {}, &Entry::key);
    if (place == entries_.end() || place->key != key) {
        entries_.insert(place, {.key = key, .registration = *registration});
        return true;
    }
    // Another region may by chance have had the same key before.
    return std::exchange(place->registration, *registration) != *registration;
}

}  // namespace soft
