// SPDX-License-Identifier: BSD-3-Clause
// soft/environment: the meaning of the environment variables that the device reads.
#pragma once

#include <string_view>

#include "base/log.hpp"

namespace soft {

// Of SOFTRDMA_CRC, nullptr when it is not set: whether CRC32C is asked for. A warning when it has no meaning.
[[nodiscard]] inline bool crc_asked_for(const char *value) {
    const std::string_view word{value != nullptr ? value : "0"};
    if (word != "0" && word != "1") {
        BASE_LOG(Warning,
                 "SOFTRDMA_CRC is \"%s\"; expected 0 or 1: CRC32C stays off unless the peer asks for it",
                 value);
    }
    return word == "1";
}

}  // namespace soft
