// SPDX-License-Identifier: BSD-3-Clause
// verbs/address: turns names and ports into socket addresses.
#pragma once

#include <expected>

#include "verbs/owned.hpp"

namespace verbs {

// Local is an address of this machine, to bind to; Remote is an address to reach.
enum class Side { Local, Remote };

// The result of a look-up, or a static text that says why it failed.
using AddressResult = std::expected<AddressInfo, const char *>;

// Looks up a reliable connection's address; port may be NULL, a number or a service name. Blocks for the name
// service.
[[nodiscard]] AddressResult look_up(const Provider &provider, const char *address, const char *port,
                                    Side side);

// Returns the static text of an errno value. Any thread may call it, unlike strerror(3).
[[nodiscard]] const char *error_text(int number);

}  // namespace verbs
