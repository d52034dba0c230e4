// SPDX-License-Identifier: BSD-3-Clause
// verbs/select: which provider serves an address, and whose a context is.
#pragma once

#include "base/result.hpp"
#include "verbs/address.hpp"

namespace verbs {

// Which kinds of device may serve: the words of RPMA_DEVICE.
enum class Choice { Automatic, Kernel, Soft };

// The meaning of a value of RPMA_DEVICE, nullptr when it is not set; EINVAL and a log line when it has none.
[[nodiscard]] base::Result<Choice> parse_choice(const char *value);

// The context of the device that serves the address, by RPMA_DEVICE; logged. It lives as long as the process.
// nullptr for a local wildcard address, which no single device serves. Blocks: name look-up, and up to 1,000
// ms a provider for a remote address.
[[nodiscard]] base::Result<ibv_context *> find_context(const char *address, Side side);

enum class Kind { Kernel, Soft };

// The context of the device of one kind that serves a numeric address of this machine. nullptr: none does, or
// RPMA_DEVICE leaves the kind out; EINVAL when RPMA_DEVICE has no meaning.
[[nodiscard]] base::Result<ibv_context *> find_local_context(const char *address, Kind kind);

// The provider that a context belongs to.
[[nodiscard]] const Provider &provider_of(const ibv_context *context);

}  // namespace verbs
