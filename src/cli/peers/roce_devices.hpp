// SPDX-License-Identifier: BSD-3-Clause
// cli/peers/roce_devices: the devices as a program under `rpma run --roce` sees them, for `rpma devices
// --roce`.
#pragma once

#include "cli/failure.hpp"

namespace cli {

// Prints them: for people the devices, and then a line for each GID. Sets SOFTRDMA_ROCE, so it comes before
// any other use of a device.
[[nodiscard]] Outcome<> list_roce_devices(bool json);

}  // namespace cli
