// SPDX-License-Identifier: BSD-3-Clause
// base/error_text: the text of an errno value, for a person.
#pragma once

namespace base {

// Returns the text. For EMFILE that names the limit, and is valid until the thread calls this again; other
// texts are static. Any thread may call it, unlike strerror(3).
[[nodiscard]] const char *error_text(int number);

}  // namespace base
