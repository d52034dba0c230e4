// SPDX-License-Identifier: BSD-3-Clause
// socket_preload/program_use: the descriptor that a call of the program means.
#pragma once

#include <limits>

#include "socket_preload/descriptor_kinds.hpp"
#include "socket_preload/inherited.hpp"

namespace socket_preload {

// Returns whether the descriptor is an rsocket's. Then it becomes the number that librsocket knows. A
// descriptor of this library's own becomes a number that is no descriptor, because the program has none
// there.
[[nodiscard]] inline bool is_rsocket(int &fd) {
    Kind kind = descriptors.kind(fd);
    if (kind == Kind::Inherited) {
        kind = adopted(fd);
    }
    if (kind == Kind::RsocketAgain) {
        fd = descriptors.first_of(fd);
    } else if (kind == Kind::Own) {
        fd = std::numeric_limits<int>::max();
    }
    return kind == Kind::Rsocket || kind == Kind::RsocketAgain;
}

// Does the same for a repoll's descriptor.
[[nodiscard]] inline bool is_repoll(int &fd) {
    const Kind kind = descriptors.kind(fd);
    if (kind == Kind::RepollAgain) {
        fd = descriptors.first_of(fd);
    }
    return kind == Kind::Repoll || kind == Kind::RepollAgain;
}

}  // namespace socket_preload
