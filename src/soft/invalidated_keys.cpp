// SPDX-License-Identifier: BSD-3-Clause
// soft/invalidated_keys: see the header.
#include "soft/invalidated_keys.hpp"

#include <algorithm>
#include <utility>

#include "soft/memory.hpp"

namespace soft {

bool InvalidatedKeys::contains(const ibv_pd *pd, std::uint32_t key) const {
    const auto known = std::ranges::lower_bound(entries_, key, {}, &Entry::key);
    return known != entries_.end() && known->key == key &&
           Memory::instance().registration_for_peers(pd, key) == known->registration;
}

bool InvalidatedKeys::add(const ibv_pd *pd, std::uint32_t key) {
    const auto registration = Memory::instance().registration_for_peers(pd, key);
    if (!registration) {
        return false;
    }
    if (entries_.size() == entries_.capacity()) {
        std::erase_if(entries_, [pd](const Entry &entry) {
            return Memory::instance().registration_for_peers(pd, entry.key) != entry.registration;
        });
    }
    const auto place = std::ranges::lower_bound(entries_, key, {}, &Entry::key);
    if (place == entries_.end() || place->key != key) {
        entries_.insert(place, {.key = key, .registration = *registration});
        return true;
    }
    // By chance, a key that another region had before.
    return std::exchange(place->registration, *registration) != *registration;
}

}  // namespace soft
