// SPDX-License-Identifier: BSD-3-Clause
// cli/page_cache: what storage has, where the page cache may have something else.
#pragma once

#include <string>

#include "cli/failure.hpp"

namespace cli {

// From now on what is read from the file is what storage has. A page whose write failed stays in the page
// cache with the new bytes and counts as written; a later reader would take it for durable. The file is on
// storage, open for reading and writing, and mapped by nobody; nobody else writes to it. Blocks. Fails when a
// page can neither be dropped from the page cache nor be read past it. `path` is for the failure's text.
[[nodiscard]] Outcome<> forget_cached(int fd, const std::string &path);

}  // namespace cli
