// SPDX-License-Identifier: BSD-3-Clause
// verbs/address: names and ports to socket addresses.
#pragma once

#include <expected>

#include "verbs/owned.hpp"

namespace verbs {

// Tells whose address it is: one of this machine, to bind to, or one to reach.
enum class Side { Local, Remote };

// The result of a look-up, or a static text that says why it gave nothing.
using AddressResult = std::expected<AddressInfo, const char *>;

// Looks up a reliable connection's address; port may be NULL, a number or a service name. Blocks (name
// service).
[[nodiscard]] AddressResult look_up(const Provider &provider, const char *address, const char *port,
                                    Side side);

// The static text of an errno value. Any thread, unlike strerror(3).
[[nodiscard]] const char *error_text(int number);

}  // namespace verbs
