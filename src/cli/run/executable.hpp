// SPDX-License-Identifier: BSD-3-Clause
// cli/run/executable: finds programs that a library in LD_PRELOAD does not reach.
#pragma once

#include <string>

namespace cli {

// Looks at the file that execvp(3) runs by this name, and at the interpreter of a script. Returns the reason
// why a preloaded library does not get the program's calls, as a text that begins with the file's name. It is
// empty when the library gets them, or when the file cannot be read.
[[nodiscard]] std::string why_not_preloaded(const std::string &program);

}  // namespace cli
