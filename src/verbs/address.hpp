// SPDX-License-Identifier: BSD-3-Clause
// verbs/address: turns names and ports into socket addresses.
#pragma once

#include <expected>

#include "base/error_text.hpp"
#include "verbs/owned.hpp"

namespace verbs {

using base::error_text;

// Local is an address of this machine, to bind to; Remote is an address to reach.
enum class Side { Local, Remote };

// The result of a look-up, or a text that says why it failed (base/error_text).
using AddressResult = std::expected<AddressInfo, const char *>;

// Looks up a reliable connection's address; port may be NULL, a number or a service name. Blocks for the name
// service.
[[nodiscard]] AddressResult look_up(const Provider &provider, const char *address, const char *port,
                                    Side side);

}  // namespace verbs
