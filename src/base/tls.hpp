// SPDX-License-Identifier: BSD-3-Clause
// base/tls: whether the environment asks for TLS. The soft device reads what it asks for in detail.
#pragma once

#include <cstdlib>

namespace base {

// Returns the value of RPMA_TLS, with which connections use TLS and nothing else; nullptr when the variable
// is not set, or empty. A process with raised privileges heeds it too: whoever set it expects no byte in the
// clear.
[[nodiscard]] inline const char *required_tls() {
    const char *const value = std::getenv("RPMA_TLS");
    return value != nullptr && *value != '\0' ? value : nullptr;
}

}  // namespace base
