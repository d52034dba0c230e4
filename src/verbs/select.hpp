// SPDX-License-Identifier: BSD-3-Clause
// verbs/select: finds the provider that serves an address, and the provider of a context.
#pragma once

#include "base/result.hpp"
#include "verbs/address.hpp"

namespace verbs {

// The kinds of device that may serve, as RPMA_DEVICE names them.
enum class Choice { Automatic, Kernel, Soft };

// Returns the meaning of a value of RPMA_DEVICE, nullptr when it is not set. Fails with EINVAL, and logs it,
// when the value is not valid.
[[nodiscard]] base::Result<Choice> parse_choice(const char *value);

// Returns the context of the device that serves the address, by RPMA_DEVICE, and logs it. With RPMA_TLS that
// is a soft device, and RPMA_DEVICE=kernel fails with EPROTONOSUPPORT. The context lives as long as the
// process. It is nullptr for a local wildcard address, which no single device serves. Blocks for the name
// look-up, and up to 1,000 ms for each provider for a remote address.
[[nodiscard]] base::Result<ibv_context *> find_context(const char *address, Side side);

enum class DeviceKind { Kernel, Soft };

// Returns the context of the device of one kind that serves a numeric address of this machine; nullptr when
// none does, or RPMA_DEVICE leaves the kind out. Fails with EINVAL when the value of RPMA_DEVICE is not
// valid.
[[nodiscard]] base::Result<ibv_context *> find_local_context(const char *address, DeviceKind kind);

// Returns the provider to which a context belongs.
[[nodiscard]] const Provider &provider_of(const ibv_context *context);

}  // namespace verbs
