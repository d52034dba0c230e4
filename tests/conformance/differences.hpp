// SPDX-License-Identifier: BSD-3-Clause
// conformance/differences: the suite leaves some tests out on a device that is known to behave differently.
#pragma once

#include <string_view>

namespace conformance {

// Returns why the test is left out on the device of this name, or nullptr when it runs there.
[[nodiscard]] const char *why_not(std::string_view device_name, std::string_view test);

}  // namespace conformance
