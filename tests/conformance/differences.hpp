// SPDX-License-Identifier: BSD-3-Clause
// conformance/differences: the tests that are not run on a device, because it is known to be otherwise.
#pragma once

#include <string_view>

namespace conformance {

// Why a test is left out on the device of this name; nullptr when it is not.
[[nodiscard]] const char *why_not(std::string_view device_name, std::string_view test);

}  // namespace conformance
