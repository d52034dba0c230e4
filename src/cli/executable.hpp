// SPDX-License-Identifier: BSD-3-Clause
// cli/executable: which programs a library in LD_PRELOAD does not reach.
#pragma once

#include <string>

namespace cli {

// Looks at the file that execvp(3) runs by this name, and at the interpreter of a script. Returns why a
// preloaded library does not stand in front of its calls, in words that follow the name of the file, which
// they begin with. Empty where it does, or where the file cannot be read.
[[nodiscard]] std::string why_not_preloaded(const std::string &program);

}  // namespace cli
